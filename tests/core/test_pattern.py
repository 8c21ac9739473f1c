"""Slots of passes and their places in the Jacobian: in equal steps where it is made of blocks, one by one elsewhere."""

import numpy as np
import pytest

from wrt._core.pattern import Compression, compress, listed


def tokens(t: int = 3, a: int = 2, b: int = 4) -> Compression:
    """(t, a) from (t, b), each token by itself: a pass for each number of a token."""
    color = np.arange(a).reshape(1, a)
    owners = np.arange(a).reshape(1, a, 1, 1), (a * np.arange(t)).reshape(1, 1, t, 1)
    return Compression("pull", (t * a, t * b), a, (t, a), (1, a, t, b), (color,), owners)


def written_out(compression: Compression) -> np.ndarray:
    start, strides = compression.strides
    return start + sum(step * along for step, along in zip(strides, np.indices(compression.box), strict=True))


def test_blocks_lie_in_equal_steps():
    compression = tokens()
    assert compression.strides == (0, (0, 12, 28, 1))
    np.testing.assert_array_equal(written_out(compression).reshape(-1), compression.flat[1])


def test_the_identity_is_a_diagonal():
    rows = np.arange(5)
    assert compress(rows, rows, np.zeros(5, dtype=int), (5, 5)).strides == (0, (0, 6))


def test_a_reversed_axis_is_not_laid():
    rows = np.arange(5)
    assert compress(rows, rows[::-1].copy(), np.zeros(5, dtype=int), (5, 5)).strides is None


def test_a_band_does_not():
    rows, columns = np.nonzero(np.abs(np.subtract.outer(np.arange(9), np.arange(9))) <= 1)
    assert compress(rows, columns, np.arange(9) % 3, (9, 9)).strides is None


@pytest.mark.parametrize("spot", [0, 1, 7, 8, 23, 40, 98, 99])
def test_one_owner_out_of_line_is_enough(spot):
    """Also one that a look at the edges does not show."""
    owner = np.arange(100)[None, :]
    assert listed(owner, np.zeros(100, dtype=int), (100, 100), "pull").strides == (0, (0, 101))
    wrong = owner.copy()
    wrong[0, spot] = (spot + 50) % 100
    assert listed(wrong, np.zeros(100, dtype=int), (100, 100), "pull").strides is None
