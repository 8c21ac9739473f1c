"""Pull and push in the coordinates of the question: weights of its m rows in, its n columns out, and back."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.pattern import Way
from wrt._core.protocol import Array, CannotBatch, Linear, NotForThis
from wrt._core.report import Report, Step
from wrt._run.at_once import trusted
from wrt._run.budget import free_for
from wrt._run.certify import seed_of
from wrt._run.chunk import chunk_size
from wrt._run.columns import asked, pull_columns, spread_tangents

HANDFUL = 64  # seeds of a batch that is not cut into chunks,
SMALL = 2**20  # where together they have at most so many numbers
ABOUT = 0.9  # of the memory that was free
FEW = 2  # so few seeds are swept one by one: setting up a batch takes longer


class Sweeps:
    """Batches of seeds, on the first rung of the ladder that takes them; `report` keeps count."""

    def __init__(self, ask: Ask, linear: Linear, report: Report, *, chunk: int | None = None) -> None:
        self.ask = ask
        self.linear = linear
        self.report = report
        self.refused: set[str] = set()
        self.chunk = chunk

    def together(self, seeds: Array, what: str, kept: dict[str, Any] | None = None) -> Array | None:
        """(k, *y.shape) -> (k, n): a batch of seeds of all of y, by the shortest way.

        `kept` is what a plan keeps that asks for these very seeds every time.
        """
        count = seeds.shape[0]
        linear: Any = self.linear
        at_once = getattr(linear, "pull_at_once", None)
        if at_once is None or count <= FEW or not self._to_all_of_one or not self._goes_at_once(count, kept):
            return self.sweep(seeds, what, laid=True)
        started = time.perf_counter()
        try:
            found: Array | None = at_once(seeds, trusted(self.ask.y), kept=kept)
        except CannotBatch:  # other rungs are left
            return self.sweep(seeds, what, laid=True)
        self.report.steps.append(Step(what, "pull", linear.swept_by, count, 1, time.perf_counter() - started))
        return found

    def sweep(
        self, weights: Array, what: str, way: Way = "pull", *, plain: bool = False, laid: bool = False
    ) -> Array | None:
        """(k, m) -> (k, n) by pull, (k, n) -> (k, m) by push; None where no path leads through.

        `plain` is the engine's own unbatched pass; weights that are `laid` are seeds of all of y, for a pull. Raises
        CannotBatch where no rung is left (pushing may be refused).
        """
        arrays = self.ask.y.record.backend.arrays
        count = arrays.shape(weights)[0]
        rungs = self.linear.pull_rungs if way == "pull" else self.linear.push_rungs
        if plain or count <= FEW:
            rungs = rungs[-1:]
        size = self._size(count)
        for rung in rungs:
            if rung in self.refused:
                continue
            started = time.perf_counter()
            try:
                found = self._in_chunks(weights, size, rung, way, laid)
            except CannotBatch as refusal:
                if not isinstance(refusal, NotForThis):
                    self.refused.add(rung)
                    self.report.fallbacks.append(f"{rung}: {refusal}")
                continue
            calls = count if "one by one" in rung else -(-count // size)
            self.report.steps.append(Step(what, way, rung, count, calls, time.perf_counter() - started))
            return found
        raise CannotBatch(f"no way to {way} is left")

    def rows(self, rows: Positions, what: str, *more: Array) -> Array | None:
        """Some rows of the question, (k, n), and after them what other weights (1, m) give."""
        arrays, ask = self.ask.y.record.backend.arrays, self.ask
        seeds = arrays.one_hot(ask.y, rows if ask.rows.everything else ask.rows.positions[rows])
        return self.together(arrays.concat([seeds, *(seed_of(ask, weights) for weights in more)], 0), what)

    def nonzero(self, found: Array) -> npt.NDArray[np.bool_]:
        """Where some numbers are not zero; a NaN counts."""
        arrays = self.ask.y.record.backend.arrays
        look = getattr(arrays, "at_hand", None)
        seen = None if look is None else look(found)
        result: npt.NDArray[np.bool_] = arrays.numpy(found != 0) if seen is None else seen[0] != 0
        return result

    def set_up_push(self, weights: Array) -> Array | None:
        """Prepare to push by a pull of these weights, kept differentiable: (1, n); None where the engine needs no such.

        It is the engine's own unbatched pull, and proves what is pushed afterwards.
        """
        start = getattr(self.linear, "start_push", None)
        if start is None:
            return None
        found = asked(self.ask, start(seed_of(self.ask, weights)), 1)
        if not getattr(self.linear, "set_up", False):  # nothing had to be prepared: a pull like any other
            self.report.steps.append(Step("certificate", "pull", self.linear.pull_rungs[-1], 1, 1))
        return found

    def _in_chunks(self, weights: Array, size: int, rung: str, way: Way, laid: bool) -> Array | None:
        count = self.ask.y.record.backend.arrays.shape(weights)[0]
        if count <= size:
            return self._once(weights, rung, way, laid)
        blocks = [self._once(weights[start : start + size], rung, way, laid) for start in range(0, count, size)]
        return None if blocks[0] is None else self.ask.y.record.backend.arrays.concat(blocks, 0)

    def _size(self, count: int) -> int:
        """Seeds per call; a handful of small ones goes at once, without a look at the memory that is free."""
        if self.chunk is not None:
            return self.chunk
        return count if self._handful(count) else chunk_size(self.ask)

    def _goes_at_once(self, count: int, kept: dict[str, Any] | None) -> bool:
        """Whether so many seeds go in one call.

        On a device those of a plan do as long as about as much memory is free as when they first did: to look how wide the
        tensors on the way are takes longer than some passes.
        """
        if kept is None or not self.ask.accelerated or self.chunk is not None or self._handful(count):
            return count <= self._size(count)
        if free_for(self.ask) >= kept.get("enough", math.inf):
            return True
        fits = count <= self._size(count)
        if fits:
            kept["enough"] = int(ABOUT * free_for(self.ask))
        return fits

    def _handful(self, count: int) -> bool:
        numbers = count * max([self.ask.y.size, *[part.value.size for part in self.ask.x.parts]])
        return count <= HANDFUL and numbers <= SMALL

    def always_together(self, count: int) -> bool:
        """Whether so many seeds go to all of one x in one call, however much memory is free."""
        quick = hasattr(self.linear, "pull_at_once") and self.chunk is None
        return quick and count > FEW and self._handful(count) and self._to_all_of_one

    @property
    def _to_all_of_one(self) -> bool:
        """Whether what comes back for x is what was asked for."""
        parts = self.ask.x.parts
        return len(parts) == 1 and parts[0].into is None and not parts[0].component and parts[0].elements.everything

    def _once(self, weights: Array, rung: str, way: Way, laid: bool) -> Array | None:
        ask, arrays = self.ask, self.ask.y.record.backend.arrays
        count = arrays.shape(weights)[0]
        if way == "pull":
            return pull_columns(ask, self.linear, weights if laid else seed_of(ask, weights), rung)
        pushed = self.linear.push(spread_tangents(ask, weights), rung)
        if pushed is None:
            return None
        flat = arrays.reshape(pushed, (count, -1))
        return flat if ask.rows.everything else arrays.take(flat, ask.rows.positions, 1)
