"""The same Jacobian as a dense array, as nonzeros and as factors: what a proof reads from each is the same."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from wrt import d
from wrt._run.forms import Dense, Factored, Sparse


def question(m: int, n: int, dtype: torch.dtype = torch.float64):
    x = torch.ones(n, dtype=dtype, requires_grad=True)
    return (d(x.sum() * torch.ones(m, dtype=dtype)) / d(x)).ask


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.floats(0, 1), st.integers(0, 99))
def test_a_proof_reads_the_same_from_every_form(m, n, width, share, seed):
    rng = np.random.default_rng(seed)
    last, first = rng.normal(size=(m, width)) * (rng.random((m, width)) < share), rng.normal(size=(width, n))
    matrix, weights, ask = last @ first, rng.normal(size=m), question(m, n)
    forms = (
        Dense(ask, torch.from_numpy(matrix)), Sparse(ask, csr_array(matrix)),
        Factored(ask, torch.from_numpy(last), torch.from_numpy(first)),
    )  # fmt: skip
    for form in forms:
        sums, sizes = form.weighted_columns(weights)
        np.testing.assert_allclose(sums, weights @ matrix, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(sizes, np.linalg.norm(matrix, axis=0), rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(form.dense().numpy(), matrix, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(form.csr().toarray(), matrix, rtol=1e-12, atol=1e-12)
        if m == n:
            np.testing.assert_allclose(form.diagonal().numpy(), matrix.diagonal(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(7, 3), (40_000, 2)])
def test_sums_of_single_precision_leave_no_more_than_a_few_roundings(shape):
    generator = torch.Generator().manual_seed(0)
    array = torch.randn(shape, generator=generator)
    weights = np.random.default_rng(0).normal(size=shape[0])
    sums, sizes = Dense(question(*shape, torch.float32), array).weighted_columns(weights)
    exact = array.double().numpy()
    np.testing.assert_allclose(sizes, np.linalg.norm(exact, axis=0), rtol=1e-4)  # they only set a bound
    assert (np.abs(sums - weights @ exact) <= 8 * 2.0**-23 * np.linalg.norm(exact, axis=0)).all()
