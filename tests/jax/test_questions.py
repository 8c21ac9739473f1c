"""Many questions about one run, asked in turn and again: each has its own answer, and its own story."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import d
from wrt.errors import EngineRefused

TIMES = 4

W = np.random.default_rng(0).normal(size=(4, 3, 5)).astype("float32")
X = np.linspace(-1, 1, 5).astype("float32")


def f(x):
    return jnp.tanh(W @ x) * x[0]  # (4, 3)


def truth():
    """The Jacobian in float64, row by row, by the closed form of the chain rule."""
    w, x = W.astype("float64"), X.astype("float64")
    y = np.tanh(w @ x)
    J = (1 - y**2)[..., None] * w * x[0]
    J[..., 0] += y
    return J


QUESTIONS = {
    "an element": lambda y, x: d(y)[2, 1] / d(x)[3],
    "an element, counted from the end": lambda y, x: d(y)[-1, -3] / d(x)[-2],
    "a row": lambda y, x: d(y)[2, 1] / d(x),
    "a row of some columns": lambda y, x: d(y)[2, 1] / d(x)[1:4],
    "a row of columns backwards": lambda y, x: d(y)[0, 2] / d(x)[::-2],
    "a row with a new axis": lambda y, x: d(y)[0, 2] / d(x)[None],
    "a row of columns here and there": lambda y, x: d(y)[0, 1] / d(x)[[3, 0, 3]],
    "one row that keeps its axes": lambda y, x: d(y)[1:2, 2:] / d(x),
    "everything": lambda y, x: d(y) / d(x),
    "everything with a new axis": lambda y, x: d(y)[None] / d(x),
    "everything by another new axis": lambda y, x: d(y) / d(x)[:, None],
    "rows here and there": lambda y, x: d(y)[[0, 2]] / d(x),
    "some rows": lambda y, x: d(y)[1:, ::2] / d(x),
    "narrowed afterwards": lambda y, x: (d(y) / d(x))[2, 1, 3],
    "transposed": lambda y, x: (d(y) / d(x)).T,
    "a row, transposed": lambda y, x: (d(y)[2, 1] / d(x)).T,
}
EXPECTED = {
    "an element": lambda J: J[2, 1, 3],
    "an element, counted from the end": lambda J: J[-1, -3, -2],
    "a row": lambda J: J[2, 1],
    "a row of some columns": lambda J: J[2, 1, 1:4],
    "a row of columns backwards": lambda J: J[0, 2, ::-2],
    "a row with a new axis": lambda J: J[0, 2][None],
    "a row of columns here and there": lambda J: J[0, 1, [3, 0, 3]],
    "one row that keeps its axes": lambda J: J[1:2, 2:],
    "everything": lambda J: J,
    "everything with a new axis": lambda J: J[None],
    "everything by another new axis": lambda J: J[..., None],
    "rows here and there": lambda J: J[[0, 2]],
    "some rows": lambda J: J[1:, ::2],
    "narrowed afterwards": lambda J: J[2, 1, 3],
    "transposed": lambda J: np.moveaxis(J, -1, 0),
    "a row, transposed": lambda J: J[2, 1],
}


def test_every_question_has_its_own_answer_however_often_they_are_asked_in_turn():
    t, J = wrt.trace(f, jnp.asarray(X)), truth()
    for _ in range(TIMES):
        for name, ask in QUESTIONS.items():
            found, expected = ask(t.output, t.inputs[0]), EXPECTED[name](J)
            assert found.value.shape == found.shape == expected.shape, name
            np.testing.assert_allclose(found.value, expected, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("name", ["an element", "a row", "a row of some columns", "everything", "some rows"])
def test_a_question_that_is_asked_again_tells_the_same_and_is_the_same(name):
    t = wrt.trace(f, jnp.asarray(X))
    first, last = (QUESTIONS[name](t.output, t.inputs[0]) for _ in range(2))
    assert np.array_equal(first.value, last.value)
    assert str(last.explain()) == str(first.explain())
    assert last.certificate == first.certificate
    assert last.connected
    np.testing.assert_array_equal(np.asarray(last.gram().value), np.asarray(first.gram().value))


def test_two_tensors_of_one_shape_are_two_questions():
    def g(x):
        h = jnp.sin(x)
        return h * x

    t = wrt.trace(g, jnp.asarray(X))
    for _ in range(TIMES):
        for k in range(5):
            np.testing.assert_allclose(float(d(t["h"])[k] / d(t.inputs[0])[k]), np.cos(X[k]), rtol=1e-5)
            np.testing.assert_allclose(float(d(t.output)[k] / d(t["h"])[k]), X[k], rtol=1e-5)
            assert float(d(t.output)[k] / d(t["h"])[k - 1]) == 0


@pytest.mark.parametrize("name", ["an element", "a row", "everything"])
@pytest.mark.parametrize("times", [0, 2], ids=["first", "again"])
def test_inside_a_transformation_a_recorded_run_has_its_numbers(name, times):
    t, expected = wrt.trace(f, jnp.asarray(X)), EXPECTED[name](truth())
    for _ in range(times):
        QUESTIONS[name](t.output, t.inputs[0]).value
    value = lambda: QUESTIONS[name](t.output, t.inputs[0]).value
    close = {"rtol": 2e-5, "atol": 2e-6}
    np.testing.assert_allclose(jax.jit(lambda z: z * value())(2.0), 2 * expected, **close)
    np.testing.assert_allclose(jax.vmap(lambda z: z * value())(jnp.arange(2.0))[1], expected, **close)
    np.testing.assert_allclose(jax.grad(lambda z: (z * value()).sum())(2.0), expected.sum(), **close)
    np.testing.assert_allclose(jax.jit(lambda z: z * np.asarray(value()).sum())(2.0), 2 * expected.sum(), **close)
    np.testing.assert_allclose(value(), expected, **close)  # nothing of a transformation was kept


@pytest.mark.parametrize("name", ["an element", "a row", "everything"])
def test_numbers_of_another_width_are_refused_and_the_question_is_not_forgotten(name):
    t = wrt.trace(f, jnp.asarray(X))
    QUESTIONS[name](t.output, t.inputs[0]).value
    with jax.enable_x64(True), pytest.raises(EngineRefused, match="recorded with 64-bit numbers off"):
        QUESTIONS[name](t.output, t.inputs[0]).value
    found = QUESTIONS[name](t.output, t.inputs[0]).value
    np.testing.assert_allclose(found, EXPECTED[name](truth()), rtol=2e-5, atol=2e-6)


def test_an_array_that_was_given_away_afterwards_is_still_part_of_the_run():
    w = jnp.asarray(np.random.default_rng(1).normal(size=(7, 2)), "float32")
    t, expected = wrt.trace(lambda x: jnp.tanh(w @ x), jnp.ones(2)), jax.jacrev(lambda x: jnp.tanh(w @ x))(jnp.ones(2))
    ask = lambda: (d(t.output) / d(t.inputs[0])).value
    for _ in range(TIMES):
        ask()
    w.delete()
    np.testing.assert_allclose(ask(), expected, rtol=1e-5, atol=1e-6)


def test_settings_are_respected_by_a_question_that_was_asked_before():
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
        assert "push" in {step["way"] for step in asked.explain().to_dict()["steps"]}


def test_answers_beyond_those_that_are_kept_are_given_all_the_same():
    t = wrt.trace(lambda x: jnp.outer(x, x).reshape(-1) * 2, jnp.arange(1.0, 10.0))
    truth = jax.jacrev(lambda x: jnp.outer(x, x).reshape(-1) * 2)(jnp.arange(1.0, 10.0))
    for _ in range(2):
        for i in range(81):
            np.testing.assert_allclose((d(t.output)[i] / d(t.inputs[0])).value, truth[i])
    assert len(t._one.answers) <= 64


def test_what_is_not_finite_is_put_right_however_often_it_is_asked_for():
    t = wrt.trace(lambda x: jnp.sqrt(x)[1:] * x[0], jnp.array([4.0, 1.0, 0.0]))
    for _ in range(TIMES):
        np.testing.assert_allclose((d(t.output)[0] / d(t.inputs[0])).value, [1.0, 2.0, 0.0])
        np.testing.assert_allclose((d(t.output)[1] / d(t.inputs[0])[:2]).value, [0.0, 0.0])
    t = wrt.trace(jnp.sqrt, jnp.array([0.0, 1.0]))
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, [[np.inf, 0.0], [0.0, 0.5]])


def test_a_gradient_of_a_scalar_is_a_row():
    t = wrt.trace(lambda x: (f(x) ** 2).sum(), jnp.asarray(X))
    expected = np.einsum("ij,ijk->k", 2 * np.asarray(f(X), "float64"), truth())
    for _ in range(TIMES):
        np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, expected, rtol=2e-5, atol=2e-6)
