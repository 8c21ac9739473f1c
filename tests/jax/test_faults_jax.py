"""Faults planted at every kind of plan of JAX: noticed, told and answered right (see tests/faults)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import wrt
from tests.faults import plant as places
from tests.faults.faults import OF_A_BATCH, OF_A_FACTOR, OF_A_MATRIX, SIZES, Fault, spoil
from tests.faults.jax_answers import question, row_loop
from tests.faults.jax_programs import PROGRAMS, burgers, like, narrow, network
from tests.faults.judge import ROUNDINGS, counted, require_noticed, require_right
from tests.faults.plant import Place, Plant
from tests.jax import _wrong_batch
from wrt import d
from wrt._run.function import Function

Told = Callable[[str, object], None]
NAMES = list(PROGRAMS)
NARROW = ["direct pull", "structured push", "cut"]
"""Plans that are tried in narrow types too: each program is compiled anew."""


@pytest.fixture(autouse=True)
def planned(planned_from_the_start: None) -> Iterator[None]:
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, about numbers that are not finite
        yield


@pytest.mark.parametrize("fault", OF_A_MATRIX)
def test_a_fault_in_what_a_plan_hands_out(fault: str, record_property: Told) -> None:
    words = []
    for dtype in ROUNDINGS:
        some = NAMES if dtype == "float64" else NARROW
        found = [question(name, dtype).plant(OF_A_MATRIX[fault]) for name in some]
        assert dtype == "bfloat16" or fault == "a small column scaled" or all(one.noticed for one in found)
        words.append(f"{dtype} {counted(found)}")
    record_property("told", f"JAX, {fault}: {'; '.join(words)}")


SHARED = ["structured pull", "colored, columns apart"]
PUSHED = ["structured push", "banded", "colored"]
AT: dict[str, tuple[Place, dict[str, Fault], list[str]]] = {
    "a batched pull": (places.engine_pull, OF_A_BATCH, ["direct pull", "last layer's weights", *SHARED, "cut", "sum", "chain"]),
    "a batched push": (places.engine_push, OF_A_BATCH, ["direct push", *PUSHED, "cut", "sum"]),
    "seeds of rows": (places.seeds_of_rows, OF_A_BATCH, ["direct pull", *SHARED]),
    "seeds of columns": (places.seeds_of_columns, OF_A_BATCH, ["direct push", *PUSHED]),
    "passes of lines together": (places.passes_together, OF_A_BATCH, [*SHARED, *PUSHED]),
    "the dense layout": (places.dense_layout, OF_A_FACTOR, [*SHARED, *PUSHED]),
    "the product": (places.product_of_factors, OF_A_FACTOR, ["cut", "sum"]),
    "the last factor": (places.last_factor, OF_A_FACTOR, ["cut", "sum"]),
    "the first factor": (places.first_factor, OF_A_FACTOR, ["cut", "sum"]),
    "the last layer's weights": (places.last_weights, OF_A_FACTOR, ["last layer's weights"]),
    "calls written to a sheet": (places.calls_written, OF_A_BATCH, ["direct pull, many calls"]),
    "a sweep that finds no path": (places.call_lost, {"the sweep": lambda J, size: J}, ["direct pull", "direct push"]),
}


@pytest.mark.parametrize("place", AT)
def test_a_fault_where_arrays_are_made(place: str, record_property: Told) -> None:
    put, faults, names = AT[place]
    found = [question(name, "float64").plant(fault, put) for fault in faults.values() for name in names]
    record_property("told", f"JAX, {place}: {len(faults)} faults, {', '.join(names)}: float64 {counted(found)}")


@pytest.mark.parametrize("words", places.OF_SHARED_LINES)
def test_a_plan_that_is_wrong(words: str, record_property: Told) -> None:
    found = [question(name, "float64").plant_plan(places.OF_SHARED_LINES[words]) for name in (*SHARED, *PUSHED)]
    record_property("told", f"JAX, {words}: {counted(found)}")


@pytest.mark.parametrize("name", NAMES)
def test_how_small_a_fault_still_shows(name: str, record_property: Told) -> None:
    words = []
    for dtype in ROUNDINGS if name in NARROW else ("float64",):
        smallest = question(name, dtype).smallest_noticed()
        if dtype != "bfloat16":
            assert max(smallest) < 1e4 * ROUNDINGS[dtype], smallest
        words.append(f"{dtype} {smallest[0]:.1g} and {smallest[1]:.1g}")
    record_property("told", f"JAX, smallest fault noticed (a column scaled by 1 + s; one entry), {name}: {'; '.join(words)}")


# ---------------------------------------------------------------- J.function()

SHOWN = ("two columns exchanged", "two rows exchanged", "a block dropped", "the largest column scaled", "everything NaN")
FUNCTIONS = {"direct pull": network(40, 50), "direct push": network(120, 20), "banded": burgers, "cut": narrow}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_fault_in_a_function_of_the_point(name: str, monkeypatch: pytest.MonkeyPatch, record_property: Told) -> None:
    program, f = PROGRAMS[name], FUNCTIONS[name]
    x = jnp.asarray(program.point(1))
    truth = row_loop(f, x)
    right, hows = Function._answer, []
    for fault in SHOWN:
        plant = Plant(OF_A_MATRIX[fault], SIZES["float64"])

        def answer(self: Any, plan: Any, dense: bool, leaves: Any, plant: Plant = plant) -> Any:
            found = right(self, plan, dense, leaves)
            if plan is not self._plan:
                return found
            plant.fired += 1
            like = jax.ShapeDtypeStruct(found.shape, found.dtype)
            return jax.pure_callback(lambda J: spoil(plant.fault, J, plant.size).astype(J.dtype), like, found)

        monkeypatch.setattr(Function, "_answer", answer)
        jac = (lambda run: d(run.output) / d(run.inputs[0]))(wrt.trace(f, jnp.asarray(program.point()))).function()
        require_right(jac(x), truth, "float64")
        assert plant.fired
        assert jac.certificate
        hows.append(fault)
    record_property("told", f"JAX, J.function(), {name}: {len(hows)} of {len(hows)} noticed, answered line by line")


def test_a_function_whose_sums_of_rows_round_is_not_refused() -> None:
    """Terms that cancel: plain rows are the engine's own word."""

    def f(x: Any) -> Any:
        tokens = jnp.cumsum(jnp.cumprod(1 + 0.1 * jnp.sqrt(x * x + 0.1), -1), 0)
        return jax.nn.softmax(tokens @ tokens.T / 2, -1) @ tokens

    for dtype, most in (("float64", 1e-11), ("float32", 1e-3)):
        x = jnp.asarray(np.random.default_rng(1).standard_normal((20, 4)), dtype)
        run = wrt.trace(f, x)
        J = d(run.output) / d(run.inputs[0])
        jac, truth = J.function(), row_loop(f, x)
        for found, certificate in ((jac(x), jac.certificate), (J.value, J.certificate)):
            np.testing.assert_allclose(np.asarray(found, np.float64).reshape(80, 80), truth, atol=most * np.abs(truth).max())
            assert certificate


# ---------------------------------------------------------------- stories


@pytest.mark.parametrize("size", [30, 90])
def test_a_batching_rule_that_is_wrong(size: int, record_property: Told) -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal(size))

    def f(x: Any) -> Any:
        return like(x, size, size) @ _wrong_batch.doubled(jnp.sin(x))

    truth = row_loop(f, x)
    for _ in range(6):
        run = wrt.trace(f, x)
        J = d(run.output) / d(run.inputs[0])
        require_right(J.value, truth, "float64")
        report = J.explain().report
        assert report is not None
        require_noticed(report)
    jac = J.function()
    require_right(jac(x), truth, "float64")
    assert jac.certificate
    record_property("told", f"JAX, a wrong batching rule, {size} x {size}, six asks and a function: noticed")


def named(factor: float) -> Callable[[Any], Any]:
    """A function that is always called the same; its batching rule may be wrong."""

    @jax.custom_batching.custom_vmap
    def turn(g: Any) -> Any:
        return 2 * g

    turn.def_vmap(lambda size, batched, g: (factor * 2 * g, batched[0]))

    @jax.custom_vjp
    def scale(x: Any) -> Any:
        return 2 * x

    scale.defvjp(lambda x: (2 * x, None), lambda _, g: (turn(g),))
    return scale


def test_a_batching_rule_that_is_wrong_under_a_name_that_was_right() -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal(40))
    for factor in (1.0, 3.0, 1 + 1e-9, 1.0):
        scale = named(factor)
        f = lambda x, scale=scale: like(x, 40, 40) @ scale(jnp.sin(x))
        run = wrt.trace(f, x)
        J = d(run.output) / d(run.inputs[0])
        require_right(J.value, row_loop(f, x), "float64")
        assert J.certificate
        assert bool(J.explain().fallbacks or J.certificate.words) == (factor != 1.0)


CASTS: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "int8": (lambda e: jnp.where((e * 100).astype(jnp.int8) == 127, e**2, 3 * e), [2.0, 1.27, -3.0]),
    "uint8": (lambda e: jnp.where((e * 100).astype(jnp.uint8) == 255, e**2, 3 * e), [5.0, -5.0, 0.4]),
    "NaN": (lambda e: jnp.where(jnp.log(e).astype(jnp.int32) == 0, e**2, 3 * e), [-1.0, 1.0, 9.0]),
    "switch": (lambda e: lax.switch((e * 3).astype(jnp.int32), [jnp.sin, jnp.cos, jnp.exp], e), [5.0, -5.0, 0.4]),
    "remainder": (lambda e: jnp.where(lax.rem(e.astype(jnp.int32), jnp.int32(0)) == 3, e**2, 3 * e), [3.0, -3.0, 0.4]),
    "half": (lambda e: jnp.where(e.astype(jnp.bfloat16) == 1.0, e**2, 3 * e), [1.001, 1.0, 1.1]),
}


@pytest.mark.parametrize("cast", CASTS)
def test_a_cast_takes_the_branch_that_jax_takes(cast: str) -> None:
    f, points = CASTS[cast]
    for point in points:
        x = jnp.full((3,), point, jnp.float32)

        def both(x: Any) -> Any:
            return jnp.stack([f(x[0]), 2 * f(x[1]) + f(x[2])])

        truth = np.asarray(jax.jacrev(both)(x), np.float64)
        for _ in range(3):
            run = wrt.trace(both, x)
            J = d(run.output) / d(run.inputs[0])
            np.testing.assert_allclose(np.asarray(J.value, np.float64), truth, rtol=1e-6, atol=1e-7)
            assert J.certificate
        np.testing.assert_allclose(np.asarray(J.function()(x), np.float64), truth, rtol=1e-6, atol=1e-7)


PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {"u @ J": lambda J, u: u @ J, "J @ v": lambda J, v: J @ v}


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("fault", OF_A_BATCH)
def test_a_fault_in_a_product(product: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, way = question("direct pull", "float64"), "pull" if product == "u @ J" else "push"
    J, plant = asked.derivative(), Plant(OF_A_BATCH[fault], 1e-9)
    engine = type(J.ask.y.record.engine(J.ask.y, J.ask.x.values))
    right = getattr(engine, way)

    def sweep(self: Any, given: Any, *, batched: bool = True) -> Any:
        swept = right(self, given, batched=batched)
        if batched and not plant.fired:
            plant.fired += 1
            swept.arrays[-1] = jnp.asarray(spoil(plant.fault, np.asarray(swept.arrays[-1]), plant.size))
        return swept

    monkeypatch.setattr(engine, way, sweep)
    given = np.random.default_rng(3).standard_normal((12, 40) if way == "pull" else (50, 12))
    got = PRODUCTS[product](J, jnp.asarray(given))
    require_right(got, given @ asked.truth if way == "pull" else asked.truth @ given, "float64")
    assert plant.fired
    require_noticed(J.explain().report)
