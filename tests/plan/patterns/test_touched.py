"""Pairs of a sample and an index that it touches tell what the table of them tells."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from wrt._plan.patterns.structure import Link, touched

TABLES = st.tuples(st.integers(1, 5), st.integers(1, 9)).flatmap(lambda shape: arrays(bool, shape))


@settings(max_examples=200, deadline=None)
@given(TABLES, st.randoms(use_true_random=False))
def test_pairs_tell_what_the_table_tells(table, chance):
    table[:, 0] |= ~table.any(1)  # every sample touches something
    pairs = list(zip(*np.nonzero(table), strict=True))
    chance.shuffle(pairs)
    pairs += pairs[:2]
    seen = touched(*np.array(pairs).T, *table.shape)
    assert [seen.sample.tolist(), seen.index.tolist()] == [each.tolist() for each in np.nonzero(table)]
    assert seen.everything == table.all()
    assert seen.counts.tolist() == table.sum(1).tolist()
    same = (table == table[0]).all()
    assert (seen.alike is not None) == same
    assert not same or seen.alike.tolist() == np.flatnonzero(table[0]).tolist()
    assert np.allclose(seen.centers, [np.flatnonzero(row).mean() for row in table])


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.integers(-15, 15))
def test_rows_that_touch_something_inside_are_those_of_a_loop(of_y, of_x, up, down, offset):
    link = Link(0, 0, up, down, (offset,), wrap=False)
    expected = [row for row in range(of_y) if 0 <= row * up // down + offset < of_x]
    assert list(range(of_y))[link.inside(offset, of_y, of_x)] == expected
