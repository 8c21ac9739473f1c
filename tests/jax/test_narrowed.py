"""A question about a run that narrows goes through the waist once it is asked again, and is proven there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from tests.jax._narrow import LAYERS, WIDE, narrow, narrow_jacobian
from tests.jax._wrong_batch import doubled
from wrt import d
from wrt._backends.jax import later, segment, sweep
from wrt._backends.jax.later import FEW


@pytest.fixture(autouse=True)
def in_double_precision(planned_from_the_start, monkeypatch):
    segment.compiled.cache_clear()  # nobody has asked about these stretches before
    monkeypatch.setattr(later, "ENOUGH", float("inf"))  # on a busy machine a first answer takes longer
    with jax.enable_x64(True):
        yield


@pytest.fixture
def x():
    return jnp.asarray(np.random.default_rng(0).normal(size=WIDE))


def asked_again(f, x):
    t = wrt.trace(f, x)
    for _ in range(FEW + 1):
        J = d(t.output) / d(t.inputs[0])
        J.value
    return t, J


def test_a_first_answer_needs_no_compiler_and_later_ones_go_through_the_waist(x):
    t = wrt.trace(narrow, x)
    first = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(first.value, narrow_jacobian(x), rtol=1e-10, atol=1e-13)
    assert first.explain().strategy == "direct"
    _, J = asked_again(narrow, x)
    np.testing.assert_allclose(J.value, narrow_jacobian(x), rtol=1e-10, atol=1e-13)
    told = J.explain()
    assert told.strategy == "cut"
    assert told.passes in (8, 9)  # with its proof, or without when it is asked once more
    assert told.because == "everything from x to y passes 4 numbers; 8 passes instead of 300"
    assert J.certificate


def test_the_same_program_answers_the_same_question_and_serves_other_points(x):
    t, J = asked_again(narrow, x)
    once_more = d(t.output) / d(t.inputs[0])
    np.testing.assert_array_equal(once_more.value, J.value)
    assert (once_more.explain().strategy, once_more.explain().passes) == ("cut", 8)
    assert "when this was asked first" in str(once_more.certificate)
    elsewhere = wrt.trace(narrow, 2 * x)
    there = d(elsewhere.output) / d(elsewhere.inputs[0])
    np.testing.assert_allclose(there.value, narrow_jacobian(2 * x), rtol=1e-10, atol=1e-13)
    assert there.explain().strategy == "cut"


def test_a_product_that_is_off_is_found_and_the_rows_answer(x, monkeypatch):
    made = sweep.through

    def off(linear, waist):
        run = made(linear, waist)
        return lambda: run().at[7, 1].add(1e-4)

    monkeypatch.setattr(sweep, "through", off)
    _, J = asked_again(narrow, x)
    np.testing.assert_allclose(J.value, narrow_jacobian(x), rtol=1e-10, atol=1e-13)
    assert J.explain().strategy == "direct"


def test_where_nothing_can_be_pushed_above_the_waist_the_rows_answer(x):
    f = lambda x: LAYERS[3] @ (LAYERS[2] @ doubled(LAYERS[1] @ (LAYERS[0] @ x)))
    _, J = asked_again(f, x)
    np.testing.assert_allclose(J.value, 2 * LAYERS[3] @ LAYERS[2] @ LAYERS[1] @ LAYERS[0], rtol=1e-10, atol=1e-13)


def test_numbers_that_are_not_finite_are_the_engine_s(x):
    f = lambda x: LAYERS[3] @ (LAYERS[2] @ jnp.sqrt(LAYERS[1] @ (LAYERS[0] @ x)))
    _, J = asked_again(f, jnp.zeros(WIDE))
    assert not np.isfinite(J.value).any()


def test_samples_that_narrow_one_by_one_share_their_passes_instead():
    into, out_of = LAYERS[1][:, :12], LAYERS[2][:12]
    f = lambda x: jnp.tanh(x @ into.T) @ out_of.T
    x = jnp.asarray(np.random.default_rng(0).normal(size=(20, 12)))
    _, J = asked_again(f, x)
    np.testing.assert_allclose(J.value, jax.jacrev(f)(x), rtol=1e-9, atol=1e-12)
    assert J.explain().strategy == "structured"


def test_inside_a_transformation_it_is_a_constant(x):
    t, J = asked_again(narrow, x)
    inside = jax.jit(lambda a: (d(t.output) / d(t.inputs[0])).value * a)(2.0)
    np.testing.assert_allclose(inside, 2 * narrow_jacobian(x), rtol=1e-10, atol=1e-13)
    slope = jax.grad(lambda a: ((d(t.output) / d(t.inputs[0])).value * a).sum())(2.0)
    np.testing.assert_allclose(slope, narrow_jacobian(x).sum(), rtol=1e-9)


def test_what_is_compiled_at_once_goes_through_the_waist_at_once(x, monkeypatch):
    monkeypatch.setattr(later, "pays", lambda jaxpr: False)
    t = wrt.trace(narrow, x)
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(J.value, narrow_jacobian(x), rtol=1e-10, atol=1e-13)
    assert J.explain().strategy == "cut"
