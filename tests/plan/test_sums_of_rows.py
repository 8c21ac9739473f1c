"""Irregular patterns behind operations that no rule knows: found by sums of rows, and proven like all others."""

import numpy as np
import pytest
import torch

from tests.plan.problems import row_loop
from wrt import d
from wrt._plan import plans


class Sealed(torch.autograd.Function):
    """A sparse matrix times x, as one operation of the user's own: nothing tells what it mixes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows, columns, values, x, size):
        return torch.zeros(size, dtype=x.dtype).index_add(0, rows, values * x[columns])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:4])

    @staticmethod
    def backward(ctx, g):
        rows, columns, values, x = ctx.saved_tensors
        return None, None, None, torch.zeros_like(x).index_add(0, columns, values * g[rows]), None


def scattered(m, n, entries, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(m), entries)
    columns = np.concatenate([rng.choice(n, entries, replace=False) for _ in range(m)])
    values = rng.uniform(0.5, 2, len(rows)) * rng.choice([-1, 1], len(rows))
    return tuple(map(torch.from_numpy, (rows, columns, values)))


def f(matrix, x, m):
    return torch.tanh(Sealed.apply(*matrix, x.sin(), m))


def asked(matrix, m, n, seed=0):
    x = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    return f(matrix, x, m), x


def sums(J):
    return sum(step.passes for step in J.explain().steps if step.what == "sums of rows")


@pytest.mark.parametrize(("m", "n", "entries"), [(600, 600, 2), (600, 450, 2), (400, 800, 3)])
def test_sums_of_rows_tell_what_no_rule_does(m, n, entries):
    matrix = scattered(m, n, entries)
    for seed in range(2):
        y, x = asked(matrix, m, n, seed)
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
        assert J.explain().strategy == "colored"
        assert "sums of rows leave at most" in J.explain().because
        assert J.certificate
        if seed:  # the pattern is known by now
            assert J.explain().passes < 20
            assert not sums(J)
        else:
            assert 0 < sums(J) < min(m, n) / 4
            assert not J.explain().fallbacks


def test_the_nonzeros_alone_take_no_more():
    y, x = asked(scattered(600, 600, 2), 600, 600)
    J = d(y) / d(x)
    found = J.sparse()
    np.testing.assert_allclose(found.toarray(), row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert found.nnz == 1200
    assert sums(J)


def test_rows_and_columns_that_were_selected():
    y, x = asked(scattered(900, 700, 2), 900, 700)
    J = d(y)[100:] / d(x)[50:]
    torch.testing.assert_close(J.value, row_loop(y, x)[100:, 50:], rtol=1e-12, atol=1e-12)
    assert sums(J)


def test_a_matrix_that_fills_up_is_not_probed():
    y, x = asked(scattered(400, 400, 40), 400, 400)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.explain().strategy != "colored"
    assert not sums(J)


def test_entries_that_cancel_in_a_sum_are_found_missing(monkeypatch):
    """Weights that are all alike, and two rows of one class that are each other's opposite: the sum hides them."""
    monkeypatch.setattr(plans, "random_signs", lambda k, m, seed: np.ones((k, m)))
    rows, columns, values = scattered(600, 600, 2)
    hidden = [torch.tensor([40, 47]), torch.tensor([300, 300]), torch.tensor([1.0, -1.0]).double()]
    free = columns != 300
    matrix = [torch.cat([one[free], more]) for one, more in zip((rows, columns, values), hidden, strict=True)]
    x = torch.zeros(600, dtype=torch.float64, requires_grad=True)  # every slope of sin and tanh is one here, or nearly so
    y = Sealed.apply(*matrix, x.sin(), 600)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert sums(J)
    assert "column 300 swept alone" in str(J.certificate)
