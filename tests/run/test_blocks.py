"""Jacobians with named axes: products in any order of any cuts of the axes between them, next to plain matrices."""

import numpy as np
import pytest
import torch

from wrt._backends.torch.arrays import TorchArrays
from wrt._run.blocks import Blocks, _common, _first, _new, _Shadow, add, dense, full, multiply

ARRAYS = TorchArrays()


def made(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def tokens(t, a, b):
    """(t, a) from (t, b), each token by itself."""
    T, A, B = _new((t, a, b))
    return Blocks(made(t, a, b), (T, A, B), (T, A), (T, B))


def heads(t, h, c):
    """(t, h, c) from (t', h, c'), heads apart."""
    T, C, S, H, E = _new((t, c, t, h, c))
    return Blocks(made(t, c, t, h, c), (T, C, S, H, E), (T, H, C), (S, H, E))


def test_a_diagonal_is_written_out():
    one = tokens(3, 2, 4)
    expected = np.zeros((3, 2, 3, 4))
    for k in range(3):
        expected[k, :, k] = one.array[k].numpy()
    np.testing.assert_array_equal(dense(ARRAYS, one).numpy(), expected.reshape(6, 12))


@pytest.mark.parametrize("blocks", [tokens(3, 4, 4), heads(2, 3, 2), full(made(12, 12), 12, 12)])
@pytest.mark.parametrize("lie", [torch.clone, lambda a: a.T.contiguous().T, lambda a: torch.cat([a, a])[12:]])
def test_blocks_on_top_of_a_matrix_however_it_lies(blocks, lie):
    matrix = made(12, 12)
    expected = matrix + dense(ARRAYS, blocks)
    np.testing.assert_array_equal(add(ARRAYS, lie(matrix), blocks).numpy(), expected.numpy())


@pytest.mark.parametrize(
    "chain",
    [
        [tokens(4, 6, 6), tokens(4, 6, 6)],
        [tokens(4, 5, 6), heads(4, 2, 3), tokens(4, 6, 2)],
        [tokens(4, 5, 6), heads(4, 3, 2), heads(4, 2, 3), tokens(4, 6, 7), full(made(28, 9), 28, 9)],
        [full(made(3, 24), 3, 24), tokens(4, 6, 6), heads(4, 2, 3)],
        [tokens(6, 4, 4), full(made(24, 24), 24, 24), heads(4, 2, 3)],
        [tokens(4, 6, 6), tokens(6, 4, 4), tokens(8, 3, 3)],
    ],
)
def test_a_product_is_that_of_the_matrices(chain):
    expected = dense(ARRAYS, chain[0])
    for one in chain[1:]:
        expected = expected @ dense(ARRAYS, one)
    found = multiply(ARRAYS, chain)
    torch.testing.assert_close(dense(ARRAYS, found), expected, rtol=1e-12, atol=1e-12)


def test_a_network_for_each_token_stays_one():
    found = multiply(ARRAYS, [tokens(50, 4, 6), tokens(50, 6, 5)])
    assert found.array.numel() == 50 * 4 * 5


def test_the_narrow_side_is_multiplied_first():
    a, b, c, e = _new((100, 2, 100, 3))
    chain = [_Shadow(frozenset((x, y)), (x,), (y,)) for x, y in ((a, b), (b, c), (c, e))]
    assert _first(chain) == 1  # 2 x 100 x 3, then 100 x 2 x 3: not 100 x 2 x 100 first


def test_lengths_that_both_sides_are_made_of():
    assert _common([32, 32], [32, 4, 8]) == [32, 4, 8]
    assert _common([4, 1, 6], [2, 12]) == [2, 2, 6]
    assert _common([4, 6], [6, 4]) is None
    assert _common([4], [5]) is None
