"""An axis that follows another: same index, windows, strides, dilation, wrapping; and how far apart rows may share a pass."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wrt._plan.patterns.samples import spread_rows
from wrt._plan.patterns.structure import Link, column_period, follow, period, shifted
from wrt._plan.patterns.structure import touched as pairs


def touched(index, length, offsets, up=1, down=1, wrap=False):
    table = np.zeros((len(index), length), dtype=bool)
    for s, r in enumerate(index):
        spots = r * up // down + np.asarray(offsets)
        spots = spots % length if wrap else spots[(spots >= 0) & (spots < length)]
        table[s, spots] = True
    return table


def seen_in(table):
    return pairs(*np.nonzero(table), *table.shape)


@pytest.mark.parametrize(
    ("of_y", "of_x", "offsets", "up", "down", "wrap"),
    [
        (50, 50, (0,), 1, 1, False),
        (50, 50, (-1, 0, 1), 1, 1, False),
        (50, 50, (-1, 0, 1), 1, 1, True),
        (50, 50, (-4, -2, 0, 2, 4), 1, 1, False),
        (25, 50, (-1, 0, 1), 2, 1, False),
        (50, 25, (0, 1), 1, 2, False),
        (24, 100, (3,), 2, 1, False),
        (44, 50, (0, 1, 2, 3, 4, 5, 6), 1, 1, False),
    ],
)
def test_the_link_behind_the_samples_is_found(of_y, of_x, offsets, up, down, wrap):
    index = spread_rows((of_y,), 12)
    link = follow(0, 0, index, seen_in(touched(index, of_x, offsets, up, down, wrap)), (of_y, of_x))
    assert link is not None
    assert (link.up, link.down, link.offsets, link.wrap) == (up, down, offsets, wrap)


def test_an_axis_that_is_touched_everywhere_follows_nothing():
    index = spread_rows((50,), 12)
    assert follow(0, 0, index, seen_in(np.ones((len(index), 50), dtype=bool)), (50, 50)) is None


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("length", [12, 13, 15, 16, 31])
@pytest.mark.parametrize("offsets", [(0,), (-1, 0, 1), (-2, 0, 2), (0, 5)])
def test_rows_of_one_pass_never_meet_and_no_smaller_period_does(length, offsets, wrap):
    link = Link(0, 0, 1, 1, offsets, wrap)

    def meets(k):
        for color in range(k):
            rows = np.arange(color, length, k)
            counts = touched(rows, length, offsets, wrap=wrap).sum(0)
            if (counts > 1).any():
                return True
        return False

    found = period(link, length, length)
    assert not meets(found)
    assert found == 1 or meets(found - 1) or found <= len(offsets)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([(1, 1, False), (1, 1, True), (2, 1, False), (3, 1, False), (1, 2, False), (1, 3, False), (2, 1, True)]),
    st.integers(1, 14),
    st.integers(1, 20),
    st.sets(st.integers(-4, 4), min_size=1, max_size=4),
)
def test_rows_of_one_pass_never_meet_whatever_the_stride(kind, length, of_x, offsets):
    up, down, wrap = kind
    of_x = length * up if wrap else of_x
    offsets = tuple(sorted(offsets))
    k = period(Link(0, 0, up, down, offsets, wrap), length, of_x)
    for color in range(k):
        rows = np.arange(color, length, k)
        assert touched(rows, of_x, offsets, up, down, wrap).sum(0).max(initial=0) <= 1
    if up == down:  # a gap is a gap: no smaller step will do
        spots = [{(r + o) % of_x if wrap else r + o for o in offsets} for r in range(length)]
        clash = {b - a for a in range(length) for b in range(a + 1, length) if spots[a] & spots[b]}
        assert k == next((s for s in range(1, length) if clash.isdisjoint(range(s, length, s))), length)


@pytest.mark.parametrize("offsets", [(0,), (-1, 0, 1), (-2, 0, 2)])
def test_columns_of_one_pass_are_never_touched_by_one_row(offsets):
    table = touched(np.arange(20), 20, offsets)
    k = column_period(Link(0, 0, 1, 1, offsets, False), 20)
    assert all(table[:, color::k].sum(1).max() <= 1 for color in range(k))


def test_an_axis_that_is_always_equally_far_follows_the_nearest():
    index = np.array([0, 3, 5, 6])
    seen = touched(index, 8, [1])
    assert shifted(1, (index, index, 0 * index), seen_in(seen), (7, 7, 7)) == Link(1, 1, 1, 1, (1,), wrap=False)
    assert shifted(0, (0 * index,), seen_in(seen), (7,)) is None  # samples that all stand at one place tell nothing
    seen[2, 0] = True
    assert shifted(1, (index, index), seen_in(seen), (7, 7)) is None
