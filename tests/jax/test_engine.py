"""The engine of a JAX run: compiled from the first question on, plain where a proof needs it, JAX's own numbers throughout."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import wrt
from tests.jax._wrong_batch import doubled
from wrt import d
from wrt._backends.jax import engine as file
from wrt._core import protocol

TABLE = np.arange(1.0, 11.0, dtype="float32")


def engine_of(f, *xs):
    record = wrt.trace(f, *xs)._one
    return record.engine(record.output, record.inputs), record.output, record.inputs


def ones(value, positions):
    return value.record.backend.arrays.one_hot(value, np.asarray(positions))


# ---------------------------------------------------------------- the contract


@pytest.mark.parametrize(
    ("contract", "made"),
    [
        (protocol.Engine, lambda record: record.engine(record.output, record.inputs)),
        (protocol.Recording, lambda record: record),
        (protocol.Record, lambda record: record.backend.bare),
        (protocol.RecordedFunction, lambda record: record.recorded_function(record.output, record.inputs[0])),
        (protocol.Arrays, lambda record: record.backend.arrays),
        (protocol.Sheet, lambda record: record.backend.arrays.sheet((2, 2), record.output)),
        (protocol.Backend, lambda record: record.backend),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_every_member_of_the_protocol_is_there(contract, made):
    thing = made(wrt.trace(jnp.sin, jnp.ones(2))._one)
    bases = [base for base in contract.__mro__ if base.__module__ == protocol.__name__]
    members = {name for base in bases for name in (*vars(base), *base.__annotations__) if not name.startswith("_")}
    assert members
    assert [name for name in sorted(members) if not hasattr(thing, name)] == []


# ---------------------------------------------------------------- plain passes and batches


def test_a_plain_pass_is_never_batched():
    engine, y, _ = engine_of(lambda x: doubled(jnp.sin(x)), jnp.arange(5.0))
    truth = np.diag(2 * np.cos(np.arange(5.0)))
    for k in range(5):
        np.testing.assert_allclose(engine.plain(ones(y, [k]))[0][0], truth[k], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(engine.plain(np.eye(5, dtype="f")[k : k + 1])[0][0], truth[k], rtol=1e-6, atol=1e-7)
    apart = engine.pull(ones(y, range(5)), batched=False)
    assert (apart.method, apart.calls) == ("one by one", 5)
    np.testing.assert_allclose(apart.arrays[0], truth, rtol=1e-6, atol=1e-7)
    together = engine.pull(ones(y, range(5)))  # whose rule for batches is wrong: this is what a proof is for
    assert (together.method, together.calls) == ("vmap", 1)
    np.testing.assert_allclose(together.arrays[0], 1.5 * truth, rtol=1e-6, atol=1e-7)


def test_a_wrong_batching_rule_is_found_and_the_plain_passes_answer():
    t = wrt.trace(lambda x: doubled(jnp.sin(x)), jnp.arange(5.0))
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(J.value, np.diag(2 * np.cos(np.arange(5.0))), rtol=1e-5, atol=1e-6)
    assert J.certificate
    assert "one by one" in str(J.explain())


def test_what_cannot_be_batched_is_swept_one_by_one_and_told():
    @jax.custom_batching.custom_vmap
    def stubborn(g):
        return 2 * g

    @stubborn.def_vmap
    def _(size, batched, g):
        raise NotImplementedError("no rule for batches")

    @jax.custom_vjp
    def f(x):
        return 2 * x

    f.defvjp(lambda x: (2 * x, None), lambda _, g: (stubborn(g),))
    engine, y, _ = engine_of(f, jnp.arange(3.0))
    swept = engine.pull(ones(y, range(3)))
    assert (swept.method, swept.calls, swept.refused) == ("one by one", 3, ("vmap: no rule for batches",))
    np.testing.assert_allclose(swept.arrays[0], 2 * np.eye(3))


def test_where_nothing_leads_there_is_none():
    record = wrt.trace(lambda x, z: (x * 2, z * 3), jnp.ones(2), jnp.ones(2))._one
    y, (x, z) = record.output[0], record.inputs
    engine = record.engine(y, (x, z))
    assert engine.plain(ones(y, [0]))[1] is None
    assert engine.pull(ones(y, [0, 1])).arrays[1] is None
    assert engine.push([None, ones(z, [0, 1])]).arrays == [None]
    assert record.engine(y, (z,)).plain(ones(y, [0])) == [None]


def test_only_a_backward_rule_is_pushed_by_its_transpose():
    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.cos(x) * g,))
    f, x = lambda x: sine(x) * x[0], jnp.arange(1.0, 4.0)
    engine, _, (of,) = engine_of(f, x)
    for batched, method, calls in ((True, "transposed pull, vmap", 1), (False, "transposed pull", 3)):
        swept = engine.push([ones(of, range(3))], batched=batched)
        assert (swept.method, swept.calls) == (method, calls)
        np.testing.assert_allclose(np.asarray(swept.arrays[0]).T, jax.jacrev(f)(x), rtol=1e-6)


def test_a_loop_of_open_length_is_answered_from_its_columns():
    def f(x):
        def step(h, e):
            return lax.while_loop(lambda h: h < 10, lambda h: h * e + 1, h) * e, h

        return lax.scan(step, x[0], x)[1]

    x = jnp.array([1.5, 2.0, 3.0])
    engine, y, _ = engine_of(f, x)
    truth = jax.jacfwd(f)(x)
    assert not engine.can_pull
    np.testing.assert_allclose(engine.plain(ones(y, [2]))[0][0], truth[2], rtol=1e-6)
    np.testing.assert_allclose(engine.pull(ones(y, range(3))).arrays[0], truth, rtol=1e-6)
    t = wrt.trace(f, x)
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, truth, rtol=1e-6)


@jax.custom_vjp
def by_a_rule(x):
    return jnp.sin(x)


by_a_rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.cos(x) * g,))
W = np.random.default_rng(0).normal(size=(3, 3)).astype("float32")
CODE = {
    "network": lambda x, w: jnp.tanh(w @ x) * x[0],
    "relu, with a rule of its own": lambda x, w: jax.nn.relu(w @ x),
    "a rule of the user's": lambda x, w: by_a_rule(w @ x),
    "a loop over a lambda": lambda x, w: lax.scan(lambda h, a: (jax.nn.relu(w @ h) * a, h), x, jnp.arange(1.0, 3.0))[0],
    "a loop of open length": lambda x, w: lax.while_loop(lambda h: (h**2).sum() < 1e3, lambda h: 1.5 * h + 1, x),
    "a map": lambda x, w: lax.map(lambda e: jnp.sin(e) * e, x),
}


@pytest.mark.parametrize("name", CODE)
def test_the_next_run_of_the_same_code_compiles_nothing(name, caplog):
    f = CODE[name]
    first, second = (wrt.trace(f, jnp.array([1.0, 2.0, 3.0]) + k / 10, jnp.asarray(W) * (k + 1)) for k in range(2))
    (d(first.output) / d(first.inputs[0])).value
    truth = jax.jacfwd(f) if name == "a loop of open length" else jax.jacrev(f)
    truth = truth(jnp.array([1.1, 2.1, 3.1]), 2 * jnp.asarray(W))
    with jax.log_compiles():
        caplog.clear()
        found = (d(second.output) / d(second.inputs[0])).value
    assert "Compiling" not in caplog.text
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-6)


def test_what_looks_alike_and_is_not_is_told_apart():
    def scaled(k):
        @jax.custom_jvp
        def f(x):
            return 2 * x

        f.defjvp(lambda primals, tangents: (f(*primals), k * tangents[0]))
        return f

    def looped(k):
        return lambda x: lax.scan(lambda h, _: (h * k, None), x, None, length=2)[0]

    for make, slope in ((scaled, lambda k: k), (looped, lambda k: k**2)):
        for k in (2.0, 3.0, 5.0, 2.0):
            t = wrt.trace(make(k), jnp.ones(2))
            np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, slope(k) * np.eye(2))


def test_an_effect_of_the_run_happens_once(capfd):
    def f(x):
        h = jnp.sin(x)
        jax.debug.print("here {}", h.sum())
        return h * x

    t = wrt.trace(f, jnp.ones(3))
    (d(t.output) / d(t.inputs[0])).value
    (d(t.output) / d(t["h"])).value
    jax.effects_barrier()
    assert capfd.readouterr().out.count("here") == 1


@pytest.mark.parametrize(("on_cpu", "through_the_loop"), [(True, "pull"), (False, "push")])
def test_which_way_a_square_loop_and_a_square_network_are_swept(monkeypatch, on_cpu, through_the_loop):
    monkeypatch.setattr(file, "on_cpu", lambda: on_cpu)
    w = jnp.asarray(np.random.default_rng(0).normal(size=(16, 16)) / 4, "float32")
    loop = lambda x: jax.lax.scan(lambda h, _: (jnp.tanh(w @ h), None), x, None, length=4)[0]
    for f, way in ((loop, through_the_loop), (lambda x: jnp.tanh(w @ x), "pull")):
        t = wrt.trace(f, jnp.ones(16))
        J = d(t.output) / d(t.inputs[0])
        np.testing.assert_allclose(J.value, jax.jit(jax.jacrev(f))(jnp.ones(16)), rtol=1e-4, atol=1e-6)
        lines = [step for step in J.explain().to_dict()["steps"] if step["passes"] == 16]
        assert [step["way"] for step in lines] == [way]


# ---------------------------------------------------------------- the same branch as JAX

BRANCHES = {
    "int8": (lambda e: jnp.where((e * 100).astype(jnp.int8) == 127, e**2, 3 * e), [2.0, 1.27, -3.0]),
    "int32 of a large number": (lambda e: jnp.asarray(TABLE)[jnp.clip((e * 1e9).astype(jnp.int32), 0, 9)] * e, [5.0, -5.0, 1e-9]),
    "uint32 of a negative": (lambda e: jnp.where(e.astype(jnp.uint32) == 0, e**2, 3 * e), [-2.0, 2.0, -0.5]),
    "uint8": (lambda e: jnp.where((e * 100).astype(jnp.uint8) == 255, e**2, 3 * e), [5.0, -5.0, 0.4]),
    "int32 of NaN": (lambda e: jnp.where(jnp.log(e).astype(jnp.int32) == 0, e**2, 3 * e), [-2.0, 2.0, 9.0]),
    "switch": (lambda e: lax.switch((e * 3).astype(jnp.int32), [jnp.sin, jnp.cos, jnp.exp], e), [5.0, -5.0, 0.4]),
    "remainder by 0": (lambda e: jnp.where(lax.rem(e.astype(jnp.int32), jnp.int32(0)) == -1, e**2, 3 * e), [5.0, -5.0, 0.4]),
    "division by 0": (lambda e: jnp.where(lax.div(e.astype(jnp.int32), jnp.int32(0)) == -1, e**2, 3 * e), [5.0, -5.0, 0.4]),
}
WITHIN = {
    "map": lambda f: lambda x: lax.map(f, x),
    "scan": lambda f: lambda x: lax.scan(lambda h, e: (h + f(e), f(e)), 0.0, x)[1],
    "each": lambda f: lambda x: jnp.stack([f(x[k]) for k in range(3)]),
}


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("name", BRANCHES)
def test_the_branch_is_the_one_that_jax_takes(name, within):
    f, point = BRANCHES[name]
    f, x = WITHIN[within](f), jnp.asarray(point, "float32")
    t, truth = wrt.trace(f, x), np.asarray(jax.jit(jax.jacrev(f))(x))
    np.testing.assert_array_equal(t.output.value, f(x))
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(J.value, truth, rtol=1e-6)
    assert J.certificate
    for k in range(3):
        np.testing.assert_allclose((d(t.output)[k] / d(t.inputs[0])).value, truth[k], rtol=1e-6)
    np.testing.assert_allclose(J @ np.ones(3, "float32"), truth.sum(1), rtol=1e-6)
