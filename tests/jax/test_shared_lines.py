"""Lines that share passes: right, proven, and compiled once for every run of the same code."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from tests.jax._wrong_batch import doubled
from wrt import d
from wrt._backends.jax.reach import RULES


def burgers(u):
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return jnp.concatenate([u[:1], inner, u[-1:]])


def brusselator(z):
    def laplace(a):
        return jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1) - 4 * a

    u, v = z[0], z[1]
    return jnp.stack([1 + u * u * v - 4 * u + 0.1 * laplace(u), 3 * u - u * u * v + 0.1 * laplace(v)])


def samples(x):
    w = jnp.asarray(np.random.default_rng(3).normal(size=(8, 8)))
    return jnp.tanh(x @ w.astype(x.dtype))


PROBLEMS = {"burgers": (burgers, (120,)), "brusselator": (brusselator, (2, 12, 12)), "samples": (samples, (16, 8))}


@pytest.fixture(autouse=True)
def planned(planned_from_the_start):
    """Also where a direct sweep would be as quick."""


def asked(t):
    return d(t.output) / d(t.inputs[0])


def truth_of(f, x):
    return np.asarray(jax.jit(jax.jacrev(f))(x)).reshape(x.size, x.size)


@pytest.mark.parametrize("name", PROBLEMS)
def test_first_and_later_answers_are_those_of_a_row_loop(name):
    f, shape = PROBLEMS[name]
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=shape))
        t = wrt.trace(f, x)
        truth = truth_of(f, x)
        for _ in range(2):
            J = asked(t)
            np.testing.assert_allclose(np.asarray(J.value).reshape(truth.shape), truth, atol=1e-13)
            assert J.value.shape == (*shape, *shape)
            assert J.T.value.shape == (*shape, *shape)
            assert J.certificate.passed
            assert J.explain().to_dict()["passes"] <= 30
        for _ in range(2):
            J = asked(t)
            np.testing.assert_allclose(J.sparse().toarray(), truth, atol=1e-13)
            np.testing.assert_allclose(np.asarray(J.diagonal()).reshape(-1), np.diag(truth), atol=1e-13)


def test_the_next_run_of_the_same_code_is_proven_again_and_compiles_nothing(caplog):
    first, second = (jnp.asarray(np.random.default_rng(k).normal(size=120), "float32") for k in (0, 1))
    for _ in range(3):
        asked(wrt.trace(burgers, first)).value
    truth = truth_of(burgers, second)
    with jax.log_compiles():
        J = asked(wrt.trace(burgers, second))
        np.testing.assert_allclose(J.value, truth, atol=1e-5)
    assert "Compiling" not in caplog.text
    assert J.certificate


def test_a_wrong_batching_rule_in_a_stencil_is_found_by_the_unbatched_pull():
    x = jnp.linspace(0.5, 1.5, 120)
    J = asked(wrt.trace(lambda x: doubled(burgers(x)), x))
    np.testing.assert_allclose(J.value, 2 * truth_of(burgers, x), atol=1e-5)
    assert J.certificate.passed


def test_a_pattern_that_misses_a_neighbor_is_found_by_the_proof(monkeypatch):
    whole = RULES["slice"]

    def forgetful(op):
        (marks,) = whole(op)
        return [marks & (op.params["start_indices"][0] != 2)]  # u[2:] is forgotten

    monkeypatch.setitem(RULES, "slice", forgetful)
    x = jnp.asarray(np.random.default_rng(0).normal(size=120), "float32")
    J = asked(wrt.trace(burgers, x))
    np.testing.assert_allclose(J.value, truth_of(burgers, x), atol=1e-5)
    assert J.certificate.passed
    assert J.explain().to_dict()["passes"] > 4


def test_an_entry_that_is_not_finite_is_swept_alone():
    x = jnp.linspace(0.0, 1.0, 120)
    J = asked(wrt.trace(lambda x: burgers(jnp.sqrt(x)), x))
    found = np.asarray(J.value)
    assert not np.isfinite(found[:3, 0]).all()
    assert np.isfinite(found[:, 1:]).all()
    assert not found[5:, 0].any()


def test_a_mesh_is_colored_by_its_edges():
    generator = np.random.default_rng(0)
    nodes = 300
    neighbors = (np.arange(nodes)[:, None] + generator.integers(1, 9, (nodes, 3))) % nodes
    edges = np.stack([np.arange(nodes).repeat(3), neighbors.reshape(-1)])
    far = generator.permutation(nodes)  # no axis follows another
    f = lambda x: jax.ops.segment_sum(jnp.tanh(x[far[edges[0]]] * x[far[edges[1]]]), edges[0], nodes)
    x = jnp.asarray(generator.normal(size=nodes), "float32")
    J = asked(wrt.trace(f, x))
    np.testing.assert_allclose(J.value, truth_of(f, x), atol=1e-5)
    assert J.explain().strategy == "colored"
    assert J.explain().to_dict()["passes"] < 30
    assert J.explain().because.startswith("the operations on the way leave at most")


def test_nonzeros_that_are_asked_for_again_are_the_users_own():
    x = jnp.asarray(np.random.default_rng(0).normal(size=120), "float32")
    t, truth = wrt.trace(burgers, x), truth_of(burgers, x)
    for _ in range(4):
        found = asked(t).sparse()
        np.testing.assert_allclose(found.toarray(), truth, atol=1e-5)
        assert found.has_canonical_format
        assert found.nnz == np.count_nonzero(truth)
        found.data[:], found.indices[:], found.indptr[:] = 7, 0, 0


def test_each_run_has_zeros_of_its_own():
    f = lambda x: burgers(jnp.where(x > 0, x, 0.0))
    runs = []
    for k in range(3):
        x = jnp.asarray(np.random.default_rng(k).normal(size=120), "float32")
        runs.append((wrt.trace(f, x), truth_of(f, x)))
    for _ in range(4):
        for t, truth in runs:
            J = asked(t)
            found = J.sparse()
            np.testing.assert_allclose(found.toarray(), truth, atol=1e-5)
            assert found.nnz == np.count_nonzero(truth)
            assert J.T.sparse().shape == found.shape
