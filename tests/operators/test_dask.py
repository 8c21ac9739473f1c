"""Linear algebra on a dask array of the Jacobian: dask's own functions, block by block."""

import numpy as np
import pytest

from tests.operators._problems import decaying, matrix
from wrt import d

dask = pytest.importorskip("dask.array", reason="dask is not installed")


def test_a_sketch_of_the_singular_values_and_a_trace() -> None:
    y, x = decaying(120, 120)
    J = (d(y) / d(x)).dask(chunks=(40, 120))
    truth = matrix(y, x)
    _, s, _ = dask.linalg.svd_compressed(J, k=3, n_power_iter=6, seed=0)
    np.testing.assert_allclose(s.compute(scheduler="synchronous"), 0.9 ** np.arange(3), rtol=1e-4)
    assert float(dask.trace(J).compute(scheduler="synchronous")) == pytest.approx(np.trace(truth))
    gram = (J.T @ J).compute(scheduler="synchronous")
    np.testing.assert_allclose(gram, (d(y) / d(x)).gram().numpy(), rtol=1e-9, atol=1e-12)


def test_least_squares_by_blocks() -> None:
    y, x = decaying(90, 30)
    J = (d(y) / d(x)).dask(chunks=(30, 30))
    b = dask.ones(90, chunks=30)
    step = dask.linalg.lstsq(J, b)[0].compute(scheduler="synchronous")
    np.testing.assert_allclose(step, (d(y) / d(x)).solve(np.ones(90)).value.numpy(), rtol=1e-6, atol=1e-9)
