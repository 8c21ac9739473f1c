"""What a question means: one tensor at one moment, views of it, and itself."""

import threading

import numpy as np
import pytest
import torch

from tests._snapshot import unchanged
from tests.torch._rows import agree, row_loop
from wrt import d
from wrt.errors import NoPath


def x_(*shape: int) -> torch.Tensor:
    return torch.linspace(0.5, 2.0, int(np.prod(shape)), dtype=torch.float64).reshape(shape).clone().requires_grad_()


def test_the_identity_needs_no_gradient() -> None:
    for tensor in (torch.arange(3.0), x_(3), x_(3) * 2, x_(2, 2)[0], torch.tensor(1.5)):
        J = d(tensor) / d(tensor)
        assert torch.equal(J.value, torch.eye(tensor.numel(), dtype=tensor.dtype).reshape(tensor.shape * 2))
        assert J.connected
        assert J.certificate
    tensor = torch.arange(4.0)
    assert (d(tensor)[[1, 2]] / d(tensor)[1:]).value.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert not (d(tensor) / d(tensor) / d(tensor)).value.any()


def test_a_question_is_a_snapshot_of_both_sides() -> None:
    x = x_(3)
    h = x * 2
    J = d(h) / d(x)
    D = d(h)
    h.mul_(5)
    assert torch.equal(J.value, 2 * torch.eye(3, dtype=torch.float64))
    assert torch.equal((d(h) / d(x)).value, 10 * torch.eye(3, dtype=torch.float64))
    assert torch.equal((d(h) / D).value, 5 * torch.eye(3, dtype=torch.float64))


def test_an_element_is_total_and_a_view_used_on_the_way_is_itself_alone() -> None:
    x = x_(3)
    part = x[2]
    y = part * x[2]
    assert float(d(y) / d(x)[2]) == pytest.approx(2 * 2.0)
    assert float(d(y) / d(part)) == pytest.approx(2.0)


def test_views_taken_afterwards_mean_the_elements_of_their_base() -> None:
    x = x_(3, 4)
    y = torch.sin(x).sum(1)
    expected = row_loop(y, x)
    views = {
        "row": (x[1], expected[:, 1]),
        "column": (x[:, 2], expected[:, :, 2]),
        "transposed": (x.T, expected.transpose(1, 2)),
        "reshaped": (x.view(2, 6), expected.reshape(3, 2, 6)),
        "element": (x[2, 3], expected[:, 2, 3]),
        "strided": (x[::2, 1::2], expected[:, ::2, 1::2]),
        "expanded": (x[:, :1].expand(3, 4), expected[:, :, :1].expand(3, 3, 4)),
        "twice": (x[1:][:, 1:][0], expected[:, 1, 1:]),
    }
    for name, (view, want) in views.items():
        with unchanged(x, y):
            agree((d(y) / d(view)).value, want)
            assert "a view taken afterwards" in _explained(y, view), name


def _explained(y: torch.Tensor, view: torch.Tensor) -> str:
    J = d(y) / d(view)
    J.value
    return str(J.explain())


def test_a_view_of_a_leaf_that_is_a_view_itself() -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = (x**2).sum(0)
    agree((d(y) / d(x[1])).value, torch.diag(2 * x.detach()[1]))


def test_a_copy_is_not_a_view() -> None:
    x = x_(3)
    y = x**2
    with pytest.raises(NoPath):
        (d(y) / d(x.clone())).value
    with pytest.raises(NoPath):
        (d(y) / d(x[[0, 1]])).value


def test_proven_independence_is_exact_zeros() -> None:
    x = x_(3)
    y = x**2
    z = y * 3
    J = d(x) / d(z)
    assert torch.equal(J.value, torch.zeros(3, 3, dtype=torch.float64))
    assert not J.connected
    assert J.certificate
    assert torch.equal((d(y)[0] / d(z)).value, torch.zeros(3, dtype=torch.float64))
    assert torch.equal(J @ torch.ones(3), torch.zeros(3, dtype=torch.float64))


def test_a_structurally_impossible_entry_is_zero_and_never_nan() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    y = torch.sqrt(x)
    assert (d(y)[1] / d(x)).value.tolist() == [0.0, 0.5]
    assert (d(y) / d(x)).value.tolist() == [[float("inf"), 0.0], [0.0, 0.5]]


def test_a_value_that_is_nan_stays_nan() -> None:
    x = torch.tensor([-1.0, 4.0], requires_grad=True)
    y = torch.sqrt(x)
    assert np.isnan(float(d(y)[0] / d(x)[0]))
    assert (d(y)[1] / d(x)).value.tolist() == [0.0, 0.25]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
def test_empty_tensors_have_empty_derivatives(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, requires_grad=True)
    y = x * 2
    assert (d(y) / d(x)).value.shape == shape * 2
    assert (d(y) / d(x)).sparse().shape == (0, 0)
    z = torch.ones(3, requires_grad=True)
    assert (d(z * 2) / d(x)).value.shape == (3, *shape)


def test_zero_dimensional_tensors() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    y = x**3
    J = d(y) / d(x)
    assert J.shape == ()
    assert float(J) == 27.0
    assert float(d(y) / d(x) / d(x)) == 18.0
    assert float(J @ torch.tensor(2.0)) == 54.0
    assert float(J.diagonal()) == 27.0


def test_answers_live_where_x_lives_and_carry_no_history() -> None:
    x = x_(3).detach().float().requires_grad_()
    y = x.double() ** 2
    J = d(y) / d(x)
    assert J.dtype == torch.float32
    for answer in (J.value, (d(y)[0] / d(x)).value, torch.ones(3) @ J, J.diagonal()):
        assert answer.dtype == torch.float32
        assert not answer.requires_grad
    z = x.detach().requires_grad_()
    w = (z.double() ** 3).float()
    assert (d(w) / d(z)).value.dtype == torch.float32


def test_questions_from_many_threads() -> None:
    x = x_(8)
    y = torch.sin(x) @ torch.ones(8, 8, dtype=torch.float64)
    expected = row_loop(y, x)
    wrong: list[object] = []

    def ask() -> None:
        for k in range(20):
            if not torch.allclose((d(y)[k % 8] / d(x)).value, expected[k % 8]):
                wrong.append(k)
            if not torch.allclose((d(y) / d(x)).value, expected):
                wrong.append("all")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Tagged(torch.Tensor):
    """As libraries make them that carry more along with a tensor."""


def test_a_tensor_of_a_subclass_is_asked_about_like_any_other() -> None:
    numbers = x_(4).detach()
    x, plain = numbers.clone().as_subclass(Tagged).requires_grad_(), numbers.clone().requires_grad_()
    for f in (lambda x: x.sin() * x, lambda x: (x[1:] * x[:-1]).exp(), lambda x: x.sum() * x):
        expected = row_loop(f(plain), plain)
        J = d(f(x)) / d(x)
        agree(J.value, expected)
        agree(torch.from_numpy(J.sparse().toarray()), expected)
        agree(J[0].value, expected[0])
        agree(J @ torch.ones(4, dtype=torch.float64), expected.sum(-1))
