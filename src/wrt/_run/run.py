"""Execute a plan: one match statement, recursive. Nothing is decided here but what the plan says.

A Jacobian on its way to being formed is a list of factors that are to be multiplied (`blocks.py`); rows that arrive at a
stretch may also be pulled on through it, without forming it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Elements, Positions
from wrt._core.pattern import NOBODY, Compression
from wrt._core.plan import LAST_WEIGHTS, Lines, Patch, Plan, Product, Sum, Weights
from wrt._core.protocol import Array, CannotSweep, Numbers
from wrt._core.report import Report, Step
from wrt._core.value import Part, Side, Value
from wrt._run.blocks import Blocks, add, dense, from_passes, full, layout, multiply
from wrt._run.forms import Dense, Factored, Form, Sparse
from wrt._run.sweep import Sweeper

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Factors = list[Blocks]
"""J is the product of these, from y to x."""


class PlanFailed(Exception):
    """The plan cannot be carried out in this run: the next one is tried, and `explain()` says why."""


def run(sweeper: Sweeper, plan: Plan, *, compact: bool = False) -> Form | None:
    """All of J by a plan; None where no path leads to x. `compact`: as nonzeros or factors where the plan gives those."""
    ask = sweeper.ask
    if isinstance(plan, Lines) and plan.shared is None and not plan.carried:
        array = sweeper.lines(plan)
        return None if array is None else Dense(ask, array)
    if isinstance(plan, Lines) and plan.shared is not None:
        shared = run_shared(sweeper, plan)
        if shared is None:
            return None
        return Sparse(ask, shared.csr(), shared.norms()) if compact else Dense(ask, shared.dense(), shared.norms())
    factors = _factors(sweeper, plan, [])
    if factors is None:
        return None
    arrays = sweeper.arrays
    if compact and len(factors) == 2 and all(len(factor.axes) == 2 for factor in factors):
        return Factored(ask, *[dense(arrays, factor) for factor in factors])
    return Dense(ask, dense(arrays, multiply(arrays, factors)))


def _factors(sweeper: Sweeper, plan: Plan, before: Factors) -> Factors | None:
    """What stands before, times J by this plan; None where no path leads to x."""
    ask, arrays = sweeper.ask, sweeper.arrays
    match plan:
        case Lines(carried=True):
            return _carry(sweeper, before)
        case Lines(shared=None):
            array = sweeper.lines(plan)
            return None if array is None else [*before, full(array, ask.m, ask.n)]
        case Lines():
            shared = run_shared(sweeper, plan)
            return None if shared is None else [*before, shared.blocks()]
        case Weights():
            matrix = _last_weights(ask)
            return [*before, full(arrays.reshape(matrix, (ask.m, ask.n)), ask.m, ask.n)]
        case Product():
            return _product(sweeper, plan, before)
        case Sum():
            return _sum(sweeper, plan, before)
        case Patch():
            return [*before, full(_patch(sweeper), ask.m, ask.n)]


# ---------------------------------------------------------------- products and sums


def _product(sweeper: Sweeper, plan: Product, before: Factors) -> Factors | None:
    """Factor after factor, from y to x."""
    found: Factors | None = before
    for part, factor in zip(_stretches(sweeper.ask, plan), plan.factors, strict=True):
        if found is None:
            return None
        if len(part) == 1:
            found = _factors(_sweeper(part[0], sweeper.report), factor, found)
            continue
        firsts = [run(_sweeper(one, sweeper.report), factor) for one in part]  # tensors of one cut, each by x
        if any(first is None for first in firsts):
            return None
        stacked = sweeper.arrays.concat([first.dense() for first in firsts if first is not None], 0)
        found = [*found, full(stacked, sum(one.m for one in part), part[0].n)]
    return found


def _stretches(ask: Ask, plan: Product) -> Iterator[list[Ask]]:
    """One question for each stretch between two cuts: all of one set of tensors by all of the next.

    Several, whose answers are stacked, where a stretch begins at more than one tensor.
    """
    later: list[tuple[Value, Elements]] = [(ask.y, ask.rows)]
    for cut in plan.cuts:
        values = [_at(ask, address) for address in cut]
        yield [Ask(value, rows, side_by_side(values)) for value, rows in later]
        later = [(value, Elements.all(value.shape)) for value in values]
    yield [replace_y(ask, value, rows) for value, rows in later]


def replace_y(ask: Ask, y: Value, rows: Elements) -> Ask:
    return Ask(y, rows, ask.x)


def _at(ask: Ask, address: Any) -> Value:
    record, value = ask.y.record, None
    if address is LAST_WEIGHTS:
        found = record.last_weights(ask.y, ask.x.values)
        value = None if found is None else found[0]
    else:
        value = record.at_address(ask.y, ask.x.values, address)
    if value is None:
        raise PlanFailed("a tensor of the plan is not where it was")
    return value


def side_by_side(values: list[Value]) -> Side:
    """All numbers of some Values, one after another, as a denominator."""
    if len(values) == 1:
        value = values[0]
        return Side(value.shape, (Part(value, Elements.all(value.shape)),))
    starts = np.cumsum([0, *(value.size for value in values)])
    parts = [
        Part(value, Elements(value.shape, (value.size,), 0, (1,)), np.arange(start, start + value.size))
        for value, start in zip(values, starts[:-1], strict=True)
    ]
    return Side((int(starts[-1]),), tuple(parts))


def _sweeper(ask: Ask, report: Report) -> Sweeper:
    return Sweeper(ask, ask.y.record.engine(ask.y, ask.x.values), report)


def _carry(sweeper: Sweeper, before: Factors) -> Factors | None:
    """The rows that stand before, pulled on; every row of y where nothing stands before."""
    arrays, ask = sweeper.arrays, sweeper.ask
    if not before:
        array = sweeper.lines(Lines("pull", ask.m, ""))
        return None if array is None else [full(array, ask.m, ask.n)]
    rows = dense(arrays, multiply(arrays, before))
    found = sweeper.pull_weights(rows, "rows carried on")
    return None if found is None else [full(found, arrays.shape(rows)[0], ask.n)]


def _sum(sweeper: Sweeper, plan: Sum, before: Factors) -> Factors | None:
    """Each term by its own plan, all of them times what stands before: structure survives in a term, not in the sum."""
    arrays, ask = sweeper.arrays, sweeper.ask
    ahead = [multiply(arrays, before)] if before else []
    total: Array | None = None
    for term in plan.terms:
        if term is None:
            continue
        value = _at(ask, term[0])
        if value.shape != ask.y.shape:
            raise PlanFailed("a term of the sum has another shape than it had")
        part = Ask(value, ask.rows, ask.x)
        factors = _factors(_sweeper(part, sweeper.report), term[1], ahead)
        if factors is None:
            return None
        one = dense(arrays, multiply(arrays, factors))
        total = one if total is None else total + one
    straight = plan.terms.count(None)  # terms that are x itself
    if total is None or (straight and ask.m != ask.n):
        raise PlanFailed("the sum is not what it was")
    for _ in range(straight):
        total = add(arrays, total, ahead[0]) if ahead else arrays.add_to_diagonal(total, 1.0)
    return [full(total, ahead[0].shape[0] if ahead else ask.m, ask.n)]


def _last_weights(ask: Ask) -> Array:
    """The rows of the matrix that y is the product with."""
    found = ask.y.record.last_weights(ask.y, ask.x.values)
    if found is None or found[0].size != ask.n:
        raise PlanFailed("y is no longer a matrix times a tensor")
    return found[1] if ask.rows.everything else ask.y.record.backend.arrays.take(found[1], ask.rows.positions, 0)


def _patch(sweeper: Sweeper) -> Array:
    """(m, n), by what lies between these rows and columns alone."""
    ask, part = sweeper.ask, sweeper.ask.x.parts[0]
    patches = ask.y.record.patches(ask.y, ask.rows, part.value, part.elements)
    found = None if patches is None else patches.pull(sweeper.arrays.from_numpy(np.eye(ask.m), ask.y))
    if found is None:
        raise PlanFailed("what the patches need is gone")
    sweeper.report.steps.append(Step("rows through patches", "pull", "patches", ask.m, 1))
    return found


# ---------------------------------------------------------------- lines that share passes


def run_shared(sweeper: Sweeper, plan: Lines) -> Shared | None:
    """The passes of lines that travel together; None where no path leads to x."""
    ask, compression = sweeper.ask, plan.shared
    assert compression is not None
    pulls = plan.way == "pull"
    weights = _seeds(ask, compression, ask.y if pulls else ask.x.values[0])
    what = "rows together" if pulls else "columns together"
    passes = sweeper.pull_weights(weights, what, batched=plan.batched) if pulls else sweeper.push(weights, what)
    if passes is None:
        return None
    alone = None
    if plan.alone is not None:
        pushed = sweeper.push_columns(plan.alone, "columns that meet many rows")
        if pushed is None:
            raise CannotSweep("the push found no path")
        alone = sweeper.arrays.transpose(pushed)  # (m, k)
    return Shared(ask, plan, compression, passes, alone)


def _seeds(ask: Ask, compression: Compression, like: Value) -> Array:
    """(passes, lines): a one at every line of a pass; lines without a color are all zero, and swept by nobody."""
    color, arrays = compression.color, ask.y.record.backend.arrays
    lines = np.flatnonzero(color != NOBODY)
    if ask.accelerated:  # places travel faster than zeros
        spots = color[lines] * compression.count + lines
        ones_there = arrays.from_numpy(np.ones(len(lines), np.float32), like)
        return arrays.scatter((compression.passes, compression.count), spots, ones_there, like)
    ones = np.zeros((compression.passes, compression.count), dtype=np.float32)
    ones[color[lines], lines] = 1
    return arrays.from_numpy(ones, like)


class Shared:
    """What lines that travelled together returned, (passes, n) or (passes, m), and how to tell their entries apart."""

    __slots__ = ("alone", "arrays", "ask", "compression", "passes", "plan")

    def __init__(self, ask: Ask, plan: Lines, compression: Compression, passes: Array, alone: Array | None) -> None:
        self.ask = ask
        self.plan = plan
        self.compression = compression
        self.passes = passes
        self.alone = alone
        self.arrays = ask.y.record.backend.arrays

    def dense(self) -> Array:
        """(m, n): every entry where it belongs, exact zeros elsewhere."""
        arrays, like, shape = self.arrays, self.ask.x.values[0], (self.ask.m, self.ask.n)
        compression, steps = self.compression, self.compression.strides
        if steps is not None:
            found = arrays.strided(shape, arrays.reshape(arrays.cast(self.passes, like), compression.box), *steps)
        else:
            values = arrays.reshape(self.passes, (-1,))
            found = arrays.place_passes(shape, compression, values, like)
            if found is None:
                slots, places = compression.flat
                owned = values if len(slots) == compression.slots else arrays.take(values, slots, 0)
                found = arrays.scatter(shape, places, owned, like)
        if self.alone is None:
            return found
        return arrays.place(found, (slice(None), self.plan.alone), self.alone)

    def norms(self) -> Numbers | None:
        """The 2-norm of each column, as the passes tell; None where columns were swept apart, or where a device sums faster."""
        if self.alone is not None or (self.ask.accelerated and self.compression.way == "push"):
            return None
        if self.ask.accelerated:
            return self.arrays.weighted_columns(np.ones(self.compression.passes), self.passes)[1]
        passes = self.arrays.numpy(self.passes).astype(np.float64)
        if self.compression.way == "pull":
            return np.asarray(np.sqrt(np.einsum("kn,kn->n", passes, passes)))
        slots, places = self.compression.flat
        return np.asarray(np.sqrt(np.bincount(places % self.ask.n, passes.reshape(-1)[slots] ** 2, self.ask.n)))

    def csr(self) -> csr_array:
        """The nonzeros; the dense Jacobian is never formed."""
        from scipy.sparse import csr_array

        order, indices, starts = self.compression.by_rows
        if self.ask.accelerated:  # the entries alone travel
            data = self.arrays.numpy(self.arrays.take(self.arrays.reshape(self.passes, (-1,)), order, 0))
        else:
            data = self.arrays.numpy(self.passes).reshape(-1)[order]
        shape = (self.ask.m, self.ask.n)
        found = csr_array((data, indices.copy(), starts.copy()), shape=shape)
        if self.alone is not None:
            assert self.plan.alone is not None
            found = _with_columns(found, self.plan.alone, self.arrays.numpy(self.alone))
        if not data.all():
            found.eliminate_zeros()
        return found

    def blocks(self) -> Blocks:
        """As a factor of a product; blocks keep their structure."""
        if layout(self.compression) is None or self.alone is not None:
            return full(self.dense(), self.ask.m, self.ask.n)
        return from_passes(self.ask, self.compression, self.passes)


def _with_columns(matrix: csr_array, columns: Positions, values: Any) -> csr_array:
    """A matrix with some columns replaced."""
    from scipy.sparse import csr_array, diags_array

    keep = np.ones(matrix.shape[1])
    keep[columns] = 0
    rows, place = np.nonzero(values)
    extra = csr_array((values[rows, place], (rows, columns[place])), shape=matrix.shape)
    return csr_array(matrix @ diags_array(keep).astype(matrix.dtype) + extra)


def with_rows(ask: Ask, rows: Positions) -> Ask:
    """The same question about some of its rows."""
    return replace_y(ask, ask.y, Elements.at(ask.y.shape, ask.rows.positions[rows]))


