"""From sampled rows of known patterns to compressions that hold them; and that two rows of one pass never share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wrt._core.pattern import compress
from wrt._plan.patterns.guess import compression, guess, splits
from wrt._plan.patterns.lattice import Lattice
from wrt._plan.patterns.samples import Samples, spread_rows


def guessed(pattern, y, x):
    rows = spread_rows(y, 12)
    return guess(Samples(rows, pattern[rows]), y, x)


def stencil(shape, offsets, wrap=False):
    size = int(np.prod(shape))
    pattern = np.zeros((size, size), dtype=bool)
    for r in range(size):
        here = np.array(np.unravel_index(r, shape))
        for offset in offsets:
            there = here + offset
            if wrap or ((there >= 0) & (there < shape)).all():
                pattern[r, np.ravel_multi_index(tuple(there % shape), shape)] = True
    return pattern


FIVE = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]


def test_a_five_point_stencil_takes_five_passes():
    pattern = stencil((16, 16), FIVE)
    found = compression(guessed(pattern, (16, 16), (16, 16)))
    assert found.passes == 5
    assert set(found.flat[1]) == set(np.flatnonzero(pattern))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_flattened_or_transposed_stencil_is_the_same_stencil(order):
    pattern = stencil((12, 18), FIVE)
    rows = np.arange(216).reshape(12, 18).transpose(order).reshape(-1)
    found = compression(guessed(pattern[rows], (216,), (12, 18)))
    assert found.passes == 5


def test_nothing_is_guessed_where_every_row_touches_everything():
    assert guessed(np.ones((64, 64), dtype=bool), (64,), (64,)) is None


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(8, 14), st.integers(8, 14)),
    st.sets(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=6),
    st.booleans(),
)
def test_a_guess_that_holds_all_entries_tells_every_row_apart(shape, offsets, wrap):
    """Whatever was guessed: the coloring never puts two rows with a common column into one pass."""
    pattern = stencil(shape, sorted(offsets), wrap)
    found = guessed(pattern, shape, shape)
    if found is None:
        return
    compressed = compression(found)
    assert compressed is not None, "two rows of one pass share a column"
    rows, columns = found.entries()
    assert compressed.entries == len(set(zip(rows.tolist(), columns.tolist(), strict=True)))


@pytest.mark.parametrize("wrap", [False, True])
def test_a_five_point_stencil_is_told_entry_by_entry(wrap):
    pattern = stencil((10, 15), [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)], wrap)
    found = guessed(pattern, (10, 15), (10, 15))
    assert isinstance(found, Lattice)
    rows, columns = found.entries()
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [tuple(pair) for pair in np.argwhere(pattern).tolist()]


def test_two_rows_of_one_color_that_share_a_column_are_refused():
    assert compress(np.array([0, 1]), np.array([0, 0]), np.array([0, 0]), (2, 2)) is None
    assert compress(np.array([0, 1]), np.array([0, 0]), np.array([0, 1]), (2, 2)).passes == 2


def test_splits_follow_the_other_side():
    assert ((2, 32, 32), (2, 32, 32)) in list(splits((2048,), (2, 32, 32)))
    assert ((32, 32, 2), (2, 32, 32)) in list(splits((2048,), (2, 32, 32)))
