"""Array operations mean what NumPy says: on numbers that NumPy sees, on a device, and inside `jit`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt._backends.jax import arrays as file
from wrt._backends.jax.arrays import JaxArrays, OneHot
from wrt._core import numbers

ARRAYS = JaxArrays()
A = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
B = np.random.default_rng(1).normal(size=(6, 5)).astype("float32")
PLACES = np.array([3, 0, 17, 9])


@pytest.fixture
def like():
    return wrt.trace(lambda x: x * 1.0, jnp.zeros((2, 3)))._one.output


def scattered(shape, places, values):
    whole = np.zeros(shape, "float32")
    whole.reshape(-1)[places] = values
    return whole


def sheet(like, blocks, *, columns):
    made = ARRAYS.sheet((4, 6), like)
    for start, block in blocks:
        made.write(start, block, columns=columns)
    return made.array()


def spread(*columns):
    """(4, 2, 3): the given columns at flat places 0 to 5, None for zeros."""
    return np.stack([0 * A[:, 0] if one is None else one for one in columns], 1).reshape(4, 2, 3)


OPERATIONS = {
    "reshape": (lambda like, a, b: ARRAYS.reshape(a, (2, -1)), A.reshape(2, -1)),
    "reshape to the same": (lambda like, a, b: ARRAYS.reshape(a, (4, -1)), A),
    "transpose": (lambda like, a, b: ARRAYS.transpose(a), A.T),
    "permute": (
        lambda like, a, b: ARRAYS.permute(ARRAYS.reshape(a, (2, 2, 6)), (2, 0, 1)),
        A.reshape(2, 2, 6).transpose(2, 0, 1),
    ),
    "take rows": (lambda like, a, b: ARRAYS.take(a, np.array([2, 0, 2]), 0), A[[2, 0, 2]]),
    "take columns": (lambda like, a, b: ARRAYS.take(a, np.array([5, 1]), 1), A[:, [5, 1]]),
    "concat": (lambda like, a, b: ARRAYS.concat([a, a[:1]], 0), np.concatenate([A, A[:1]])),
    "scatter": (lambda like, a, b: ARRAYS.scatter((3, 6), PLACES, a[0, :4], like), scattered((3, 6), PLACES, A[0, :4])),
    "strided": (
        lambda like, a, b: ARRAYS.strided((5, 8), a[:2, :3], 3, (16, 2)),
        scattered((5, 8), [3, 5, 7, 19, 21, 23], A[:2, :3].reshape(-1)),
    ),
    "matmul": (lambda like, a, b: ARRAYS.matmul(a, b), A @ B),
    "contract": (lambda like, a, b: ARRAYS.contract("ij,jk->ki", a, b), (A @ B).T),
    "total": (lambda like, a, b: ARRAYS.total(a, 1), A.sum(1)),
    "abs": (lambda like, a, b: ARRAYS.abs(a), np.abs(A)),
    "add to the diagonal": (lambda like, a, b: ARRAYS.add_to_diagonal(a, 2.0), A + 2 * np.eye(4, 6, dtype="f")),
    "cast": (
        lambda like, a, b: ARRAYS.cast(ARRAYS.cast_like(a, jnp.zeros(1, "float16")), like),
        A.astype("float16").astype("float32"),
    ),
    "spread": (
        lambda like, a, b: ARRAYS.spread(like, np.array([5, 1, 1]), a[:, :3]),
        spread(None, A[:, 1] + A[:, 2], None, None, None, A[:, 0]),
    ),
    "spread, each once": (
        lambda like, a, b: ARRAYS.spread(like, np.array([5, 1]), a[:, :2]),
        spread(None, A[:, 1], None, None, None, A[:, 0]),
    ),
    "place": (
        lambda like, a, b: ARRAYS.place(a, (slice(None), np.array([4, 2])), b[:4, :2]),
        np.stack([*A[:, :2].T, B[:4, 1], A[:, 3], B[:4, 0], A[:, 5]], 1),
    ),
    "rows of a sheet": (lambda like, a, b: sheet(like, [(1, a[1:]), (0, a[:1])], columns=False), A),
    "columns of a sheet": (lambda like, a, b: sheet(like, [(0, a.T[:2]), (2, a.T[2:])], columns=True), A),
    "an empty sheet": (lambda like, a, b: sheet(like, [], columns=True), 0 * A),
    "zeros": (lambda like, a, b: ARRAYS.zeros((4, 6), like) + a, A),
    "from NumPy": (lambda like, a, b: ARRAYS.from_numpy(np.arange(6.0), like) * a, np.arange(6.0, dtype="f") * A),
}


@pytest.mark.parametrize("where", ["seen", "on a device", "traced"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_numpy_s(name, where, like, monkeypatch):
    run, truth = OPERATIONS[name]
    if where != "seen":
        monkeypatch.setattr(file, "on_cpu", lambda: False)
    program = (lambda a, b: run(like, a, b)) if where != "traced" else jax.jit(lambda a, b: run(like, a, b))
    found = program(jnp.asarray(A), jnp.asarray(B))
    assert isinstance(found, jax.Array)
    assert found.shape == truth.shape
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16"])
def test_weighted_columns_are_summed_in_double_precision(on_cpu, dtype, like, monkeypatch):
    monkeypatch.setattr(file, "on_cpu", lambda: on_cpu)
    monkeypatch.setattr(numbers, "MANY_NUMBERS", 700)
    array = np.random.default_rng(0).normal(size=(5000, 3)) * [1.0, 1e-3, 1e4]
    given = jnp.asarray(array + 1j * array[::-1] if dtype == "complex64" else array, dtype)
    wide = np.asarray(given).astype("complex128" if dtype == "complex64" else "float64")
    weights = np.random.default_rng(1).normal(size=5000)
    sums, norms = ARRAYS.weighted_columns(weights, given)
    np.testing.assert_allclose(norms, np.linalg.norm(wide, axis=0), rtol=1e-13)
    assert (np.abs(sums - weights @ wide) <= 1e-13 * norms).all()
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("on_cpu", [True, False])
def test_nonzeros_are_told_from_noise_and_a_nan_counts(on_cpu, monkeypatch):
    monkeypatch.setattr(file, "on_cpu", lambda: on_cpu)
    lines = jnp.array([[1.0, 1e-9, 0.0], [np.nan, 0.0, 1e-3], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(ARRAYS.nonzero(lines, 0.0), [[1, 1, 0], [1, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(ARRAYS.nonzero(lines, 1e-6), [[1, 0, 0], [1, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(ARRAYS.isfinite(lines), np.isfinite(lines))
    assert not ARRAYS.all_finite(lines)
    assert ARRAYS.all_finite(jnp.full((3,), 1e30))


@pytest.mark.parametrize(
    ("setting", "tf32", "rounding"),
    [(None, True, 2.0**-11), (None, False, 2.0**-23), ("highest", True, 2.0**-23), ("tensorfloat32", True, 2.0**-11),
     ("float32", True, 2.0**-23), ("BF16_BF16_F32", True, 2.0**-8)],
)  # fmt: skip
def test_products_on_a_gpu_round_as_its_setting_says(setting, tf32, rounding, like, monkeypatch):
    monkeypatch.setattr(file.compat, "has_tf32", lambda: tf32)
    file._rounding_of_products.cache_clear()
    assert ARRAYS.precision(like) == 2.0**-23
    monkeypatch.setattr(file, "on_cpu", lambda: False)
    with jax.default_matmul_precision(setting):
        assert ARRAYS.precision(like) == rounding
    file._rounding_of_products.cache_clear()


def test_seeds_are_known_by_their_places(like):
    seeds = ARRAYS.one_hot(like, np.array([4, 0]))
    assert isinstance(seeds, OneHot)
    assert (seeds.shape, seeds.ndim) == ((2, 2, 3), 3)
    np.testing.assert_array_equal(np.asarray(seeds).reshape(2, 6), np.eye(6)[[4, 0]])
    np.testing.assert_array_equal(jax.jit(jax.vmap(file.written_out))(seeds), np.asarray(seeds))
