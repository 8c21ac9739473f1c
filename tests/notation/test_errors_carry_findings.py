"""Every error of the package carries what `wrt.why` would say, where it has something to say."""

import inspect

import numpy as np
import pytest
import torch

import wrt
from wrt import d, errors


def ones(**options):
    return torch.ones(3, **options)


def plain():
    y = (ones() * 2).sum()
    d(y) / d(ones())[0]
    return (d(y) / d(ones(requires_grad=True))).value


def switched_off():
    x = ones(requires_grad=True)
    with torch.no_grad():
        y = (x * 2).sum()
        return (d(y) / d(x)).value


def freed():
    x = ones(requires_grad=True)
    y = (x**2).sum()
    y.backward()
    return (d(y) / d(x)).value


def written_over():
    x = ones(requires_grad=True)
    h = torch.sigmoid(x)
    y = (h * 2).sum()
    h += 1
    return (d(y) / d(x)).value


def whole_numbers():
    return d(torch.arange(3))


def inferred():
    with torch.inference_mode():
        return d(ones() * 2)


def cut():
    with wrt.record():
        x = ones(requires_grad=True)
        y = (x.detach() * 3).sum()
    return (d(y) / d(x)).value


def hidden():
    x = ones(requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True).sum()
    return (d(y) / d(x)).value


FAILURES = {
    "not_requires_grad": (plain, errors.NotRecorded),
    "no_grad": (switched_off, errors.NotRecorded),
    "graph_freed": (freed, errors.GraphFreed),
    "inplace_saved_tensor": (written_over, errors.EngineRefused),
    "int_input": (whole_numbers, errors.NotDifferentiable),
    "inference_mode": (inferred, errors.NotRecorded),
    "detach": (cut, errors.GradientCut),
    "checkpoint_reentrant": (hidden, errors.EngineRefused),
}


@pytest.mark.parametrize("cause", FAILURES)
def test_the_error_and_why_name_the_same_cause(cause):
    fails, kind = FAILURES[cause]
    with pytest.raises(kind) as caught:
        fails()
    finding = caught.value.finding
    assert isinstance(finding, wrt.Finding)
    assert finding.cause == cause
    assert finding.remedy
    first = inspect.getsourcelines(fails)[1]
    assert finding.file == __file__
    assert first < finding.line < first + 8
    assert [found.cause for found in wrt.why(caught.value)] == [cause]


def test_where_why_has_nothing_to_say_there_is_no_finding():
    x = ones(requires_grad=True)
    with pytest.raises(errors.WrongIndex) as caught:
        d(x)[7]
    assert caught.value.finding is None
    assert not wrt.why(caught.value)
    with pytest.raises(errors.NotATensor) as caught:
        d("x")
    assert caught.value.finding is None


def test_a_finding_given_by_hand_stays():
    mine = wrt.Finding("detach", "said by hand")
    assert errors.NoPath("what", "where", "write", finding=mine).finding is mine
    error = errors.NoPath("what", "where", "write")
    error.finding = mine
    assert error.finding is mine
    assert np.all([part in str(error) for part in ("what", "where", "write")])
