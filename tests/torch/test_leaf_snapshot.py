"""A leaf is remembered as the tensor itself; what happens to that tensor afterwards must not change the question."""

import pytest
import torch

from wrt import d
from wrt.errors import NoPath, NotRecorded


def run():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    return x, x**3


@pytest.mark.parametrize("rows", [1, ...], ids=["one row", "all rows"])
def test_a_leaf_that_is_frozen_afterwards_is_still_asked_about(rows):
    x, y = run()
    J = d(y)[rows] / d(x)
    x.requires_grad_(False)
    expected = torch.diag(3 * x**2)[rows]
    torch.testing.assert_close(J.value, expected)
    assert not x.requires_grad
    assert x.grad is None


def test_a_leaf_that_is_written_to_afterwards_is_still_asked_about():
    x, y = run()
    J = d(y)[2] / d(x)
    before = 3 * x.detach().clone() ** 2
    with torch.no_grad():
        x.mul_(1.0)
    y2 = x**2
    assert (d(y2)[2] / d(x)).value[2] == 2 * x[2]
    with pytest.raises(Exception, match="changed in place"):
        J.value
    assert before[2] == 27


def test_a_leaf_that_became_the_result_of_an_operation_is_not_that_result():
    x, _ = run()
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    leaf = d(x)
    x.requires_grad_(False)
    x.mul_(w)  # now x is no leaf any more: what depends on it does not depend on what it was
    y = x.sum()
    with pytest.raises((NoPath, NotRecorded)):
        (d(y) / leaf).value
    assert (d(y) / d(x)).value.tolist() == [1, 1, 1]


def test_the_leaf_itself_is_the_identity():
    x, _ = run()
    assert (d(x)[1] / d(x)).value.tolist() == [0, 1, 0]
    assert (d(x) / d(x)).value.tolist() == torch.eye(3).tolist()


def test_answers_that_are_views_of_their_seeds_do_not_share_memory():
    x = torch.arange(6.0, requires_grad=True)
    first, second = ((d(x.view(2, 3)) / d(x)).value for _ in range(2))
    first.add_(1)
    assert second.reshape(6, 6).tolist() == torch.eye(6).tolist()
    assert (d(x.view(3, 2)) / d(x)).value.reshape(6, 6).tolist() == torch.eye(6).tolist()


def test_a_hook_that_writes_to_its_gradient_spoils_no_other_question():
    x = torch.arange(4.0, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g.mul_(10))
    (d(y) / d(x)).value
    assert (d(x * 3) / d(x)).value.tolist() == (3 * torch.eye(4)).tolist()


def test_seeds_made_in_inference_mode_serve_later_questions():
    for wide, narrow in ((7, 5), (5, 7)):
        W = torch.arange(35.0, dtype=torch.float64).reshape(wide, narrow)
        x = torch.ones(narrow, dtype=torch.float64, requires_grad=True)
        y = W @ x.sin()
        expected = W * x.detach().cos()
        for mode in (torch.inference_mode(), torch.no_grad(), torch.enable_grad()):
            with mode:
                torch.testing.assert_close((d(y) / d(x)).value, expected)
                torch.testing.assert_close((d(y) / d(x))[:, :2].value, expected[:, :2])
