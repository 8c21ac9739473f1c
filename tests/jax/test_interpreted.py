"""Programs of JAX in NumPy: every operation with a rule gives what JAX itself gives on JAX's own examples."""

import warnings
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import d
from wrt._backends.jax.interpreted.evaluate import RULES, evaluate, known, pays
from wrt._backends.jax.later import ENOUGH, FEW, Heat, Later

AWAY_FROM_ZERO = jax.lax.RoundingMethod.AWAY_FROM_ZERO
EACH = 3  # examples of an operation
RARE = (np.bool_, np.float16, jnp.bfloat16)  # types that many operations refuse, or that have no rule


def harnesses() -> dict[str, list[Any]]:
    """JAX's own examples of each operation that has a rule, the first ones of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from jax._src.internal_test_util import test_harnesses
    found: dict[str, list[Any]] = defaultdict(list)
    for harness in test_harnesses.all_harnesses:
        name = harness.group_name.replace("_", "-") if harness.group_name.startswith("scatter") else harness.group_name
        if name in RULES:
            found[name].append(harness)
    for ones in found.values():  # JAX lists types in an order of the day
        ones.sort(key=lambda harness: (harness.dtype != np.float32, harness.dtype in RARE, harness.fullname))
    return {name: ones[:: 1 + len(ones) // EACH] for name, ones in found.items()}


HARNESSES = harnesses()


def close(got: Any, wanted: Any) -> None:
    """To some units in the last place of the largest entry."""
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    if wanted.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, wanted)
        return
    finite = np.abs(wanted[np.isfinite(wanted)])
    size = finite.max(initial=1e-300)
    np.testing.assert_allclose(got, wanted, rtol=1e-5 if wanted.dtype.itemsize <= 8 - 4 * (wanted.dtype.kind == "f") else 1e-12,
                               atol=64 * float(jnp.finfo(wanted.dtype).eps) * size)  # fmt: skip


@pytest.mark.parametrize("name", sorted(HARNESSES))
def test_rules_agree_with_jax(name: str) -> None:
    generator = np.random.RandomState(0)
    compared = 0
    for harness in HARNESSES[name]:
        given = harness.dyn_args_maker(generator)
        program = jax.make_jaxpr(harness.dyn_fun)(*given)
        if not known(program.jaxpr):
            continue
        with np.errstate(all="ignore"):
            found = evaluate(program.jaxpr, program.consts, jax.tree.leaves(given))
        for got, wanted in zip(found, jax.tree.leaves(harness.dyn_fun(*given)), strict=True):
            close(got, wanted)
        compared += 1
    assert compared


X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)

OTHERS: dict[str, Any] = {
    "not": lambda x: ~(x > 0),
    "exp2": jnp.exp2,
    "square": jnp.square,
    "split": lambda x: jnp.split(x, [1, 3], axis=2),
    "stack": lambda x: jnp.stack([x, 2 * x], axis=1),
    "unstack": lambda x: jnp.unstack(x, axis=1),
    "expand_dims": lambda x: jax.lax.expand_dims(x, (0, 2)),
    "optimization_barrier": lambda x: jax.lax.optimization_barrier((x, x + 1)),
    "round to even": lambda x: jax.lax.round(4 * x, jax.lax.RoundingMethod.TO_NEAREST_EVEN),
    "round away": lambda x: jax.lax.round(jnp.array([0.5, -0.5, 0.49999997, 1.5, 2.5, -2.5]), AWAY_FROM_ZERO),
    "whole division": lambda x: jax.lax.div(jnp.array([7, -7, 7, -7, 6]), jnp.array([2, 2, -2, -2, 3])),
    "jit": jax.jit(lambda x: jnp.roll(x, 2, 1)),
    "scan": lambda x: jax.lax.scan(lambda h, row: (jnp.tanh(h + row), h * row), x[0], x),
    "scan backwards": lambda x: jax.lax.scan(lambda h, row: (h * row, h.sum()), x[0], x, reverse=True),
    "cond": lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
    "switch": lambda x: jax.lax.switch(7, [jnp.sin, jnp.cos, jnp.tanh], x),
    "remat": jax.checkpoint(lambda x: jnp.sin(x) * x),
    "relu and its slope": lambda x: jax.vjp(jax.nn.relu, x)[1](x),
    "softmax, batched": jax.vmap(jax.nn.softmax),
    "layer norm": lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5),
    "negative padding": lambda x: jax.lax.pad(x, 9.0, [(-1, 2, 0), (1, -2, 1), (-3, 1, 2)]),
    "beyond the edge": lambda x: jax.lax.dynamic_slice(x, (1, 9, -5), (1, 2, 2)),
    "fancy indices": lambda x: x[jnp.array([0, 1, 1]), :, jnp.array([3, 0, -1])],
    "rows written": lambda x: jnp.asarray(x).at[:, jnp.array([2, 0])].set(7.0).at[1, 1].add(x[0, 0]).at[:, :, 9].add(1.0),
    "einsum": lambda x: jnp.einsum("abc,dbc->dab", x, x),
    "strided, dilated convolution": lambda x: jax.lax.conv_general_dilated(
        x[None], jnp.ones((4, 2, 2, 2)) * X[0, 0, 0], (2, 1), [(1, 2), (0, 3)], (2, 1), (1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_examples_leave_out(name: str) -> None:
    program = jax.make_jaxpr(OTHERS[name])(X)
    assert known(program.jaxpr)
    for got, wanted in zip(evaluate(program.jaxpr, program.consts, [X]), jax.tree.leaves(OTHERS[name](X)), strict=True):
        close(got, wanted)


@pytest.mark.parametrize("derive", [jax.jacrev, jax.jacfwd])
def test_derivatives_of_a_small_network_with_convolutions(derive: Any) -> None:
    kernel = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2, 2, 3)), jnp.float32)

    def network(x: Any) -> Any:
        x = jax.lax.conv_general_dilated(x[None], kernel, (1, 2), "SAME", feature_group_count=1)
        return jax.nn.gelu(x).reshape(3, -1) @ jnp.ones((6, 2))

    program = jax.make_jaxpr(derive(network))(X)
    (found,) = evaluate(program.jaxpr, program.consts, [X])
    close(found, derive(network)(X))


def test_values_that_are_only_moved_need_no_compiler(caplog: pytest.LogCaptureFixture) -> None:
    def run(x: Any) -> Any:
        turned = jnp.flip(x.T, 0)
        return jnp.concatenate([turned, turned[:1]]).astype(jnp.float32)

    x = jax.device_put(X[:, :, 1])
    t = wrt.trace(run, x)
    with jax.log_compiles():
        value = t["turned"].value
        assert not [record for record in caplog.records if record.getMessage().startswith("Compiling")]
    assert isinstance(value, jax.Array)
    np.testing.assert_array_equal(value, np.flip(X[:, :, 1].T, 0))


def test_a_program_without_rules_or_with_much_work_is_left_to_the_compiler() -> None:
    assert pays(jax.make_jaxpr(jnp.tanh)(X).jaxpr)
    assert not pays(jax.make_jaxpr(jnp.linalg.inv)(np.eye(3, dtype=np.float32)).jaxpr)
    assert not pays(jax.make_jaxpr(jnp.tanh)(X.astype(jnp.bfloat16)).jaxpr)
    assert not pays(jax.make_jaxpr(lambda a: a @ a)(jax.ShapeDtypeStruct((4096, 4096), jnp.float32)).jaxpr)
    assert not pays(jax.make_jaxpr(lambda key: jax.random.normal(key, (3,)))(jax.random.key(0)).jaxpr)


def test_it_is_compiled_when_it_is_asked_for_again() -> None:
    heat = Heat()
    double = Later(lambda x, n: {"out": (x * n, x.sum())}, heat, static=(1,))
    for _ in range(FEW):
        heat.asked += 1
        found = double(X, 2)
        assert isinstance(found["out"][0], np.ndarray)
    heat.asked += 1
    assert isinstance(double(X, 2)["out"][0], jax.Array)
    np.testing.assert_array_equal(double(X, 2)["out"][0], found["out"][0])


def test_it_is_compiled_once_that_would_have_been_sooner() -> None:
    heat = Heat(spent=2 * ENOUGH)
    assert isinstance(Later(jnp.sin, heat)(X), jax.Array)


def test_what_is_compiled_for_some_shapes_is_still_new_for_others(caplog: pytest.LogCaptureFixture) -> None:
    def ask(n: int) -> Any:
        t = wrt.trace(lambda x: jnp.sin(x) * x.sum(), jnp.arange(float(n)))
        return (d(t.output) / d(t.inputs[0])).value

    for _ in range(2 * FEW):
        ask(5)
    x = jnp.arange(7.0)
    with jax.log_compiles():
        caplog.clear()
        found = ask(7)
        assert not [record for record in caplog.records if record.getMessage().startswith("Compiling")]
    np.testing.assert_allclose(found, np.diag(np.cos(x) * 21) + np.sin(x)[:, None], rtol=1e-5)
