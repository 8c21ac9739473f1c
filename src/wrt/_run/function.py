"""A question as a function of what the run was given, for a backend whose runs can be had at other points.

Inside a transformation nothing can be looked at, so nothing is guessed: lines share a pass only where the operations
themselves tell, for every point, that they share no entry. Outside, every answer is proven by a probe, like any other.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.lines import Lines
from wrt._core.pattern import NOBODY, Compression
from wrt._core.plan import Compressed
from wrt._core.protocol import Array
from wrt._core.report import Certificate, Report
from wrt._planner import warm
from wrt._planner.choose import choose
from wrt._run.certify import signs, tolerance
from wrt._run.compressed import guess_tolerance
from wrt._run.execute import raise_unless_independent
from wrt._run.fused import ordinary
from wrt._run.memory import refuse_too_large
from wrt._run.options import current
from wrt._run.planned import Planned, worth_planning
from wrt._run.tally import IN_THE_BATCH
from wrt.errors import EngineRefused, WrongQuery, WrongShape

ROWS = 256  # whose marks travel back together
BESIDE = "by one more pass, unbatched"
NOT_FINITE = "not finite"


class Function:
    """`jac = J.function()`: the same derivative at the point where it is called, also inside `jit`, `vmap` and `grad`.

    `certificate` is the evidence for the last answer; None for one inside a transformation, where nothing can be read.
    """

    def __init__(self, ask: Ask, elsewhere: Any, lines: Lines, because: str, *, bound: float) -> None:
        self.certificate: Certificate | None = None
        self.because = because
        self._ask = ask
        self._elsewhere = elsewhere
        self._lines = lines
        self._bound = bound
        self._programs: dict[tuple[bool, bool], Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return self._lines.shape

    @property
    def passes(self) -> int:
        """What one answer takes, without its proof."""
        return len(self._lines.wanted)

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        """The derivative where the recorded function is called with these arguments, in the shape of the question."""
        return self._at(args, kwargs, dense=True)

    def sparse(self, *args: Any, **kwargs: Any) -> Any:
        """The entries that can be nonzero at any point, as JAX's `BCOO`: flattened y by flattened x."""
        if self._lines.entries is None:
            raise WrongShape(
                "no entry of this derivative is known to be zero everywhere",
                f"it is answered by {self.passes} plain passes, because {self.because}",
                "call it for the dense answer",
            )
        values = self._at(args, kwargs, dense=False)
        return self._elsewhere.sparse(values, self._places, (self._ask.m, self._ask.n))

    @cached_property
    def _places(self) -> Any:
        assert self._lines.entries is not None
        return self._elsewhere.places(*np.divmod(self._lines.entries[1], self._ask.n))

    def _at(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, dense: bool) -> Array:
        elsewhere, lines = self._elsewhere, self._lines
        leaves = elsewhere.leaves(args, kwargs)
        if elsewhere.followed(leaves):
            self.certificate = None
            return elsewhere.answer(lines, dense, leaves)
        if self.passes == 1 and lines.entries is None:
            self.certificate = Certificate("engine")
            return self._program(dense, proven=False)(leaves)
        if not current().certify:
            self.certificate = Certificate("none")
            return self._program(dense, proven=False)(leaves)
        found, proof = self._program(dense, proven=True)(leaves)
        self.certificate = self._judged(*np.asarray(proof, np.float64))
        if self.certificate.passed:
            return found
        return self._otherwise(found, args, kwargs, dense=dense)

    def _program(self, dense: bool, *, proven: bool) -> Any:
        key = dense, proven
        if key not in self._programs:
            self._programs[key] = self._elsewhere.compiled(self._lines, dense, proven=proven)
        return self._programs[key]

    def _judged(self, residual: float, size: float, stray: float) -> Certificate:
        probe = IN_THE_BATCH if self._elsewhere.batches_hold else BESIDE
        if size == 0.0 and residual == 0.0 and stray == 0.0:
            return Certificate("probe", 0.0, self._bound, finite=True, probe=probe)
        if not (0.0 < size < math.inf and residual < math.inf):
            return Certificate("probe", math.inf, self._bound, NOT_FINITE, probe=probe)
        if stray != 0.0:
            return Certificate("probe", math.inf, self._bound, "an entry outside the pattern is not zero", probe=probe)
        return Certificate("probe", residual / size, self._bound, finite=True, probe=probe)

    def _otherwise(self, found: Array, args: tuple[Any, ...], kwargs: dict[str, Any], *, dense: bool) -> Array:
        """Line by line where shared passes did not hold; lines with numbers that are not finite are the engine's own."""
        seen = self.certificate
        assert seen is not None
        if self._lines.entries is not None:
            whole, self.certificate = self._plain(*args, **kwargs), self._plain.certificate
            return whole if dense else whole.reshape(-1)[self._lines.entries[1]]
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
        return plainly(self._ask, self._elsewhere)

    def __repr__(self) -> str:
        way = self._lines.way
        return f"Function  shape {self.shape}   {self.passes} passes ({way}), because {self.because}"


def as_function(ask: Ask) -> Function:
    """The question at any point: in shared passes where the operations tell that they may be shared, else line by line."""
    make = getattr(ask.y.record, "elsewhere", None)
    if make is None:
        raise WrongQuery(
            "a derivative as a function is for runs of JAX",
            f"a run of {ask.y.record.backend.name} is asked about as it is, and its plan is kept for the next one",
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
    plan = _shared(ask, elsewhere)
    if plan is None:
        return plainly(ask, elsewhere)
    bound = guess_tolerance(ask, elsewhere.operations)
    return Function(ask, elsewhere, _together(ask, plan.compression), plan.because, bound=bound)


def plainly(ask: Ask, elsewhere: Any) -> Function:
    """One pass for each row or each column."""
    pulls, pushes = elsewhere.takes("pull"), elsewhere.takes("push")
    if not (pulls or pushes):
        raise EngineRefused(
            "JAX has no derivative for an operation on the way",
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
    return Function(ask, elsewhere, lines, plan.because, bound=tolerance(ask))


def _shared(ask: Ask, elsewhere: Any) -> Compressed | None:
    """A plan in which several lines share a pass, and may do so at every point; None where none is known to."""
    if not (ask.rows.everything and ask.rows.shape == ask.y.shape and ordinary(ask) and worth_planning(ask)):
        return None
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
