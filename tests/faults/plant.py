"""Put a fault where arrays are made, while the first plan runs; everything that the proof does stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.faults.faults import Fault, Numbers, spoil
from wrt._core.pattern import NOBODY, listed
from wrt._core.plan import Lines, Plan, Product, Sum
from wrt._run import answer, compact, run, sweep
from wrt._run.blocks import Blocks
from wrt._run.forms import Dense, Factored, Form, Sparse


class Plant:
    """Whether the first plan runs, how often the fault was put in, and what the plan then handed out."""

    def __init__(self, fault: Fault, size: float) -> None:
        self.fault = fault
        self.size = size
        self.active = False
        self.plans = 0
        self.fired = 0
        self.plan: Plan | None = None
        self.ask: Any = None
        self.handed_out: Numbers | None = None

    def spoil(self, arrays: Any, array: Any, like: Any) -> Any:
        """A spoiled copy of an array of the framework."""
        self.fired += 1
        return arrays.from_numpy(spoil(self.fault, arrays.numpy(array), self.size), like)

    def once(self) -> bool:
        """True the first time while the first plan runs."""
        return self.active and self.fired == 0


@contextmanager
def first_plan_watched(plant: Plant, *, whole: bool = False) -> Iterator[pytest.MonkeyPatch]:
    """The fault is in reach while the first plan runs; `whole`: it is put into what that plan hands out."""
    right = answer.run

    def watched(sweeper: Any, plan: Plan, **how: Any) -> Form | None:
        plant.plans += 1
        if plant.plans > 1:
            return right(sweeper, plan, **how)
        plant.plan, plant.ask, plant.active = plan, sweeper.ask, True
        try:
            form = right(sweeper, plan, **how)
        finally:
            plant.active = False
        if form is not None and whole:
            form = spoil_form(plant, form)
        if form is not None:
            plant.handed_out = np.array(sweeper.arrays.numpy(form.dense()), dtype=np.float64)
        return form

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer, "run", watched)
        yield patch


def spoil_form(plant: Plant, form: Form) -> Form:
    """What a plan hands out, in its own layout."""
    ask: Any = form.ask  # type: ignore[attr-defined]
    arrays, x = ask.y.record.backend.arrays, ask.x.values[0]
    if isinstance(form, Sparse):
        from scipy.sparse import csr_array

        plant.fired += 1
        return Sparse(ask, csr_array(spoil(plant.fault, form.matrix.toarray(), plant.size).astype(form.matrix.dtype)))
    if isinstance(form, Factored):
        return Factored(ask, form.last, plant.spoil(arrays, form.first, x))
    return Dense(ask, plant.spoil(arrays, form.dense(), x))


# ---------------------------------------------------------------- places

Place = Callable[[pytest.MonkeyPatch, Plant], None]


def engine_pull(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """What one batched call of the engine returns, for the first x."""
    right = sweep.Sweeper.pull

    def pull(self: Any, seeds: Any, what: str, *, batched: bool = True) -> Any:
        found = right(self, seeds, what, batched=batched)
        return plant.spoil(self.arrays, found, self.ask.x.values[0]) if plant.once() and batched else found

    patch.setattr(sweep.Sweeper, "pull", pull)


def engine_push(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    right = sweep.Sweeper.push

    def push(self: Any, weights: Any, what: str, *, batched: bool = True) -> Any:
        found = right(self, weights, what, batched=batched)
        return plant.spoil(self.arrays, found, self.ask.y) if plant.once() and batched else found

    patch.setattr(sweep.Sweeper, "push", push)


def seeds_of_rows(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """The seeds of a direct sweep by rows, and those of lines that travel together."""
    rows, shared = sweep.Sweeper.pull, run._seeds

    def pull(self: Any, seeds: Any, what: str, *, batched: bool = True) -> Any:
        return rows(self, plant.spoil(self.arrays, seeds, self.ask.y) if plant.once() else seeds, what, batched=batched)

    def together(ask: Any, compression: Any, like: Any) -> Any:
        seeds = shared(ask, compression, like)
        return plant.spoil(ask.y.record.backend.arrays, seeds, like) if plant.once() else seeds

    patch.setattr(sweep.Sweeper, "pull", pull)
    patch.setattr(run, "_seeds", together)


def seeds_of_columns(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    right = sweep.Sweeper.push

    def push(self: Any, weights: Any, what: str, *, batched: bool = True) -> Any:
        spoiled = plant.spoil(self.arrays, weights, self.ask.x.values[0]) if plant.once() else weights
        return right(self, spoiled, what, batched=batched)

    patch.setattr(sweep.Sweeper, "push", push)


def dense_layout(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """Entries that travelled together, where they are put in their places."""
    right = run.Shared.dense

    def dense(self: Any) -> Any:
        found = right(self)
        return plant.spoil(self.arrays, found, self.ask.x.values[0]) if plant.once() else found

    patch.setattr(run.Shared, "dense", dense)


def sparse_layout(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    from scipy.sparse import csr_array

    right = run.Shared.csr

    def csr(self: Any) -> Any:
        found = right(self)
        if not plant.once():
            return found
        plant.fired += 1
        return csr_array(spoil(plant.fault, found.toarray(), plant.size).astype(found.dtype))

    patch.setattr(run.Shared, "csr", csr)


def passes_together(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """What lines that travelled together returned, before their entries are told apart."""
    right = run.run_shared

    def shared(sweeper: Any, plan: Lines) -> Any:
        found = right(sweeper, plan)
        if found is not None and plant.once():
            like = sweeper.ask.x.values[0] if plan.way == "pull" else sweeper.ask.y
            found.passes = plant.spoil(sweeper.arrays, found.passes, like)
        return found

    patch.setattr(run, "run_shared", shared)


def columns_alone(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """Full columns that are pushed one by one beside shared rows."""
    right = run.run_shared

    def shared(sweeper: Any, plan: Lines) -> Any:
        found = right(sweeper, plan)
        if found is not None and plant.once():
            found.alone = plant.spoil(sweeper.arrays, found.alone, sweeper.ask.x.values[0])
        return found

    patch.setattr(run, "run_shared", shared)


def product_of_factors(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """The product of a cut or a chain."""
    right = run.multiply

    def multiply(arrays: Any, chain: list[Blocks]) -> Blocks:
        found = right(arrays, chain)
        if len(chain) < 2 or not plant.once():
            return found
        return replace(found, array=plant.spoil(arrays, found.array, plant.ask.x.values[0]))

    patch.setattr(run, "multiply", multiply)


def last_factor(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    _factor(patch, plant, 0)


def first_factor(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    _factor(patch, plant, -1)


def _factor(patch: pytest.MonkeyPatch, plant: Plant, place: int) -> None:
    right = run.multiply

    def multiply(arrays: Any, chain: list[Blocks]) -> Blocks:
        chain = list(chain)
        if len(chain) > 1 and plant.once():
            chain[place] = replace(chain[place], array=plant.spoil(arrays, chain[place].array, plant.ask.x.values[0]))
        return right(arrays, chain)

    patch.setattr(run, "multiply", multiply)


def rows_carried(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """Rows that are pulled on through a stretch."""
    right = sweep.Sweeper.pull_weights

    def pull(self: Any, weights: Any, what: str, *, batched: bool = True) -> Any:
        found = right(self, weights, what, batched=batched)
        if what != "rows carried on" or not plant.once():
            return found
        return plant.spoil(self.arrays, found, self.ask.x.values[0])

    patch.setattr(sweep.Sweeper, "pull_weights", pull)


def last_weights(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    right = run._last_weights

    def weights(ask: Any) -> Any:
        found = right(ask)
        return plant.spoil(ask.y.record.backend.arrays, found, ask.y) if plant.once() else found

    patch.setattr(run, "_last_weights", weights)


def patches(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    right = run._patch

    def patched(sweeper: Any) -> Any:
        found = right(sweeper)
        return plant.spoil(sweeper.arrays, found, sweeper.ask.x.values[0]) if plant.once() else found

    patch.setattr(run, "_patch", patched)


def calls_written(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """Lines that are written into a sheet, call by call: the second one."""
    right: Any = sweep.Sweeper.lines

    def lines(self: Any, plan: Lines) -> Any:
        sheet = type(self.arrays.sheet((2, 2), self.ask.x.values[0]))
        write, calls = sheet.write, [0]

        def spoiled(target: Any, start: int, block: Any, *, columns: bool) -> None:
            calls[0] += 1
            if calls[0] == 2 and plant.active:
                block = plant.spoil(self.arrays, block, self.ask.x.values[0])
            write(target, start, block, columns=columns)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(sheet, "write", spoiled)
            return right(self, plan)

    patch.setattr(sweep.Sweeper, "lines", lines)


def calls_written_aside(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """The second call is written one line too early."""
    right: Any = sweep.Sweeper.lines

    def lines(self: Any, plan: Lines) -> Any:
        sheet = type(self.arrays.sheet((2, 2), self.ask.x.values[0]))
        write, calls = sheet.write, [0]

        def spoiled(target: Any, start: int, block: Any, *, columns: bool) -> None:
            calls[0] += 1
            plant.fired += calls[0] == 2 and plant.active
            write(target, start - (calls[0] == 2 and plant.active), block, columns=columns)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(sheet, "write", spoiled)
            return right(self, plan)

    patch.setattr(sweep.Sweeper, "lines", lines)


def call_lost(patch: pytest.MonkeyPatch, plant: Plant) -> None:
    """A sweep that finds no path where there is one."""
    right = sweep.Sweeper.lines

    def lines(self: Any, plan: Lines) -> Any:
        found = right(self, plan)
        if plant.once():
            plant.fired += 1
            return None
        return found

    patch.setattr(sweep.Sweeper, "lines", lines)


# ---------------------------------------------------------------- spoiled plans

Change = Callable[[Any, Numbers], Any]
"""A plan and the truth -> a plan that is wrong."""


@contextmanager
def first_plan_spoiled(plant: Plant, change: Change, truth: Numbers) -> Iterator[None]:
    """The first plan is another one than it should be."""

    def wrong(right: Any) -> Any:
        def plans(*given: Any, **how: Any) -> Iterator[Plan]:
            for number, plan in enumerate(right(*given, **how)):
                if number == 0 and plant.plans == 0:
                    plant.fired += 1
                    yield change(plan, truth)
                yield plan

        return plans

    with first_plan_watched(plant) as patch:
        patch.setattr(answer, "plans", wrong(answer.plans))
        patch.setattr(compact, "better", wrong(compact.better))
        yield


def _owners(plan: Lines, change: Callable[[Any], None]) -> Lines:
    assert plan.shared is not None
    owner = plan.shared.owner
    change(owner)
    return replace(plan, shared=listed(owner, plan.shared.color, plan.shared.shape, plan.shared.way))


def _entry(owner: Any, way: str, slot: Any) -> tuple[int, int]:
    line, along = int(owner[tuple(slot)]), int(slot[1])
    return (line, along) if way == "pull" else (along, line)


def _slots(plan: Lines, owner: Any, truth: Numbers) -> Any:
    """Slots of the passes that hold something, the largest last."""
    assert plan.shared is not None
    slots = np.argwhere(owner != NOBODY)
    return slots[np.argsort([abs(truth[_entry(owner, plan.shared.way, slot)]) for slot in slots], kind="stable")]


def lose_an_entry(plan: Lines, truth: Numbers) -> Lines:
    def change(owner: Any) -> None:
        owner[tuple(_slots(plan, owner, truth)[-1])] = NOBODY

    return _owners(plan, change)


def move_an_entry(plan: Lines, truth: Numbers) -> Lines:
    def change(owner: Any) -> None:
        slot = tuple(_slots(plan, owner, truth)[-1])
        owner[slot] = (owner[slot] + 1) % (owner.max() + 1)

    return _owners(plan, change)


def shift_the_window(plan: Lines, truth: Numbers) -> Lines:
    def change(owner: Any) -> None:
        owner[:] = np.roll(owner, 1, axis=1)

    return _owners(plan, change)


def exchange_two_passes(plan: Lines, truth: Numbers) -> Lines:
    def change(owner: Any) -> None:
        owner[[0, -1]] = owner[[-1, 0]]

    return _owners(plan, change)


def one_color_for_all(plan: Lines, truth: Numbers) -> Lines:
    """Lines that meet travel together."""
    assert plan.shared is not None
    shared = plan.shared
    color, owner = shared.color.copy(), shared.owner
    color[color == 1] = 0
    return replace(plan, shared=listed(owner, color, shared.shape, shared.way))


def other_columns_alone(plan: Lines, truth: Numbers) -> Lines:
    assert plan.alone is not None
    return replace(plan, alone=(plan.alone + 1) % truth.shape[1])


def no_columns_alone(plan: Lines, truth: Numbers) -> Lines:
    return replace(plan, alone=None)


def forget_a_term(plan: Sum, truth: Numbers) -> Sum:
    return replace(plan, terms=tuple(term for term in plan.terms if term is not None))


def a_term_twice(plan: Sum, truth: Numbers) -> Sum:
    return replace(plan, terms=(*plan.terms, next(term for term in plan.terms if term is not None)))


def x_twice(plan: Sum, truth: Numbers) -> Sum:
    return replace(plan, terms=(*plan.terms, None))


def half_a_cut(plan: Product, truth: Numbers) -> Product:
    """A cut of two tensors, one of which is left out: not everything passes the other."""
    return replace(plan, cuts=(plan.cuts[0][:1],))


OF_SHARED_LINES: dict[str, Change] = {
    "an entry lost from the pattern": lose_an_entry,
    "an entry owned by the next line": move_an_entry,
    "the window shifted by one": shift_the_window,
    "two passes exchanged": exchange_two_passes,
    "lines that meet in one pass": one_color_for_all,
}
OF_COLUMNS_ALONE: dict[str, Change] = {
    "other columns pushed alone": other_columns_alone,
    "no columns pushed alone": no_columns_alone,
}
OF_A_SUM: dict[str, Change] = {
    "a term of the sum forgotten": forget_a_term,
    "a term of the sum twice": a_term_twice,
    "x twice in the sum": x_twice,
}
OF_A_CUT: dict[str, Change] = {"half of a cut": half_a_cut}
