"""Tangents and cotangents by rules in NumPy: every rule is JAX's own, and a wrong one is found by differences of the run."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lax import lax, special

import wrt
from tests.jax.test_one_program import PROBLEMS, asked, brusselator, burgers, truth_of
from wrt._backends.jax import together
from wrt._backends.jax.interpreted import slopes
from wrt._backends.jax.interpreted.evaluate import RULES as VALUES
from wrt._backends.jax.kinds import LINEAR, Marked
from wrt._backends.jax.kinds import RULES as BACK
from wrt._planner import warm

GENERATOR = np.random.default_rng(0)
DOMAINS = {"acosh": (1.5, 3.0), "acos": (-0.8, 0.8), "asin": (-0.8, 0.8), "atanh": (-0.8, 0.8)}
DOMAINS |= dict.fromkeys(("cbrt", "div", "log", "log1p", "rsqrt", "sqrt"), (0.3, 2.0))
INPUTS = {"add": 2, "add_any": 2, "atan2": 2, "div": 2, "max": 2, "min": 2, "mul": 2, "sub": 2}
PARAMS = {"integer_pow": ({"y": 3}, {"y": 1}, {"y": -2}, {"y": 2})}
ACCURACY = frozenset("cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh".split())


@pytest.fixture(autouse=True)
def new_questions(planned_from_the_start):
    warm.forget()
    for kept in (together._again, together._lines):  # what was asked often is compiled
        kept.cache_clear()


def bound_with(name, params, *given):
    if name == "add_any":
        return given[0] + given[1]
    return getattr(special if name == "erf" else lax, name + "_p").bind(*given, **params)


@pytest.mark.parametrize("name", sorted(slopes.RULES.keys() - {"select_n"}))
def test_slopes_are_those_of_jax(name):
    with jax.enable_x64(True):
        for params in PARAMS.get(name, ({"accuracy": None} if name in ACCURACY else {},)):
            given = [GENERATOR.uniform(*DOMAINS.get(name, (-2.0, 2.0)), (3, 4)) for _ in range(INPUTS.get(name, 1))]
            if name in ("max", "min"):
                given[1][0] = given[0][0]  # ties
            found = slopes.slopes(name, VALUES[name](*given, **params), given, params)
            for k, slope in enumerate(found):
                tangents = [np.ones((3, 4)) if j == k else np.zeros((3, 4)) for j in range(len(given))]
                run = partial(bound_with, name, params)
                truth = jax.jvp(run, list(map(jnp.asarray, given)), tangents)[1]
                np.testing.assert_allclose(np.broadcast_to(slope, (3, 4)), truth, rtol=1e-12, atol=1e-14)


MOVES = {
    "broadcast_in_dim": lambda a: jax.lax.broadcast_in_dim(a[:1], (5, 1, 2, 3), (1, 2, 3)),
    "concatenate": lambda a: jax.lax.concatenate([a, a[:1], a], 0),
    "copy": lambda a: jax.lax.copy_p.bind(a),
    "expand_dims": lambda a: jnp.expand_dims(a, (0, 2)),
    "pad": lambda a: jax.lax.pad(a, 0.0, ((1, 2, 1), (-1, 0, 0), (0, -1, 2))),
    "reduce_sum": lambda a: a.sum((0, 2)),
    "reshape": lambda a: a.reshape(3, 8),
    "rev": lambda a: jax.lax.rev(a, (0, 2)),
    "slice": lambda a: a[1:4:2, :, 1:],
    "split": lambda a: jax.lax.split(a, (1, 3), 0)[1],
    "squeeze": lambda a: jnp.squeeze(a[:1], 0),
    "stack": lambda a: jnp.stack([a, 2 * a], 1),
    "transpose": lambda a: a.transpose(2, 0, 1),
}


def equations(f, x):
    """The operations of f, one by one; those inside of calls too."""

    def inner(jaxpr):
        for eqn in jaxpr.eqns:
            if "jaxpr" in eqn.params:
                yield from inner(eqn.params["jaxpr"].jaxpr)
            else:
                yield eqn

    return list(inner(jax.make_jaxpr(f)(x).jaxpr))


@pytest.mark.parametrize("name", MOVES)
def test_cotangents_are_carried_as_jax_carries_them(name):
    with jax.enable_x64(True):
        for eqn in equations(MOVES[name], jnp.zeros((4, 2, 3))):
            if eqn.primitive.name not in LINEAR:
                continue
            given = [jnp.asarray(GENERATOR.normal(size=v.aval.shape)) for v in eqn.invars]

            def run(*given, eqn=eqn):
                found = eqn.primitive.bind(*given, **eqn.params)
                return tuple(found) if eqn.primitive.multiple_results else (found,)

            made, pull = jax.vjp(run, *given)
            seeds = tuple(GENERATOR.normal(size=(3, *one.shape)) for one in made)
            wanted = [True] + [eqn.primitive.name in ("concatenate", "stack")] * (len(given) - 1)
            shapes = [one.shape for one in given]
            found = BACK[eqn.primitive.name](Marked(eqn.primitive.name, eqn.params, shapes, wanted, seeds, None))
            truth = jax.vmap(pull)(tuple(map(jnp.asarray, seeds)))
            for got, right, asked_for in zip(found, truth, wanted, strict=True):
                if asked_for:
                    np.testing.assert_allclose(got, right, atol=1e-14)


def test_every_linear_rule_is_among_the_examples():
    assert set(MOVES) | {"copy_p"} == LINEAR


@pytest.mark.parametrize("name", PROBLEMS)
def test_first_answers_are_those_of_a_row_loop_in_double_precision(name):
    f, shape = PROBLEMS[name]
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    with jax.enable_x64(True):
        truth = truth_of(f, jnp.asarray(x, "float64"))
    for form in ("dense", "sparse"):
        J = asked(wrt.trace(lambda x: 1 * f(x), jnp.asarray(x)))
        found = np.asarray(J.value).reshape(truth.shape) if form == "dense" else J.sparse().toarray()
        np.testing.assert_allclose(found, truth, atol=1e-5)
        assert ("rules in NumPy" in str(J.explain())) == (name != "samples")  # products are left to JAX
        assert J.certificate.passed


def test_explain_tells_what_was_done():
    J = asked(wrt.trace(lambda x: burgers(x) / 3, jnp.linspace(0, 1, 120)))
    J.sparse()
    told = str(J.explain())
    assert "columns together: 3 by push, rules in NumPy" in told
    assert "random probe by differences of the run in double precision agrees" in told


def pointwise(x):
    a, b = x[1:], x[:-1]
    inner = jnp.where(a > 0, jnp.sin(a) * b, jnp.exp(a) - b) + jnp.maximum(a, b) / (2 + jnp.cos(b))
    return jnp.concatenate([inner, jax.nn.sigmoid(x[:1]) ** 3])


@pytest.mark.parametrize("name", sorted({"mul", "sub", "sin", "exp", "max", "div", "cos", "select_n", "logistic", "integer_pow"}))
def test_a_wrong_slope_is_found_by_differences(name, monkeypatch):
    x = jnp.asarray(np.random.default_rng(0).normal(size=120), "float32")
    right, used = slopes.RULES[name], []

    def wrong(out, *given, **params):
        used.append(name)
        return tuple(1.01 * slope for slope in right(out, *given, **params))

    monkeypatch.setitem(slopes.RULES, name, wrong)
    J = asked(wrt.trace(pointwise, x))
    np.testing.assert_allclose(J.value, truth_of(pointwise, x), atol=1e-5)
    assert used
    assert "rules in NumPy" not in str(J.explain())
    assert J.certificate.passed


def test_all_these_slopes_are_right_when_nobody_touches_them():
    x = jnp.asarray(np.random.default_rng(0).normal(size=120), "float32")
    J = asked(wrt.trace(pointwise, x))
    np.testing.assert_allclose(J.value, truth_of(pointwise, x), atol=1e-5)
    assert "rules in NumPy" in str(J.explain())


@pytest.mark.parametrize("f", [burgers, brusselator])
def test_a_move_that_loses_an_element_is_found_by_differences(f, monkeypatch):
    shape = (120,) if f is burgers else (2, 12, 12)
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), "float32")
    table = VALUES if f is burgers else BACK
    whole = table["slice"]

    def forgetful(first, *rest, **params):
        found = whole(first, *rest, **params)
        if table is BACK and found[0].dtype != bool:
            found[0].reshape(-1)[:: max(1, found[0].size // 5)] = 0
        elif table is VALUES and params["start_indices"][0] == 2 and not np.abs(np.modf(first)[0]).any():
            found = 0 * found  # a tangent: its entries are zeros and ones
        return found

    monkeypatch.setitem(table, "slice", forgetful)
    J = asked(wrt.trace(lambda x: f(x) * 1.5, x))
    np.testing.assert_allclose(np.asarray(J.value).reshape(x.size, x.size), 1.5 * truth_of(f, x), atol=1e-5)
    assert J.certificate.passed


def test_what_has_a_derivative_of_its_own_or_is_not_smooth_is_left_to_jax():
    @jax.custom_jvp
    def tripled(x):
        return x * x

    tripled.defjvp(lambda primals, tangents: (tripled(*primals), 3 * primals[0] * tangents[0]))
    x = jnp.asarray(np.random.default_rng(0).normal(size=120), "float32")
    J = asked(wrt.trace(lambda x: tripled(burgers(x)), x))
    np.testing.assert_allclose(J.value, truth_of(lambda x: tripled(burgers(x)), x), atol=1e-5)
    held = lambda x: burgers(x) * jax.lax.stop_gradient(x) + jnp.round(x)
    J = asked(wrt.trace(held, x))
    np.testing.assert_allclose(J.value, truth_of(held, x), atol=1e-5)
    steep = lambda x: burgers(jnp.tanh(1e7 * x) + x)
    J = asked(wrt.trace(steep, x * 1e-7))
    np.testing.assert_allclose(J.value, truth_of(steep, x * 1e-7), rtol=2e-3, atol=2)
    assert "rules in NumPy" not in str(J.explain())


def test_double_precision_is_left_to_jax_whose_probe_is_as_exact():
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=120))
        J = asked(wrt.trace(lambda x: 2 * burgers(x), x))
        np.testing.assert_allclose(J.value, 2 * truth_of(burgers, x), atol=1e-13)
        assert "rules in NumPy" not in str(J.explain())
