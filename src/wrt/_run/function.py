"""A question as a function of what the run was given, for a backend whose runs can be had at other points.

It is the same plan at another point. Inside a transformation nothing can be looked at, so nothing is guessed: lines share a
pass only where the operations themselves tell, for every point, that they share no entry. Outside, every answer is proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.pattern import NOBODY, Compression
from wrt._core.plan import Lines, Plan, Product
from wrt._core.protocol import Array, RecordedFunction
from wrt._core.report import Certificate, Report
from wrt._core.value import Value
from wrt._plan.plans import Strategies, worth_planning
from wrt._run.answer import look_by, raise_unless_independent
from wrt._run.forms import Dense
from wrt._run.memory import refuse_too_large
from wrt._run.options import current
from wrt._run.prove import ENGINE, SWITCHED_OFF, compare, of_plain_rows, weights_in, wide
from wrt._run.run import run, run_shared
from wrt._run.sweep import Sweeper
from wrt.errors import EngineRefused, WrongQuery, WrongShape

MARKED_ROWS = 256  # whose marks travel back together


class Function:
    """`jac = J.function()`: the same derivative at the point where it is called, also inside `jit`, `vmap` and `grad`.

    `certificate` is the evidence for the last answer; None for one inside a transformation, where nothing can be read.
    """

    def __init__(self, ask: Ask, recorded: RecordedFunction, plan: Plan) -> None:
        self.certificate: Certificate | None = None
        self._ask = ask
        self._recorded = recorded
        self._plan = plan
        self._programs: dict[tuple[Any, ...], Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return self._ask.shape

    @property
    def passes(self) -> int:
        """What one answer takes, without its proof."""
        return self._plan.passes

    @property
    def because(self) -> str:
        """Why it takes those."""
        return self._plan.because

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        """The derivative where the recorded function is called with these arguments, in the shape of the question."""
        return self._ask.y.record.backend.arrays.reshape(self._at(args, kwargs, self._plan, dense=True), self.shape)

    def sparse(self, *args: Any, **kwargs: Any) -> Any:
        """The entries that can be nonzero at any point, as the sparse array of the framework: flattened y by flattened x."""
        if self._entries is None:
            raise WrongShape(
                "no entry of this derivative is known to be zero everywhere",
                f"it is answered in {self._words()}, because {self.because}",
                "call it for the dense answer",
            )
        values = self._at(args, kwargs, self._plan, dense=False)
        rows, columns = np.divmod(self._entries[1], self._ask.n)
        return self._recorded.sparse(values, rows, columns, (self._ask.m, self._ask.n))

    @cached_property
    def _entries(self) -> tuple[Any, Any] | None:
        """The slots of the passes row by row, and their places in the flattened answer."""
        if not isinstance(self._plan, Lines) or self._plan.shared is None:
            return None
        slots, places = self._plan.shared.flat
        order = np.argsort(places)
        return slots[order], places[order]

    # ---------------------------------------------------------------- at another point

    def _at(self, args: tuple[Any, ...], kwargs: dict[str, Any], plan: Plan, *, dense: bool) -> Array:
        leaves = self._recorded.leaves(args, kwargs)
        if self._recorded.is_traced(leaves):
            self.certificate = None
            return self._answer(plan, dense, leaves)
        if not current().certify:
            self.certificate = SWITCHED_OFF
            return self._program(plan, dense, self._answer)(leaves)
        if self._ask.m == 1:
            self.certificate = ENGINE
            return self._program(plan, dense, self._answer)(leaves)
        found, expected = self._program(plan, dense, self._answer_and_check)(leaves)
        self.certificate = self._judge(found, expected, dense=dense, rows=isinstance(plan, Lines) and not plan.batched)
        if self.certificate.passed:
            return found
        return self._otherwise(found, args, kwargs, plan, dense=dense)

    def _program(self, plan: Plan, dense: bool, made: Any) -> Any:
        key = id(plan), dense, made.__name__
        if key not in self._programs:
            self._programs[key] = self._recorded.compiled(partial(made, plan, dense))
        return self._programs[key]

    def _sweeper(self, leaves: Sequence[Array]) -> Sweeper:
        ask = self._ask
        return Sweeper(ask, self._recorded.engine(ask.y, ask.x.values, leaves), Report())

    def _answer(self, plan: Plan, dense: bool, leaves: Sequence[Array]) -> Array:
        """All of it, (m, n), or its entries one after the other."""
        sweeper = self._sweeper(leaves)
        if isinstance(plan, Product):
            return self._product(plan, leaves)
        if isinstance(plan, Lines) and plan.shared is not None:
            shared = run_shared(sweeper, plan)
            assert shared is not None
            if dense:
                return shared.dense()
            assert self._entries is not None
            return sweeper.arrays.take(sweeper.arrays.reshape(shared.passes, (-1,)), self._entries[0], 0)
        form = run(sweeper, plan)
        assert form is not None
        return form.dense()

    def _product(self, plan: Product, leaves: Sequence[Array]) -> Array:
        """Through each tensor of a narrow cut, none of which is made from another; the products are summed."""
        ask, total = self._ask, None
        arrays = ask.y.record.backend.arrays
        for address in plan.cuts[0]:
            value = ask.y.record.at_address(ask.y, ask.x.values, address)
            assert value is not None
            last = self._side(Ask(ask.y, ask.rows, ask.y.record.side(value, _everything(value))), plan.factors[0], leaves)
            first = self._side(Ask(value, _everything(value), ask.x), plan.factors[1], leaves)
            one = arrays.matmul(last, first)
            total = one if total is None else total + one
        return total

    def _side(self, ask: Ask, plan: Plan, leaves: Sequence[Array]) -> Array:
        form = run(Sweeper(ask, self._recorded.engine(ask.y, ask.x.values, leaves), Report()), plan)
        assert form is not None
        return form.dense()

    def _answer_and_check(self, plan: Plan, dense: bool, leaves: Sequence[Array]) -> tuple[Array, Array]:
        """The same, and what one unbatched pull says of random weights of its rows: beside the batch, not in it."""
        sweeper = self._sweeper(leaves)
        return self._answer(plan, dense, leaves), sweeper.plain(weights_in(self._ask)[0], "independent check")

    def _judge(self, found: Array, expected: Array, *, dense: bool, rows: bool) -> Certificate:
        ask, arrays = self._ask, self._ask.y.record.backend.arrays
        weights = weights_in(ask)[1]
        precision = max(arrays.precision(value) for value in (ask.y, *ask.x.values))
        if dense:
            sums = Dense(ask, found).weighted_columns(weights)
        else:
            assert self._entries is not None
            at, columns = np.divmod(self._entries[1], ask.n)
            data = wide(arrays.numpy(found))
            sums = np.bincount(columns, weights[at] * data, ask.n), np.sqrt(np.bincount(columns, data * data, ask.n))
        pulled = wide(arrays.numpy(expected))[0]
        held = compare(*sums, pulled, precision).certificate
        return held if held.passed or not rows else of_plain_rows(*sums, pulled, held, precision)

    def _otherwise(
        self, found: Array, args: tuple[Any, ...], kwargs: dict[str, Any], plan: Plan, *, dense: bool
    ) -> Array:
        """Line by line where anything else did not hold; plain rows are the engine's own."""
        for better in (_plain(self._ask, self._recorded), _plain(self._ask, self._recorded, batched=False)):
            if plan is self._plan or (isinstance(plan, Lines) and plan.batched and not better.batched):
                whole = self._at(args, kwargs, better, dense=True)
                if dense or self._entries is None:
                    return whole
                arrays = self._ask.y.record.backend.arrays
                return arrays.take(arrays.reshape(whole, (-1,)), self._entries[1], 0)
        raise EngineRefused(
            "the passes of this answer do not agree with a probe of it",
            str(self.certificate),
            "record at this point, t = wrt.trace(f, x), and ask there: other ways will be tried",
        )

    def _words(self) -> str:
        return f"{self.passes} passes"

    def __repr__(self) -> str:
        return f"Function  shape {self.shape}   {self._words()}, because {self.because}"


def as_function(ask: Ask) -> Function:
    """The question at any point, where the backend can have a run at other points."""
    if not ask.one_tensor or ask.complex_y or ask.complex_x:
        raise WrongQuery(
            "this question cannot be asked as a function",
            "x is filled step by step, or numbers are complex",
            "record at each point, t = wrt.trace(f, x), and ask there",
        )
    ask.y.record.ready(ask.y, ask.x)
    refuse_too_large(ask)
    recorded = ask.y.record.recorded_function(ask.y, ask.x.parts[0].value)
    if recorded is None:
        raise WrongQuery(
            f"a run of {ask.y.record.backend.name} cannot be had at other points",
            "it is asked about as it is, and its plan is kept for the next one",
            "run your function at the other point and ask again: d(y) / d(x)",
        )
    if not recorded.connected:
        raise_unless_independent(ask)
        raise WrongQuery("y does not depend on x", "the derivative is zero at every point", "use zeros of J.shape")
    return Function(ask, recorded, _best(ask, recorded))


def _best(ask: Ask, recorded: RecordedFunction) -> Plan:
    """A plan that holds at every point: shared passes where the operations tell that they may be, a cut, or line by line."""
    if ask.whole and ask.rows.shape == ask.y.shape and worth_planning(ask):
        sweeper = Sweeper(ask, ask.y.record.engine(ask.y, ask.x.values), Report())
        for plan in Strategies(ask, sweeper.engine, look_by(sweeper), Report(), often=True).candidates():
            if isinstance(plan, Lines) and plan.shared is not None and plan.alone is None:
                if recorded.takes(plan.way) and _covers(plan.shared, ask.m, recorded):
                    return plan
            elif isinstance(plan, Product) and plan.strategy == "cut" and _all_direct(plan) and recorded.takes("pull"):
                return plan
    return _plain(ask, recorded)


def _all_direct(plan: Product) -> bool:
    return all(isinstance(factor, Lines) and factor.shared is None for factor in plan.factors)


def _plain(ask: Ask, recorded: RecordedFunction, *, batched: bool = True) -> Lines:
    """One pass for each row or each column."""
    pulls, pushes = recorded.takes("pull"), recorded.takes("push")
    if not (pulls or pushes):
        raise EngineRefused(
            "the engine has no derivative for an operation on the way",
            "neither a pull nor a push goes through",
            "ask J.value, which says where it ends",
        )
    because = f"{ask.m} rows asked for, {ask.n} columns"
    if pulls and (ask.m <= ask.n + 2 or not pushes or not batched):
        return Lines("pull", ask.m, because, batched=batched)
    return Lines("push", ask.n, because, batched=batched)


def _covers(compression: Compression, m: int, recorded: RecordedFunction) -> bool:
    """Whether every entry that the operations allow, whatever the numbers, has its own slot in the passes."""
    owner, color = compression.owner, compression.color
    for start in range(0, m, MARKED_ROWS):
        marks = recorded.reach(np.arange(start, min(start + MARKED_ROWS, m)))
        if marks is None:
            return False
        rows, columns = np.nonzero(marks)
        line, spot = (rows + start, columns) if compression.way == "pull" else (columns, rows + start)
        if np.any(color[line] == NOBODY) or np.any(owner[color[line], spot] != line):
            return False
    return True


def _everything(value: Value) -> Elements:
    return Elements.all(value.shape)
