"""A question as a function of what the run was given, for a backend whose runs can be had at other points.

Inside a transformation nothing can be looked at, so nothing is guessed: lines share a pass only where the operations
themselves tell, for every point, that they share no entry. Outside, every answer is proven by a probe, like any other.
"""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.index import Elements
from wrt._core.lines import Lines
from wrt._core.pattern import NOBODY, Compression, Way
from wrt._core.plan import Compressed
from wrt._core.protocol import Array
from wrt._core.report import Certificate, Report
from wrt._core.value import Part, Side
from wrt._planner import warm
from wrt._planner.choose import choose
from wrt._planner.strategies.cut import cut
from wrt._run.certify import signs, tolerance
from wrt._run.compressed import guess_tolerance
from wrt._run.execute import raise_unless_independent
from wrt._run.fused import ordinary
from wrt._run.memory import refuse_too_large
from wrt._run.options import current
from wrt._run.planned import Planned, worth_planning
from wrt._run.routes import ByLines, Route, Through
from wrt.errors import EngineRefused, WrongQuery, WrongShape

ROWS = 256  # whose marks travel back together
NOT_FINITE = "not finite"


class Function:
    """`jac = J.function()`: the same derivative at the point where it is called, also inside `jit`, `vmap` and `grad`.

    `certificate` is the evidence for the last answer; None for one inside a transformation, where nothing can be read.
    """

    def __init__(self, ask: Ask, elsewhere: Any, route: Route) -> None:
        self.certificate: Certificate | None = None
        self._ask = ask
        self._elsewhere = elsewhere
        self._route = route
        self._programs: dict[tuple[bool, bool], Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return self._ask.shape

    @property
    def passes(self) -> int:
        """What one answer takes, without its proof."""
        return self._route.passes

    @property
    def because(self) -> str:
        """Why it takes those."""
        return self._route.because

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        """The derivative where the recorded function is called with these arguments, in the shape of the question."""
        return self._at(args, kwargs, dense=True)

    def sparse(self, *args: Any, **kwargs: Any) -> Any:
        """The entries that can be nonzero at any point, as the sparse array of the framework: flattened y by flattened x."""
        if self._route.entries is None:
            raise WrongShape(
                "no entry of this derivative is known to be zero everywhere",
                f"it is answered in {self._route}, because {self.because}",
                "call it for the dense answer",
            )
        values = self._at(args, kwargs, dense=False)
        return self._elsewhere.sparse(values, self._places, (self._ask.m, self._ask.n))

    @cached_property
    def _places(self) -> Any:
        assert self._route.entries is not None
        return self._elsewhere.places(*np.divmod(self._route.entries[1], self._ask.n))

    def _at(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, dense: bool) -> Array:
        elsewhere, route = self._elsewhere, self._route
        leaves = elsewhere.leaves(args, kwargs)
        if elsewhere.followed(leaves):
            self.certificate = None
            return route.answer(dense, leaves)
        if self.passes == 1 and route.plain:
            self.certificate = Certificate("engine")
            return self._program(dense, proven=False)(leaves)
        if not current().certify:
            self.certificate = Certificate("none")
            return self._program(dense, proven=False)(leaves)
        found, proof = self._program(dense, proven=True)(leaves)
        self.certificate = self._judged(*np.asarray(proof).tolist())
        if self.certificate.passed:
            return found
        return self._otherwise(found, args, kwargs, dense=dense)

    def _program(self, dense: bool, *, proven: bool) -> Any:
        key = dense, proven
        if key not in self._programs:
            made = self._route.proven if proven else self._route.answer
            self._programs[key] = self._elsewhere.compiled(partial(made, dense))
        return self._programs[key]

    def _judged(self, residual: float, size: float, stray: float) -> Certificate:
        probe, bound = self._route.probe, self._route.bound
        if size == 0.0 and residual == 0.0 and stray == 0.0:
            return Certificate("probe", 0.0, bound, finite=True, probe=probe)
        if not (0.0 < size < math.inf and residual < math.inf):
            return Certificate("probe", math.inf, bound, NOT_FINITE, probe=probe)
        if stray != 0.0:
            return Certificate("probe", math.inf, bound, "an entry outside the pattern is not zero", probe=probe)
        return Certificate("probe", residual / size, bound, finite=True, probe=probe)

    def _otherwise(self, found: Array, args: tuple[Any, ...], kwargs: dict[str, Any], *, dense: bool) -> Array:
        """Line by line where anything else did not hold; lines with numbers that are not finite are the engine's own."""
        seen = self.certificate
        assert seen is not None
        if not self._route.plain:
            whole, self.certificate = self._plain(*args, **kwargs), self._plain.certificate
            entries = self._route.entries
            return whole if dense or entries is None else whole.reshape(-1)[entries[1]]
        if seen.words == NOT_FINITE:
            self.certificate = Certificate("probe", 0.0, math.inf, "no finite entry to compare", probe=seen.probe)
            return found
        raise EngineRefused(
            "the passes of this answer do not agree with a probe of it",
            str(seen),
            "record at this point, t = wrt.trace(f, x), and ask there: other ways will be tried",
        )

    @cached_property
    def _plain(self) -> Function:
        return Function(self._ask, self._elsewhere, plainly(self._ask, self._elsewhere))

    def __repr__(self) -> str:
        return f"Function  shape {self.shape}   {self._route}, because {self.because}"


def as_function(ask: Ask) -> Function:
    """The question at any point, where the backend can have a run at other points."""
    make = getattr(ask.y.record, "elsewhere", None)
    if make is None:
        raise WrongQuery(
            f"a run of {ask.y.record.backend.name} cannot be had at other points",
            "it is asked about as it is, and its plan is kept for the next one",
            "run your function at the other point and ask again: d(y) / d(x)",
        )
    part = ask.x.parts[0]
    arrays = ask.y.record.backend.arrays
    if len(ask.x.parts) > 1 or part.into is not None or arrays.is_complex(ask.y) or arrays.is_complex(part.value):
        raise WrongQuery(
            "this question cannot be asked as a function",
            "x is filled step by step, or numbers are complex",
            "record at each point, t = wrt.trace(f, x), and ask there",
        )
    ask.y.record.ready(ask.y, ask.x)
    refuse_too_large(ask)
    elsewhere = make(ask.y, part.value)
    if not elsewhere.connected:
        raise_unless_independent(ask)
        raise WrongQuery("y does not depend on x", "the derivative is zero at every point", "use zeros of J.shape")
    return Function(ask, elsewhere, quickest(ask, elsewhere))


def quickest(ask: Ask, elsewhere: Any) -> Route:
    """In passes that are shared where the operations tell that they may be, else through a waist, else line by line."""
    if not (ask.rows.everything and ask.rows.shape == ask.y.shape and ordinary(ask) and worth_planning(ask)):
        return plainly(ask, elsewhere)
    plan = _shared(ask, elsewhere)
    if plan is not None:
        bound = guess_tolerance(ask, elsewhere.operations)
        return ByLines(elsewhere, _together(ask, plan.compression), plan.because, bound)
    return _narrowed(ask, elsewhere) or plainly(ask, elsewhere)


def _narrowed(ask: Ask, elsewhere: Any) -> Route | None:
    """Through the narrowest arrays between x and y, where that costs less; None where it does not, or none can be asked."""
    flow: Flow | None = elsewhere.flow
    plan = None if flow is None else cut(flow, ask.m, ask.n)
    if flow is None or plan is None or not _apart(flow, plan.tensors):
        return None
    record: Any = ask.y.record
    sides = []
    for value in map(flow.value, plan.tensors):
        if value is None:
            return None
        every = Elements.all(value.shape)
        last, first = Ask(ask.y, ask.rows, Side(value.shape, (Part(value, every),))), Ask(value, every, ask.x)
        sides.append((quickest(last, record.elsewhere(ask.y, value)), quickest(first, record.elsewhere(value, ask.x.values[0]))))
    way: Way = "pull" if elsewhere.takes("pull") else "push"
    weights = signs(ask.m if way == "pull" else ask.n)[0]
    found = Through(elsewhere, tuple(sides), way, weights, plan.because, tolerance(ask))
    return found if found.passes <= plan.passes else None  # a side that cannot be swept along its shorter way


def _apart(flow: Flow, tensors: tuple[int, ...]) -> bool:
    """Whether none is made from another, which a derivative by that one would count as well."""
    return all({*flow.between(frozenset({one}), frozenset())}.isdisjoint({*tensors} - {one}) for one in tensors)


def plainly(ask: Ask, elsewhere: Any) -> Route:
    """One pass for each row or each column."""
    pulls, pushes = elsewhere.takes("pull"), elsewhere.takes("push")
    if not (pulls or pushes):
        raise EngineRefused(
            "the engine has no derivative for an operation on the way",
            "neither a pull nor a push goes through",
            "ask J.value, which says where it ends",
        )
    plan = choose(ask, can_push=pushes, way=None if pulls else "push")
    rows, columns = ask.rows, ask.x.parts[0].elements
    swept, other = (rows, columns) if plan.way == "pull" else (columns, rows)
    size = (ask.y if plan.way == "pull" else ask.x.parts[0].value).size
    weights = signs(swept.size)[0]
    probe = np.zeros(size)
    np.add.at(probe, swept.positions, weights)
    lines = Lines(
        plan.way,
        np.arange(size),
        swept.positions,
        probe,
        weights[:, None],
        ask.shape,
        across=None if other.everything else other.positions,
    )
    return ByLines(elsewhere, lines, plan.because, tolerance(ask))


def _shared(ask: Ask, elsewhere: Any) -> Compressed | None:
    """A plan in which several lines share a pass, and may do so at every point; None where none is known to."""
    Planned(ask, ask.y.record.linear(ask.y, ask.x.values), Report()).in_fewer_passes()
    plan = warm.recall(warm.key_of(ask))
    if not isinstance(plan, Compressed) or plan.columns is not None or not elsewhere.takes(plan.way):
        return None
    return plan if _covers(plan.compression, ask.m, elsewhere) else None


def _covers(compression: Compression, m: int, elsewhere: Any) -> bool:
    """Whether every entry that the operations allow, whatever the numbers, has its own slot in the passes."""
    owner, color = compression.owner, compression.color
    for start in range(0, m, ROWS):
        marks = elsewhere.reach(np.arange(start, min(start + ROWS, m)))
        if marks is None:
            return False
        rows, columns = np.nonzero(marks)
        line, spot = (rows + start, columns) if compression.way == "pull" else (columns, rows + start)
        if np.any(color[line] == NOBODY) or np.any(owner[color[line], spot] != line):
            return False
    return True


def _together(ask: Ask, compression: Compression) -> Lines:
    owner = compression.owner
    probe = signs(compression.count)[0]
    slots, places = compression.flat
    order = np.argsort(places)
    return Lines(
        compression.way,
        compression.color,
        np.arange(compression.passes),
        probe,
        np.where(owner == NOBODY, 0.0, probe[owner]),
        ask.shape,
        entries=(slots[order], places[order]),
    )
