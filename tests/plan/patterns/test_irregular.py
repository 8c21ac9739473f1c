"""Colors of irregular patterns: no two lines of one color share an entry; and patterns composed of what operations say."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from wrt._core.flow import LocalMap, LocalMaps
from wrt._core.pattern import NOBODY, compress
from wrt._plan.colored import color
from wrt._plan.patterns.irregular import color_rows, compose


def random_pattern(m, n, share, seed):
    return csr_array(np.random.default_rng(seed).random((m, n)) < share)


@settings(max_examples=40, deadline=None)
@given(st.integers(5, 60), st.integers(5, 60), st.floats(0.0, 0.3), st.integers(0, 99))
def test_two_rows_of_one_color_share_no_column(m, n, share, seed):
    pattern = random_pattern(m, n, share, seed)
    color = color_rows(pattern, below=m + 1)
    assert color is not None
    dense = pattern.toarray()
    assert ((color == NOBODY) == ~dense.any(1)).all()
    for k in range(int(color.max(initial=-1)) + 1):
        assert dense[color == k].sum(0).max() <= 1
        assert (color == k).any()
    coo = pattern.tocoo()
    if pattern.nnz:
        assert compress(coo.row.astype(np.int64), coo.col.astype(np.int64), color, (m, n)).entries == pattern.nnz


def test_an_arrow_has_no_coloring_of_rows_worth_having():
    dense = np.eye(50, dtype=bool)
    dense[0] = dense[:, 0] = True
    assert color_rows(csr_array(dense), below=25) is None


def test_columns_are_colored_where_rows_cannot_be():
    dense = np.eye(60, dtype=bool)
    dense[:, 0] = True  # every row meets every other; every row has two entries
    plan = color(csr_array(dense), instead_of=60, push_cost=1.3)
    assert plan.way == "push"
    assert plan.passes == 2
    assert "2 colors of columns instead of 60 passes" in plan.because


def test_a_path_takes_as_many_colors_as_its_fullest_column():
    dense = np.eye(90, dtype=bool) | np.eye(90, k=1, dtype=bool) | np.eye(90, k=-1, dtype=bool)
    order = np.random.default_rng(0).permutation(90)
    assert color_rows(csr_array(dense[order][:, order]), below=90).max() + 1 <= 4


def test_local_maps_are_multiplied_along_every_way_and_added_up():
    rng = np.random.default_rng(3)
    A, B, C = (rng.random(s) < 0.2 for s in ((7, 9), (9, 5), (9, 5)))
    maps = [(0, 1, A), (1, 2, B), (1, 3, C), (2, 3, np.eye(5, dtype=bool))]
    local = LocalMaps((7, 9, 5, 5), tuple(LocalMap(a, b, np.nonzero(M)) for a, b, M in maps))
    expected = (A.astype(int) @ (B.astype(int) + C)) > 0
    rows, columns = np.array([6, 0, 3]), np.array([1, 4])
    np.testing.assert_array_equal(compose(local, np.arange(7), np.arange(5), most=1.0).toarray(), expected)
    found = compose(local, rows, columns, most=1.0).toarray()
    np.testing.assert_array_equal(found, expected[np.ix_(rows, columns)])


def test_a_pattern_that_fills_up_is_given_up():
    local = LocalMaps((30, 30), (LocalMap(0, 1, np.nonzero(np.ones((30, 30)))),))
    assert compose(local, np.arange(30), np.arange(30)) is None
