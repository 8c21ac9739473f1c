"""A block as one compiled program: the same numbers, and no wrong batch gets through."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from tests.jax._wrong_batch import doubled
from wrt import d
from wrt._backends.jax import sweep
from wrt._backends.jax.later import FEW
from wrt._run.again import BLOCKS


def test_a_wrong_batching_rule_is_found_and_the_plain_passes_answer():
    t = wrt.trace(lambda x: doubled(jnp.sin(x)), jnp.arange(5.0))
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(J.value, np.diag(2 * np.cos(np.arange(5.0))), rtol=1e-5, atol=1e-6)
    assert "disagreed" in str(J.explain())
    assert "one by one" in str(J.explain())


@pytest.mark.parametrize("shape", [(3, 7), (7, 3)], ids=["by rows", "by columns"])
def test_one_call_is_counted_as_it_is(shape):
    w = jnp.asarray(np.random.default_rng(0).normal(size=shape), "float32")
    x = jnp.ones(shape[1])
    t = wrt.trace(lambda x: jnp.tanh(w @ x), x)
    counted = []
    for _ in range(FEW + 3):
        J = d(t.output) / d(t.inputs[0])
        np.testing.assert_allclose(J.value, jax.jacrev(lambda x: jnp.tanh(w @ x))(x), rtol=1e-5, atol=1e-6)
        assert J.certificate.passed
        counted.append(J.explain().to_dict()["passes"] - min(shape))
    assert counted[:FEW] == [1] * FEW  # interpreted and proven each time
    assert counted[-1] == 0  # by the compiled program that was proven for these numbers
    assert sum(counted) == counted.index(0)


def test_some_rows_are_a_program_of_their_own():
    t = wrt.trace(lambda x: jnp.outer(x, x**2), jnp.arange(1.0, 4.0))
    J = d(t.output)[1:] / d(t.inputs[0])
    truth = jax.jacrev(lambda x: jnp.outer(x, x**2))(jnp.arange(1.0, 4.0))[1:]
    np.testing.assert_allclose(J.value, truth, rtol=1e-6)


def test_what_is_not_finite_is_left_to_those_who_repair_it():
    t = wrt.trace(jnp.sqrt, jnp.array([0.0, 1.0]))
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, [[np.inf, 0.0], [0.0, 0.5]])


def test_options_are_respected_also_by_a_question_that_was_asked_before():
    t = wrt.trace(jnp.tanh, jnp.arange(4.0))
    J = lambda: d(t.output) / d(t.inputs[0])
    J().value
    with wrt.options(certify=False):
        asked = J()
        asked.value
        assert asked.certificate.kind == "none"
    with wrt.options(way="push"):
        asked = J()
        asked.value
        assert asked.certificate.passed
        assert asked.explain().to_dict()["steps"][0]["way"] == "push"


def test_a_row_that_is_not_finite_is_put_right_however_often_it_is_asked_for():
    t = wrt.trace(lambda x: jnp.sqrt(x)[1:] * x[0], jnp.array([4.0, 1.0, 0.0]))
    for _ in range(FEW + 3):
        np.testing.assert_allclose((d(t.output)[0] / d(t.inputs[0])).value, [1.0, 2.0, 0.0])
        np.testing.assert_allclose((d(t.output)[1] / d(t.inputs[0])[:2]).value, [0.0, 0.0])


@pytest.mark.parametrize(("on_cpu", "through_the_loop"), [(True, "pull"), (False, "push")])
def test_which_way_a_square_loop_and_a_square_network_are_swept(monkeypatch, on_cpu, through_the_loop):
    monkeypatch.setattr(sweep, "on_cpu", lambda: on_cpu)
    w = jnp.asarray(np.random.default_rng(0).normal(size=(16, 16)) / 4, "float32")
    loop = lambda x: jax.lax.scan(lambda h, _: (jnp.tanh(w @ h), None), x, None, length=4)[0]
    for f, way in ((loop, through_the_loop), (lambda x: jnp.tanh(w @ x), "pull")):
        t = wrt.trace(f, jnp.ones(16))
        J = d(t.output) / d(t.inputs[0])
        np.testing.assert_allclose(J.value, jax.jit(jax.jacrev(f))(jnp.ones(16)), rtol=1e-4, atol=1e-6)
        assert J.explain().to_dict()["steps"][0]["way"] == way


def test_a_run_keeps_the_programs_of_a_few_questions_only():
    t = wrt.trace(lambda *xs: jnp.stack([x.sum() * xs[0][:2] for x in xs]), *(jnp.arange(3.0) + k for k in range(10)))
    for x in t.inputs:
        for _ in range(FEW + 2):
            (d(t.output) / d(x)).value
    assert len(t._one.asked_before) <= BLOCKS
