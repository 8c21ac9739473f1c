"""Pull and push in the coordinates of a question: weights of its m rows in, its n columns out, and back."""

from __future__ import annotations

import time

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.plan import Lines, Way
from wrt._core.protocol import Array, Engine, Swept
from wrt._core.report import Report, Step
from wrt._run.memory import lines_per_call, smaller_call
from wrt._run.progress import Progress


class Sweeper:
    """One question and the engine that answers it; `report` keeps count of every pass."""

    __slots__ = ("arrays", "ask", "engine", "report", "two_passes")

    def __init__(self, ask: Ask, engine: Engine, report: Report) -> None:
        self.ask = ask
        self.engine = engine
        self.report = report
        self.arrays = ask.y.record.backend.arrays
        self.two_passes = ask.complex_y and not ask.complex_x  # a complex y over real x takes two real passes a row

    # ---------------------------------------------------------------- rows

    def plain(self, weights: Array, what: str, *, then_push: bool = False) -> Array | None:
        """(1, m) -> (1, n) by the engine's own unbatched pass; None where no path leads to x."""
        seeds = self.seeds(weights)
        if self.ask.complex_y:
            seeds = self.arrays.conjugate(seeds)
        turned = self.arrays.times_i(seeds) if self.two_passes else None  # before a hook can write into the seeds
        found = self.columns(self.engine.plain(seeds, then_push=then_push and not self.two_passes), 1)
        if turned is not None and found is not None:
            second = self.columns(self.engine.plain(turned), 1)
            found = found if second is None else self.arrays.complex(found, second)
        elif self.ask.complex_y and found is not None:
            found = self.arrays.conjugate(found)
        passes = 1 + self.two_passes
        self._add(what, "pull", "one by one", passes, passes)
        return found

    def only_row(self) -> Array | None:
        """(1, n): the row of a question about one, by one plain pass."""
        if self.ask.complex_y:
            return self.plain(None, "rows")
        self.report.steps.append(Step("rows", "pull", "one by one", 1, 1))
        return self.columns(self.engine.plain(self.arrays.one_hot(self.ask.y, self.ask.rows.positions)), 1)

    def row(self, row: int, what: str = "rows") -> Array | None:
        """One row of the question, (1, n), by one plain pass."""
        weights = np.zeros((1, self.ask.m))
        weights[0, row] = 1
        return self.plain(self.arrays.from_numpy(weights, self.ask.y), what)

    def pull(self, seeds: Array, what: str, *, batched: bool = True) -> Array | None:
        """(k, *y.shape) -> (k, n) in one call, or in as many plain ones; None where no path leads to x.

        The adjoint takes the conjugate of its seed, a row of u @ J does not: complex seeds and results are turned round.
        """
        started, count = time.perf_counter(), self.arrays.shape(seeds)[0]
        if self.ask.complex_y:
            seeds = self.arrays.conjugate(seeds)
        turned = self.arrays.times_i(seeds) if self.two_passes else None
        swept = self.engine.pull(seeds, batched=batched)
        found = self.columns(swept.arrays, count)
        if found is not None and turned is not None:
            second = self.columns(self.engine.pull(turned, batched=batched).arrays, count)
            found = found if second is None else self.arrays.complex(found, second)
        elif found is not None and self.ask.complex_y:
            found = self.arrays.conjugate(found)
        self._count(swept, what, "pull", count * (1 + self.two_passes), started)
        return found

    def pull_weights(self, weights: Array, what: str, *, batched: bool = True) -> Array | None:
        """(k, m) -> (k, n), as many to a call as are swept fastest."""
        count = self.arrays.shape(weights)[0]
        size = lines_per_call(self.ask, count)
        if count <= size:
            return self.pull(self.seeds(weights), what, batched=batched)
        blocks = [
            self.pull(self.seeds(weights[start : start + size]), what, batched=batched) for start in range(0, count, size)
        ]
        return None if blocks[0] is None else self.arrays.concat(blocks, 0)

    def rows(self, rows: Positions, what: str, *, batched: bool = True) -> Array | None:
        """Some rows of the question, (k, n)."""
        ask = self.ask
        positions = rows if ask.rows.shape is ask.rows.of or ask.rows.everything else ask.rows.positions[rows]
        return self.pull(self.arrays.one_hot(ask.y, positions), what, batched=batched)

    def seeds(self, weights: Array | None) -> Array:
        """(k, m) weights of the rows that were asked for, as seeds of all of y; None: of a question about one row."""
        arrays, ask = self.arrays, self.ask
        if weights is None:
            return arrays.one_hot(ask.y, ask.rows.positions)
        if ask.rows.shape is ask.rows.of or ask.rows.everything:
            return arrays.reshape(weights, (-1, *ask.y.shape) if ask.y.shape else (-1,))
        return arrays.spread(ask.y, ask.rows.positions, weights)

    def columns(self, pulled: list[Array | None], count: int) -> Array | None:
        """The columns that were asked for, (k, n), from what was pulled to whole Values."""
        arrays, parts = self.arrays, self.ask.x.parts
        part = parts[0]
        if len(parts) == 1 and part.into is None and not part.component:
            gradient, elements = pulled[0], part.elements
            if gradient is None:
                return None
            flat = arrays.reshape(gradient, (count, -1))
            whole = elements.shape is elements.of or (elements.shape != () and elements.everything)
            return flat if whole else arrays.take(flat, elements.positions, 1)
        if all(gradient is None for gradient in pulled):
            return None
        result = arrays.zeros((count, self.ask.n), self.ask.x.values[0])
        for k, part in enumerate(parts):
            found = self._columns_of(k, pulled[k], count)
            if found is not None:
                result = arrays.place(result, (slice(None), slice(None) if part.into is None else part.into), found)
        return result

    def _columns_of(self, k: int, gradient: Array | None, count: int) -> Array | None:
        if gradient is None:
            return None
        arrays, part = self.arrays, self.ask.x.parts[k]
        if part.component == "pairs":
            gradient = arrays.pairs(gradient)
        flat = arrays.reshape(gradient, (count, -1))
        return flat if part.elements.everything else arrays.take(flat, part.elements.positions, 1)

    # ---------------------------------------------------------------- columns

    def push(self, weights: Array, what: str, *, batched: bool = True) -> Array | None:
        """(k, n) -> (k, m) in one call; None where no path leads to y. Raises CannotSweep."""
        arrays, ask, started = self.arrays, self.ask, time.perf_counter()
        swept = self.engine.push(self._tangents(weights), batched=batched)
        (pushed,) = swept.arrays
        count = arrays.shape(weights)[0]
        self._count(swept, what, "push", count, started)
        if pushed is None:
            return None
        flat = arrays.reshape(pushed, (count, -1))
        return flat if ask.rows.shape is ask.rows.of or ask.rows.everything else arrays.take(flat, ask.rows.positions, 1)

    def push_columns(self, columns: Positions, what: str, *, batched: bool = True) -> Array | None:
        """These columns of the question, (k, m), in the numbers that an answer has: those of x."""
        pushed = self.push(self.unit_columns(columns), what, batched=batched)
        return None if pushed is None else self._as_x(pushed)

    def unit_columns(self, columns: Positions) -> Array:
        """(k, n): a one at each column."""
        weights = np.zeros((len(columns), self.ask.n), dtype=np.float32)
        weights[np.arange(len(columns)), columns] = 1.0
        return self.arrays.from_numpy(weights, self.ask.x.parts[0].value)

    def _tangents(self, weights: Array) -> list[Array | None]:
        """Tangents (k, n) of the question as tangents of the whole Values of x."""
        arrays, count = self.arrays, self.arrays.shape(weights)[0]
        only = self.ask.x.parts[0]
        if len(self.ask.x.parts) == 1 and only.into is None and not only.component and only.elements.shape is only.elements.of:
            return [arrays.reshape(arrays.cast(weights, only.value), (count, *only.value.shape))]
        batches: list[Array | None] = []
        for part in self.ask.x.parts:
            of_part = weights if part.into is None else arrays.take(weights, part.into, 1)
            if part.component == "pairs":
                batches.append(arrays.spread_pairs(part.value, part.elements.positions, of_part))
            elif part.elements.everything:
                batches.append(arrays.reshape(arrays.cast(of_part, part.value), (count, *part.value.shape)))
            else:
                batches.append(arrays.spread(part.value, part.elements.positions, of_part))
        return batches

    def _as_x(self, pushed: Array) -> Array:
        """What was pushed has y's precision; an answer has x's."""
        arrays, ask, x = self.arrays, self.ask, self.ask.x.parts[0].value
        if ask.y.dtype == x.dtype or ask.x.parts[0].component:
            return pushed
        if not ask.complex_y or ask.complex_x:
            return arrays.cast(pushed, x)
        pairs = arrays.cast(arrays.pairs(pushed), x)
        return arrays.complex(pairs[..., 0], pairs[..., 1])

    # ---------------------------------------------------------------- all lines

    def lines(self, plan: Lines) -> Array | None:
        """(m, n): every row or every column, some to a call, into an array that is allocated once.

        A call for which the system refuses memory is made smaller.
        """
        ask, arrays, pulls = self.ask, self.arrays, plan.way == "pull"
        what, count = ("rows", ask.m) if pulls else ("columns", ask.n)
        size = lines_per_call(ask, count)
        if count <= size:
            try:
                block = self._some_lines(plan, np.arange(count), what)
                return block if block is None or pulls else arrays.transpose(block)
            except Exception as error:
                size = smaller_call(error, size)
        sheet, start = arrays.sheet((ask.m, ask.n), ask.x.parts[0].value), 0
        with Progress(f"{count} {what} of a {ask.m} x {ask.n} Jacobian", count) as progress:
            while start < count:
                chosen = np.arange(start, min(start + size, count))
                try:
                    block = self._some_lines(plan, chosen, what)
                except Exception as error:
                    size = smaller_call(error, size)
                    continue
                if block is None:
                    return None
                sheet.write(start, block, columns=not pulls)
                del block
                start += len(chosen)
                progress.advance(len(chosen))
        return sheet.array()

    def _some_lines(self, plan: Lines, chosen: Positions, what: str) -> Array | None:
        sweep = self.rows if plan.way == "pull" else self.push_columns
        return sweep(chosen, what, batched=plan.batched)

    def _count(self, swept: Swept, what: str, way: Way, passes: int, started: float) -> None:
        """A sweep of several lines; what the framework refused is told once."""
        self._add(what, way, swept.method, passes, swept.calls, time.perf_counter() - started)
        for words in swept.refused:
            if words not in self.report.fallbacks:
                self.report.fallbacks.append(words)

    def _add(self, what: str, way: Way, method: str, passes: int, calls: int, seconds: float = 0.0) -> None:
        """One step for all calls of one kind that follow one another."""
        steps = self.report.steps
        last = steps[-1] if steps else None
        if last is not None and (last.what, last.way, last.method) == (what, way, method):
            last.passes, last.calls, last.seconds = last.passes + passes, last.calls + calls, last.seconds + seconds
        else:
            steps.append(Step(what, way, method, passes, calls, seconds))
