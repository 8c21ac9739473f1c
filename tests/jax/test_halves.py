"""Programs in two halves give what the whole gives, and the second half holds only what depends on both."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from tests.jax.test_one_program import PROBLEMS, asked, truth_of
from wrt import d
from wrt._backends.jax import block, later
from wrt._backends.jax import halves as file
from wrt._backends.jax.halves import NEITHER, ONE, OTHER, halves


def split(program, *given, depends=(OTHER, ONE, NEITHER)):
    return halves(jax.jit(program).trace(*given), depends)


def pushed(f):
    return lambda seeds, x, w: jax.vmap(lambda seed: jax.jvp(lambda x: f(x, w), (x,), (seed,))[1])(seeds)


def pulled(f):
    return lambda seeds, x, w: jax.vmap(lambda seed: jax.vjp(lambda x: f(x, w), x)[1](seed)[0])(seeds)


FUNCTIONS = {
    "network": lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w),
    "rolled": lambda x, w: jnp.roll(x, 1) * x + x @ w,
    "softmax": lambda x, w: jax.nn.softmax(x) @ w,
    "relu": lambda x, w: jax.nn.relu(x @ w) * x,
    "scanned": lambda x, w: jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=3)[0],
    "linear": lambda x, w: x @ w,
    "remat": jax.checkpoint(lambda x, w: jnp.sin(x @ w) * x),
}


@pytest.mark.parametrize("sweep", [pushed, pulled])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_halves_give_what_the_whole_gives_at_other_points_and_weights_too(name, sweep):
    with jax.enable_x64(True):
        generator = np.random.default_rng(0)
        seeds = jnp.eye(5)
        program, made = sweep(FUNCTIONS[name]), None
        for _ in range(2):
            x, w = jnp.asarray(generator.normal(size=5)), jnp.asarray(generator.normal(size=(5, 5)))
            made = made or split(program, seeds, x, w)
            jacobian = jax.jacrev(FUNCTIONS[name])(x, w)
            found = made.second(made.first(seeds, x, w))
            np.testing.assert_allclose(found, jacobian if sweep is pulled else jacobian.T, atol=1e-13)


def operations(function, *given):
    return [str(eqn.primitive.name) for eqn in jax.make_jaxpr(function)(*given).jaxpr.eqns[0].params["jaxpr"].eqns]


def test_the_first_layer_and_the_forward_pass_are_not_run_again():
    seeds, x, w = jnp.eye(4), jnp.arange(4.0), jnp.ones((4, 4))
    made = split(pushed(lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w)), seeds, x, w)
    again = operations(made.second, made.first(seeds, x, w))
    assert again.count("dot_general") == 1
    assert "tanh" not in again


def test_sums_are_regrouped_so_that_most_of_them_are_made_once():
    program = lambda s, x, w: ((((s * x + 2 * s) + 3 * s) + x * x) + jnp.sin(s)) * x
    with jax.enable_x64(True):
        given = [jnp.asarray(np.random.default_rng(k).normal(size=9)) for k in range(3)]
        made = split(program, *given)
        np.testing.assert_allclose(made.second(made.first(*given)), program(*given), rtol=1e-14)
        assert operations(made.second, made.first(*given)).count("add") == 3
        twice = lambda s, x, w: [a := s * x + 2 * s, a + 3 * s]  # what somebody else reads stays as it is
        made = split(twice, *given)
        np.testing.assert_allclose(made.second(made.first(*given)), twice(*given), rtol=1e-14)
        assert operations(made.second, made.first(*given)).count("add") == 2


def test_what_is_only_laid_out_is_not_kept_in_its_larger_form():
    seeds, x = jnp.ones((50, 6)), jnp.arange(6.0)
    made = split(lambda seeds, x: seeds * jnp.broadcast_to(x * x, (50, 6)), seeds, x, depends=(OTHER, ONE))
    assert sorted(one.shape for one in made.first(seeds, x)) == [(6,), (50, 6)]


def test_too_much_to_keep_and_effects_leave_the_program_whole(monkeypatch):
    def printed(seeds, x, w):
        jax.debug.print("{}", x)
        return seeds * x

    given = jnp.ones(3), jnp.ones(3), jnp.ones(3)
    assert split(printed, *given) is None
    monkeypatch.setattr(file, "MOST", 8)
    assert split(pushed(FUNCTIONS["network"]), jnp.eye(3), jnp.ones(3), jnp.eye(3)) is None


@pytest.mark.parametrize("name", PROBLEMS)
def test_programs_that_stay_whole_are_right_too(name, monkeypatch, planned_from_the_start):
    monkeypatch.setattr(later, "FEW", 0)
    monkeypatch.setattr(file, "MOST", 0)
    f, shape = PROBLEMS[name]
    g = lambda x: 2 * f(x)
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).normal(size=shape))
        t, truth = wrt.trace(g, x), truth_of(g, x)
        for _ in range(3):
            np.testing.assert_allclose(np.asarray(asked(t).value).reshape(truth.shape), truth, atol=1e-13)


def test_new_weights_are_seen_by_the_program_that_was_compiled_for_others(monkeypatch, planned_from_the_start, caplog):
    monkeypatch.setattr(later, "FEW", 0)
    generator = np.random.default_rng(0)
    x, first, second = (jnp.asarray(generator.normal(size=shape), "float32") for shape in ((16, 8), (8, 8), (8, 8)))
    f = lambda x, w: jnp.tanh(x @ w)
    for _ in range(3):
        t = wrt.trace(f, x, first)
        (d(t.output) / d(t.inputs[0])).value
    truth = truth_of(lambda x: f(x, second), x)
    with jax.log_compiles():
        t = wrt.trace(f, x, second)
        J = d(t.output) / d(t.inputs[0])
        np.testing.assert_allclose(np.asarray(J.value).reshape(truth.shape), truth, atol=1e-5)
    assert "Compiling" not in caplog.text
    assert J.certificate.passed


@pytest.mark.parametrize("form", ["dense", "sparse", "diagonal"])
@pytest.mark.parametrize("lost", ["cos", "mul", "slice"])
def test_halves_that_lose_something_are_not_used(lost, form, monkeypatch, planned_from_the_start):
    """They are held to what was proven."""
    monkeypatch.setattr(later, "FEW", 0)
    right = file._run

    def forgetful(operations, known, results):
        for op in operations:
            if op.equation.primitive.name == lost:
                known[op.outputs[0]] = jnp.ones(op.outputs[0].aval.shape, op.outputs[0].aval.dtype)
        return right([op for op in operations if op.equation.primitive.name != lost], known, results)

    monkeypatch.setattr(file, "_run", forgetful)
    f = lambda x: jnp.sin(x) * jnp.roll(x[:], 1)
    x = jnp.asarray(np.random.default_rng(0).normal(size=120), "float32")
    t, truth = wrt.trace(f, x), np.asarray(jax.jacrev(f)(x))
    for _ in range(3):
        J = asked(t)
        if form == "diagonal":
            np.testing.assert_allclose(J.diagonal(), np.diag(truth), atol=1e-5)
        else:
            np.testing.assert_allclose(J.value if form == "dense" else J.sparse().toarray(), truth, atol=1e-5)
        assert J.certificate.passed


@pytest.mark.parametrize("way", ["pull", "push"])
@pytest.mark.parametrize("lost", [None, "tanh", "mul", "sub"])
def test_blocks_in_halves_are_right_and_the_plain_pull_sees_what_they_lose(lost, way, monkeypatch):
    monkeypatch.setattr(later, "FEW", 0)
    right, used = file._run, []

    def forgetful(operations, known, results):
        for op in operations:
            if op.equation.primitive.name == lost:
                used.append(lost)
                known[op.outputs[0]] = jnp.full(op.outputs[0].aval.shape, 0.3, op.outputs[0].aval.dtype)
        return right([op for op in operations if op.equation.primitive.name != lost], known, results)

    monkeypatch.setattr(file, "_run", forgetful)
    for kept in (block._rows_again, block._columns):
        kept.cache_clear()
    generator, outputs = np.random.default_rng(0), 5 if way == "pull" else 9
    f = lambda x, v, w: jnp.tanh(jnp.tanh(x @ v) @ w)
    with jax.enable_x64(True):
        x, v, w = (jnp.asarray(generator.normal(size=shape)) for shape in ((7,), (7, 6), (6, outputs)))
        truth, t = np.asarray(jax.jacrev(f)(x, v, w)), wrt.trace(f, x, v, w)
        for _ in range(3):
            J = d(t.output) / d(t.inputs[0])
            np.testing.assert_allclose(J.value, truth, atol=1e-13)
            assert J.certificate.passed
            np.testing.assert_allclose((d(t.output)[1:4] / d(t.inputs[0])).value, truth[1:4], atol=1e-13)
    for kept in (block._rows_again, block._columns):  # what was lost stays here
        kept.cache_clear()
    assert bool(used) == (lost is not None)
