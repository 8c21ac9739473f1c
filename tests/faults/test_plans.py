"""Every kind of plan, in torch: a fault in what the first plan hands out, or where its arrays are made, is noticed.

It is told in explain(), and answered right by the next plan, as a loop of plain backward passes has it, with a true certificate.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from tests.faults import plant as places
from tests.faults.faults import OF_A_BATCH, OF_A_FACTOR, OF_A_MATRIX, Fault
from tests.faults.judge import ROUNDINGS, counted
from tests.faults.plant import Change, Place
from tests.faults.torch_answers import question, row_loop
from tests.faults.torch_programs import PROGRAMS

Told = Callable[[str, object], None]
NAMES = list(PROGRAMS)


@pytest.fixture(autouse=True)
def planned(planned_from_the_start: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from wrt._plan import plans

    monkeypatch.setattr(plans, "PATCH_SECONDS", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, about numbers that are not finite
        yield


SMALL_FAULTS = ("a small column scaled",)
"""That single precision may hide where the weighted sum of the column is near zero."""


@pytest.mark.parametrize("fault", OF_A_MATRIX)
def test_a_fault_in_what_a_plan_hands_out(fault: str, record_property: Told) -> None:
    words = []
    for kind, dtype in enumerate(ROUNDINGS):  # all plans in float64; every other one in the others
        some = [name for k, name in enumerate(NAMES) if not kind or (k + kind + len(fault)) % 2]
        found = [question(name, dtype).plant(OF_A_MATRIX[fault]) for name in some]
        assert dtype == "bfloat16" or fault in SMALL_FAULTS or all(one.noticed for one in found)
        words.append(f"{dtype} {counted(found)}")
    record_property("told", f"{fault}: {'; '.join(words)}")


DIRECT = ["direct pull", "last layer's weights"]
SHARED = ["structured pull", "banded", "colored", "colored, columns apart"]
PUSHED = ["direct push", "structured push"]
CUT = ["cut", "cut of two tensors", "sum"]
CHAIN = ["chain", "chain with heads"]
CALLS = ["direct pull, many calls", "direct push, many calls"]

def chosen(*names: str) -> dict[str, Fault]:
    return {name: OF_A_MATRIX[name] for name in names}


SOME = chosen("two columns exchanged", "rows shifted by one", "a block dropped", "the layout transposed")
ALONE = chosen("everything scaled", "rows shifted by one", "rows reversed", "a row zero", "everything zero")
AT: dict[str, tuple[Place, dict[str, Fault], list[str]]] = {
    "a batched pull": (places.engine_pull, OF_A_BATCH, [*DIRECT, *SHARED, "cut", "sum", *CHAIN]),
    "a batched push": (places.engine_push, OF_A_BATCH, [*PUSHED, *CUT]),
    "seeds of rows": (places.seeds_of_rows, OF_A_BATCH, ["direct pull", *SHARED]),
    "seeds of columns": (places.seeds_of_columns, OF_A_BATCH, PUSHED),
    "passes of lines together": (places.passes_together, OF_A_BATCH, [*SHARED, "structured push", *CHAIN]),
    "columns pushed apart": (places.columns_alone, ALONE, SHARED[-1:]),
    "the dense layout": (places.dense_layout, SOME, [*SHARED, "structured push"]),
    "the product": (places.product_of_factors, OF_A_FACTOR, [*CUT, "chain with heads"]),
    "the last factor": (places.last_factor, OF_A_FACTOR, [*CUT, "chain with heads"]),
    "the first factor": (places.first_factor, OF_A_FACTOR, [*CUT, "chain with heads"]),
    "rows carried on": (places.rows_carried, OF_A_BATCH, ["chain", "last layer's weights"]),
    "the last layer's weights": (places.last_weights, OF_A_FACTOR, ["last layer's weights"]),
    "patches": (places.patches, OF_A_BATCH | SOME, ["patch"]),
    "calls written to a sheet": (places.calls_written, OF_A_BATCH, CALLS),
    "a call written one line too early": (places.calls_written_aside, {"the call": lambda J, size: J}, CALLS),
    "a sweep that finds no path": (places.call_lost, {"the sweep": lambda J, size: J}, ["direct pull", "direct push"]),
}


@pytest.mark.parametrize("place", AT)
def test_a_fault_where_arrays_are_made(place: str, record_property: Told) -> None:
    put, faults, names = AT[place]
    found = [question(name, "float64").plant(fault, put) for fault in faults.values() for name in names]
    narrow = [question(names[0], "float32").plant(fault, put) for fault in faults.values()]
    words = f"float64 {counted(found)}; float32 {counted(narrow)}"
    record_property("told", f"{place}: {len(faults)} faults, {', '.join(names)}: {words}")


SPOILED = {
    **{words: (change, [*SHARED, "structured push"]) for words, change in places.OF_SHARED_LINES.items()},
    **{words: (change, SHARED[-1:]) for words, change in places.OF_COLUMNS_ALONE.items()},
    **{words: (change, ["sum"]) for words, change in places.OF_A_SUM.items()},
    **{words: (change, ["cut of two tensors"]) for words, change in places.OF_A_CUT.items()},
}


@pytest.mark.parametrize("words", SPOILED)
def test_a_plan_that_is_wrong(words: str, record_property: Told) -> None:
    change: Change
    change, names = SPOILED[words]
    found = [question(name, dtype).plant_plan(change) for name in names for dtype in ("float64", "float32")]
    record_property("told", f"{words}: {', '.join(names)}: {counted(found)}")


@pytest.mark.parametrize("name", NAMES)
def test_how_small_a_fault_still_shows(name: str, record_property: Told) -> None:
    """The size of a scaled column, and of one spoiled entry next to its column, by bisection."""
    words = []
    for dtype in ROUNDINGS:
        smallest = question(name, dtype).smallest_noticed()
        if dtype != "bfloat16":  # where a column whose weighted sum is near zero may be scaled by two, and nobody sees
            assert max(smallest) < 1e4 * ROUNDINGS[dtype], smallest
        words.append(f"{dtype} {smallest[0]:.1g} and {smallest[1]:.1g}")
    what = "smallest fault noticed (a column scaled by 1 + s; one entry, of its column)"
    record_property("told", f"{what}, {name}: {'; '.join(words)}")


def test_the_truth_is_that_of_double_precision() -> None:
    """The loop of plain passes in a narrow type next to the same program in float64, at the same x."""
    for name in NAMES:
        program = PROGRAMS[name]
        for dtype, most in (("float32", 1e-4), ("bfloat16", 0.5)):
            x = torch.from_numpy(program.point()).to(getattr(torch, dtype)).double().requires_grad_()
            wide = row_loop(program.f(x), x, program)
            assert np.linalg.norm(question(name, dtype).truth - wide) <= most * np.linalg.norm(wide), (name, dtype)
