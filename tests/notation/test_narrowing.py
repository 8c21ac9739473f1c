"""`J[...]` narrows without computing, and means what NumPy means on the finished array."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.test_index import indices
from wrt import d
from wrt.errors import WrongIndex

GENERATOR = torch.Generator().manual_seed(4)
MATRIX = torch.randn(6, 6, generator=GENERATOR, dtype=torch.float64)


def question(y_shape: tuple[int, ...], x_shape: tuple[int, ...]) -> tuple[Any, Any, np.ndarray]:
    """y, x and their Jacobian, which is known in closed form: y = tanh(M x)."""
    n, m = int(np.prod(x_shape)), int(np.prod(y_shape))
    x = torch.linspace(-1, 1, n, dtype=torch.float64).reshape(x_shape).requires_grad_()
    flat = torch.tanh(MATRIX[:m, :n] @ x.reshape(-1))
    jacobian = ((1 - flat.detach() ** 2)[:, None] * MATRIX[:m, :n]).numpy().reshape(y_shape + x_shape)
    return flat.reshape(y_shape), x, jacobian


SHAPES = [((2, 3), (3, 2)), ((6,), (5,)), ((), (2, 2)), ((3, 2), ()), ((1, 3), (2, 1, 2)), ((2, 0), (3,)), ((), ())]


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_lazy_equals_eager_for_every_index(data: st.DataObject) -> None:
    y_shape, x_shape = data.draw(st.sampled_from(SHAPES))
    y, x, expected = question(y_shape, x_shape)
    held_for_every_index(data, d(y) / d(x), expected, len(y_shape))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_second_derivative_is_narrowed_on_each_of_its_sides(data: st.DataObject) -> None:
    y_shape, x_shape = data.draw(st.sampled_from([((2, 3), (3, 2)), ((), (2, 2)), ((2,), ()), ((2, 0), (3,))]))
    y, x, jacobian = question(y_shape, x_shape)
    m, n = y.numel(), x.numel()
    # tanh'' = -2 tanh tanh', and the Jacobian holds tanh' once already
    second = np.einsum("i,ij,ik->ijk", -2 * y.detach().numpy().reshape(m), jacobian.reshape(m, n), MATRIX[:m, :n].numpy())
    held_for_every_index(data, d(y) / d(x) / d(x), second.reshape(y_shape + x_shape + x_shape), len(y_shape))


def held_for_every_index(data: st.DataObject, J: Any, expected: np.ndarray, of_y: int) -> None:
    if data.draw(st.booleans()):
        J, expected = J.T, np.moveaxis(expected, range(of_y), range(expected.ndim - of_y, expected.ndim))
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(indices(expected.shape))
        try:
            expected = np.asarray(expected[index])
        except IndexError:
            with pytest.raises(WrongIndex):
                J[index]
            return
        J = J[index]
        assert J.shape == expected.shape
        if expected.size > 3000:
            break
    np.testing.assert_allclose(J.numpy(), expected, rtol=1e-12, atol=0)
    assert J.value.shape == expected.shape
    assert J.value.dtype == torch.float64


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_an_index_on_either_side_means_the_same_as_on_the_jacobian(data: st.DataObject) -> None:
    y, x, expected = question((2, 3), (3, 2))
    of_y, of_x = data.draw(indices((2, 3))), data.draw(indices((3, 2)))
    grid = np.arange(36).reshape(6, 6)
    try:
        rows, columns = np.arange(6).reshape(2, 3)[of_y], np.arange(6).reshape(3, 2)[of_x]
    except IndexError:
        return
    J = d(y)[of_y] / d(x)[of_x]
    assert J.shape == rows.shape + columns.shape
    picked = grid[rows.reshape(-1)][:, columns.reshape(-1)]
    np.testing.assert_allclose(J.numpy(), expected.reshape(-1)[picked].reshape(J.shape), rtol=1e-12, atol=0)


def test_a_view_taken_afterwards_narrows_like_its_base() -> None:
    y, x, expected = question((2, 3), (3, 2))
    J = d(y) / d(x.T[0])
    np.testing.assert_allclose(J.numpy(), expected[:, :, :, 0], rtol=1e-12)
    np.testing.assert_allclose(J[1, :, [2, 0]].numpy(), expected[:, :, :, 0][1, :, [2, 0]], rtol=1e-12)
    np.testing.assert_allclose(J.T[1:, 0].numpy(), np.moveaxis(expected[:, :, :, 0], 2, 0)[1:, 0], rtol=1e-12)


def test_narrowing_computes_nothing() -> None:
    y, x, _ = question((2, 3), (3, 2))
    for J in (d(y) / d(x), (d(y) / d(x))[1], (d(y) / d(x))[[0, 1], :, [0, 1]], (d(y) / d(x)).T[0]):
        assert J.certificate is None
        assert "not computed" in repr(J)
