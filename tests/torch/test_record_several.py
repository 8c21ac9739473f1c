"""A tensor that several recordings met: each question is asked in the run that made y."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

import wrt
from wrt import d
from wrt.errors import DifferentRuns, GradientCut, NoPath


def data() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_an_older_run_is_asked_after_a_newer_one_met_the_same_input(requires_grad):
    x, w = data().requires_grad_(requires_grad), data()
    with wrt.record() as first:
        y = (x * x).sum()
    with wrt.record():
        k = w * 1
        k = k * w
        z = (k * x).sum()
    assert (d(y) / d(x)).value.tolist() == [2.0, 4.0, 6.0]
    assert (d(first["y"]) / d(x)).value.tolist() == [2.0, 4.0, 6.0]
    assert (d(z) / d(x)).value.tolist() == [1.0, 4.0, 9.0]
    assert (d(y) / d(x)).connected


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_result_that_goes_into_a_newer_run_keeps_its_own_history(requires_grad):
    x = data().requires_grad_(requires_grad)
    with wrt.record():
        y = 2 * x
    with wrt.record():
        z = y.sum() + x.sum()
    assert torch.equal((d(y) / d(x)).value, 2 * torch.eye(3, dtype=torch.float64))
    assert (d(z) / d(y)).value.tolist() == [1.0, 1.0, 1.0]


def test_a_buffer_filled_in_one_run_and_read_in_the_next():
    x = data()
    with wrt.record():
        h = torch.zeros(3, dtype=torch.float64)
        for k in range(3):
            h[k] = (k + 1) * x[k]
    with wrt.record():
        y = (h * h).sum()
    assert (d(h) / d(x)).value.tolist() == [[1, 0, 0], [0, 2, 0], [0, 0, 3]]
    assert torch.equal((d(y) / d(h)).value, 2 * h)


def test_the_cut_is_found_in_the_run_that_has_it():
    x, u = data().requires_grad_(), data().requires_grad_()
    with wrt.record():
        h = x.detach() * 2
        y = h.sum() + u.sum()
    with wrt.record():
        k = u * 1
        k = k * u
        k = k * u
        _ = x * 3
    with pytest.raises(GradientCut, match=r"h = x.detach\(\) \* 2  cuts the path"):
        (d(y) / d(x)).value
    assert [finding.cause for finding in wrt.why(y, x)] == ["detach"]


def test_what_another_run_made_of_x_is_no_proof_of_independence():
    x = data()
    with wrt.record():
        h = 2 * x
    with wrt.record():
        _ = x * 3
        y = h.sum()
    with pytest.raises(NoPath) as caught:
        (d(y) / d(x)).value
    assert str(caught.value).splitlines() == [
        "no gradient path from x to y",
        "  y uses h, which was made of x in another recording: each knows its own run only",
        "  put every line from x to y inside one `with wrt.record():`, or write x.requires_grad_() before both",
    ]


def test_what_another_run_made_of_something_else_is():
    x, w = data(), data()
    with wrt.record():
        h = 2 * w
    with wrt.record():
        _ = x * 3
        y = h.sum()
    assert not (d(y) / d(x)).connected
    assert (d(y) / d(x)).value.tolist() == [0.0, 0.0, 0.0]


def test_why_across_two_runs_says_so():
    x, w = data(), data()
    with wrt.record():
        y = w.sum()
    with wrt.record():
        _ = x * 3
    with pytest.raises(DifferentRuns, match="two different recordings"):
        wrt.why(y, x)


class Half(torch.nn.Module):
    """One layer is used, one is not, and one is frozen and not used."""

    def __init__(self):
        super().__init__()
        self.used, self.idle, self.frozen = (torch.nn.Linear(3, 2) for _ in range(3))
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.used(x)


@pytest.mark.parametrize("layer", ["idle", "frozen"])
def test_a_parameter_that_a_recorded_module_does_not_use_is_proven_independent(layer):
    model, x = Half(), torch.ones(3)
    with wrt.record() as t:
        y = model(x).sum()
    weight = getattr(model, layer).weight
    assert not (d(y) / d(weight)).connected
    assert not (d(y) / d(weight)).value.any()
    assert not (d(y) / d(model))[f"{layer}.weight"].value.any()
    assert (d(y) / d(model))["used.weight"].value.tolist() == [[1.0] * 3] * 2
    (found,) = wrt.why(y, weight)
    assert found.cause == "unused_input"
    assert f"{layer}.weight" in str(found)
    assert t[f"{layer}.weight"].shape == (2, 3)
    assert not t.why()


def test_threads_may_begin_and_drop_recordings_while_others_look_for_theirs():
    failed: list[BaseException] = []

    def work(factor: int) -> None:
        try:
            for _ in range(100):
                x = data()
                with wrt.record():
                    y = factor * x
                assert (d(y)[0] / d(x)).value.tolist() == [factor, 0.0, 0.0]
        except BaseException as error:
            failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(factor,)) for factor in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failed


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_view_taken_after_the_run_means_the_elements_of_its_base(requires_grad):
    x = torch.arange(6, dtype=torch.float64).reshape(2, 3).clone().requires_grad_(requires_grad)
    with wrt.record():
        y = (x**2).sum(0)
    J = d(y) / d(x[1])
    assert torch.equal(J.value, torch.diag(2 * x[1]).detach())
    assert torch.equal((d(y) / d(x.T[1:])).value[2], torch.tensor([[0.0, 0.0], [4.0, 10.0]], dtype=torch.float64))
    assert "a view taken afterwards: asked of the elements of its base" in str(J.explain())


def test_a_view_taken_after_the_run_of_a_tensor_that_was_filled_in_it():
    x = data()
    with wrt.record():
        h = torch.zeros(4, dtype=torch.float64)
        h[0] = x[0]
        h[1] = 3 * h[0]
        y = h[0] * h[1]
    assert (d(y) / d(h[:2])).value.tolist() == [6.0, 1.0]
