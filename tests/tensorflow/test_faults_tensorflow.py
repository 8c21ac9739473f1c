"""Faults planted at every kind of plan of TensorFlow: noticed, told and answered right (see tests/faults)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from tests.faults import plant as places
from tests.faults.faults import OF_A_BATCH, OF_A_FACTOR, OF_A_MATRIX, Fault, spoil
from tests.faults.judge import ROUNDINGS, counted, require_noticed, require_right
from tests.faults.plant import Place, Plant
from tests.faults.tensorflow_answers import question, row_loop
from tests.faults.tensorflow_programs import PROGRAMS, like, times
from wrt import d

Told = Callable[[str, object], None]
NAMES = list(PROGRAMS)
NARROW = ["direct pull", "direct push", "cut"]


@pytest.fixture(autouse=True)
def planned(planned_from_the_start: None) -> Iterator[None]:
    with warnings.catch_warnings():
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
    record_property("told", f"TensorFlow, {fault}: {'; '.join(words)}")


SHARED = ["structured pull", "banded", "colored"]
AT: dict[str, tuple[Place, dict[str, Fault], list[str]]] = {
    "a batched pull": (places.engine_pull, OF_A_BATCH, ["direct pull", *SHARED, "cut", "chain"]),
    "a batched push": (places.engine_push, OF_A_BATCH, ["direct push", "cut"]),
    "seeds of rows": (places.seeds_of_rows, OF_A_BATCH, ["direct pull", *SHARED]),
    "seeds of columns": (places.seeds_of_columns, OF_A_BATCH, ["direct push"]),
    "passes of lines together": (places.passes_together, OF_A_BATCH, [*SHARED, "chain"]),
    "the dense layout": (places.dense_layout, OF_A_FACTOR, SHARED),
    "the product": (places.product_of_factors, OF_A_FACTOR, ["cut"]),
    "the last factor": (places.last_factor, OF_A_FACTOR, ["cut"]),
    "the first factor": (places.first_factor, OF_A_FACTOR, ["cut"]),
    "rows carried on": (places.rows_carried, OF_A_BATCH, ["chain"]),
    "calls written to a sheet": (places.calls_written, OF_A_BATCH, ["direct pull, many calls"]),
    "a sweep that finds no path": (places.call_lost, {"the sweep": lambda J, size: J}, ["direct pull", "direct push"]),
}


@pytest.mark.parametrize("place", AT)
def test_a_fault_where_arrays_are_made(place: str, record_property: Told) -> None:
    put, faults, names = AT[place]
    found = [question(name, "float64").plant(fault, put) for fault in faults.values() for name in names]
    record_property("told", f"TensorFlow, {place}: {len(faults)} faults, {', '.join(names)}: float64 {counted(found)}")


@pytest.mark.parametrize("words", places.OF_SHARED_LINES)
def test_a_plan_that_is_wrong(words: str, record_property: Told) -> None:
    found = [question(name, "float64").plant_plan(places.OF_SHARED_LINES[words]) for name in SHARED]
    record_property("told", f"TensorFlow, {words}: {counted(found)}")


@pytest.mark.parametrize("name", NAMES)
def test_how_small_a_fault_still_shows(name: str, record_property: Told) -> None:
    words = []
    for dtype in ROUNDINGS if name in NARROW else ("float64",):
        smallest = question(name, dtype).smallest_noticed()
        if dtype != "bfloat16":
            assert max(smallest) < 1e4 * ROUNDINGS[dtype], smallest
        words.append(f"{dtype} {smallest[0]:.1g} and {smallest[1]:.1g}")
    what = "TensorFlow, smallest fault noticed (a column scaled by 1 + s; one entry)"
    record_property("told", f"{what}, {name}: {'; '.join(words)}")


FORMS: dict[str, tuple[list[str], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sparse": (["banded", "colored", "cut"], lambda J: J.sparse().toarray(), lambda J: J),
    "diagonal": (["banded", "colored", "cut"], lambda J: J.diagonal().numpy().reshape(1, -1), lambda J: np.diag(J)[None]),
    "Gram": (["direct pull", "cut"], lambda J: J.gram().value.numpy(), lambda J: J.T @ J),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_fault_on_the_way_to_another_form(form: str) -> None:
    names, take, expected = FORMS[form]
    for name in names:
        asked = question(name, "float64")
        truth = expected(asked.truth)
        for fault in ("two columns exchanged", "a block dropped", "the largest column scaled", "one entry in the next row"):
            plant = Plant(OF_A_MATRIX[fault], 1e-9)
            with places.first_plan_watched(plant, whole=True):
                got = take(asked.derivative())
            assert plant.fired
            np.testing.assert_allclose(got.reshape(truth.shape), truth, atol=1e-13 * np.linalg.norm(truth))


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
            swept.arrays[-1] = tf.constant(spoil(plant.fault, swept.arrays[-1].numpy(), plant.size))
        return swept

    monkeypatch.setattr(engine, way, sweep)
    given = np.random.default_rng(3).standard_normal((12, 40) if way == "pull" else (50, 12))
    got = PRODUCTS[product](J, tf.constant(given))
    require_right(got, given @ asked.truth if way == "pull" else asked.truth @ given, "float64")
    assert plant.fired
    require_noticed(J.explain().report)


# ---------------------------------------------------------------- stories


@pytest.mark.parametrize("shape", [(8, 8), (15, 16)])
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_tf_roll_is_right_ten_times(shape: tuple[int, int], axis: int, record_property: Told) -> None:
    """Its batching rule takes a negative axis for one of the batch."""

    def f(x: Any) -> Any:
        rolled = tf.reshape(tf.roll(tf.sin(x) * x, 3, axis), [-1])
        return tf.tanh(times(like(x, len(rolled), len(rolled)), rolled))

    x = tf.constant(np.random.default_rng(0).standard_normal(shape))
    truth = row_loop(f, x)
    words = set()
    for _ in range(10):
        run = wrt.trace(f, x)
        J = d(run.output) / d(run.inputs[0])
        require_right(J.numpy(), truth, "float64")
        assert J.certificate
        words.update(f"{step.what} by {step.method}" for step in J.explain().steps)
        words.update(J.explain().fallbacks)
    record_property("told", f"TensorFlow, tf.roll(axis={axis}) of {shape}, ten asks: right; {'; '.join(sorted(words))[:200]}")


def test_a_custom_gradient_that_columns_lose(record_property: Told) -> None:
    """Its gradient is right, and lost to whoever differentiates it again."""

    @tf.custom_gradient
    def cube(h: Any) -> Any:
        return h**3, lambda g: tf.stop_gradient(3 * h * h * g)

    for dtype in ("float64", "float32"):
        x = tf.cast(tf.constant(np.random.default_rng(0).standard_normal(20)), dtype)

        def f(x: Any) -> Any:
            h = times(like(x, 400, 20), x)
            return tf.tanh(h) + 0.1 * cube(h)

        run = wrt.trace(f, x)
        J = d(run.output) / d(run.inputs[0])
        require_right(J.numpy(), row_loop(f, x), dtype)
        report = J.explain().report
        assert report is not None
        record_property("told", f"TensorFlow, h.tanh() + 0.1 * op(h), {dtype}: {require_noticed(report)}")
