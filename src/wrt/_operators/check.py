"""`J.check()`: the derivative next to finite differences of the recorded run, from x to y, operation by operation.

A certificate proves that an answer is what the engine's own backward says. This asks whether that backward is right:
every operation between x and y is run again, in double precision, with x moved a little along random directions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from wrt._core.ask import Ask
from wrt._core.evidence import Evidence, Numbers
from wrt._core.graph import Node
from wrt._core.protocol import random_signs
from wrt._core.report import Certificate
from wrt._operators.thresholds import ENGINE_ROUNDINGS, SPREAD_SLACK, STEP_CUBE_ROOTS
from wrt._run.linear_map import LinearMap
from wrt._run.prove import weights_of
from wrt.errors import EngineRefused, NotRecorded

Verdict = Literal["agrees", "disagrees", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether the derivative agrees with finite differences; true when it does.

    `engine[k]` is u J v of the engine for the k-th pair of random u and v, `differences[k]` the same from moved runs,
    give or take `spread[k]`. `certificate` is the proof of the answer itself, where it was computed.
    """

    verdict: Verdict
    engine: tuple[float, ...]
    differences: tuple[float, ...]
    spread: tuple[float, ...]
    certificate: Certificate | None
    words: str = ""

    def __bool__(self) -> bool:
        return self.verdict == "agrees"

    def __str__(self) -> str:
        lines = [f"{self.verdict}{': ' + self.words if self.words else ''}"]
        for told, seen, give in zip(self.engine, self.differences, self.spread, strict=True):
            lines.append(f"  u J v: the engine says {told:.9g}, differences say {seen:.9g} ± {give:.1g}")
        proven = self.certificate if self.certificate is not None else "the answer is not computed yet"
        return "\n".join([*lines, f"  certificate: {proven}"])

    __repr__ = __str__


def check(ask: Ask, certificate: Certificate | None, *, directions: int = 3) -> Checked:
    """The engine's u J v next to central differences, for a few random pairs."""
    moved, precision = _run_again(ask)
    linear = LinearMap(ask)
    arrays = ask.y.record.backend.arrays
    u = weights_of(ask.m)
    w = np.asarray(arrays.numpy(linear.pull(arrays.from_numpy(u[None, :], ask.y))), np.float64)[0]
    step = STEP_CUBE_ROOTS * precision ** (1 / 3)
    pairs = []
    for v in random_signs(directions, ask.n, 61):
        seen = _along(moved, u, v, step)
        pairs.append(Pair(float(w @ v), *seen, float(np.abs(w) @ np.abs(v))))
    verdict, words = _verdict(ask, pairs)
    engine, differences, spread = (tuple(getattr(pair, name) for pair in pairs) for name in ("told", "seen", "spread"))
    return Checked(verdict, engine, differences, spread, certificate, words)


class Pair(NamedTuple):
    """u J v: as the engine told it, as differences saw it, how far those spread, whether at a kink, what was summed."""

    told: float
    seen: float
    spread: float
    kink: bool
    size: float


def _verdict(ask: Ask, pairs: list[Pair]) -> tuple[Verdict, str]:
    precision = ask.y.record.backend.arrays.precision
    allowed = ENGINE_ROUNDINGS * max(precision(value) for value in (ask.y, *ask.x.values))
    if not all(np.isfinite([pair.told, pair.seen, pair.spread]).all() for pair in pairs):
        return "cannot tell", "not everything is finite here"
    sizes = [max(pair.size, abs(pair.seen)) for pair in pairs]
    spread = max((pair.spread / size for pair, size in zip(pairs, sizes, strict=True) if size), default=0.0)
    if any(pair.kink for pair in pairs) or spread > 1e-2:
        return "cannot tell", "the differences do not settle: x stands on a kink or a jump"
    for pair, size in zip(pairs, sizes, strict=True):  # one pair may settle by chance: the widest spread speaks for all
        if abs(pair.told - pair.seen) > (SPREAD_SLACK * spread + allowed) * size:
            return "disagrees", "a backward on the way is wrong; wrt.check(f, x) names the operation"
    return "agrees", ""


def _along(moved: Callable[[Numbers], Numbers], u: Numbers, v: Numbers, step: float) -> tuple[float, float, bool]:
    """The derivative of u y along v by central differences at halved steps, how far they are apart, whether at a kink.

    From the two sides the slopes differ by a multiple of the step; at a kink they differ however small it is.
    """
    here = float(u @ moved(0 * v))
    central, sides = [], []
    for small in (step, step / 2, step / 4):  # two slopes without their first error, which tell how far they spread
        ahead, behind = (float(u @ moved(small * v)) - here) / small, (here - float(u @ moved(-small * v))) / small
        central.append((ahead + behind) / 2)
        sides.append(abs(ahead - behind))
    better = [(4 * fine - rough) / 3 for rough, fine in pairwise(central)]
    spread = abs(better[-1] - better[-2]) + abs(central[-1] - better[-1]) / 100
    kink = sides[-1] > 0.6 * sides[0] and sides[-1] > 1e-2 * (abs(central[-1]) + abs(central[0]))
    return better[-1], spread, kink


def _run_again(ask: Ask) -> tuple[Callable[[Numbers], Numbers], float]:
    """Where the asked elements of x move by, -> the asked elements of y; and in which precision that is computed."""
    record: Any = ask.y.record
    if not record.recorded:
        raise _not_recorded("nothing was recorded of this run")
    part = ask.x.parts[0]
    y, x = record.numbered(ask.y), record.numbered(part.value)
    if y is None or x is None or len(ask.x.parts) > 1 or part.into is not None or part.component:
        raise _not_recorded("x or y is not one value of the recording")
    evidence: Evidence = record.evidence()
    evidence.look_from(y)
    replay = _Replay(evidence, y, x, writes_in_place=record.backend.writes_in_place)
    start = replay.start
    scale = max(1.0, float(np.abs(start).max(initial=0.0)))
    rows, columns = ask.rows.positions, part.elements.positions

    def moved(by: Numbers) -> Numbers:
        there = start.reshape(-1).copy()
        np.add.at(there, columns, scale * by)
        return np.asarray(replay(there.reshape(start.shape)).reshape(-1)[rows] / scale)

    return moved, replay.precision


class _Replay:
    """The operations from x to y, to be run again on another x."""

    def __init__(self, evidence: Evidence, y: int, x: int, *, writes_in_place: bool) -> None:
        self.y, self.x = y, x
        reached = {x}
        nodes: list[Node] = []
        for node in evidence.graph.nodes:
            if node.gradient in ("yes", "custom") and not reached.isdisjoint(node.inputs):
                nodes.append(node)
                reached.update(node.outputs)
        needed, kept = {y}, list[Node]()
        for node in reversed(nodes):
            if not needed.isdisjoint(node.outputs):
                kept.append(node)
                needed.update(node.inputs)
        self.steps = []
        start = evidence.value(x)
        for node in reversed(kept):
            again = evidence.again(node)
            in_place = writes_in_place and node.write is not None  # elsewhere an update makes a new tensor
            if again is None or in_place:
                raise EngineRefused(
                    f"{node.op} cannot be run again" + (f", at {node.where}" if node.where else ""),
                    "it writes in place" if in_place else "it was recorded without its arguments",
                    "record with values=True; for code that writes in place compare J[i, j] with runs of your own",
                )
            self.steps.append((node, again))
            if start is None and x in again.numbers:
                start = again.inputs[again.numbers.index(x)]
        if start is None:
            raise _not_recorded("the numbers of x were not kept")
        self.start: Numbers = np.asarray(start, np.float64)

    @property
    def precision(self) -> float:
        """Results of single precision are numbers of single precision, wherever x stands."""
        made = self(self.start + 1e-3 * random_signs(1, self.start.size, 61).reshape(self.start.shape))
        kind = np.float32 if np.array_equal(made.astype(np.float32), made) else np.float64
        return float(np.finfo(kind).eps)

    def __call__(self, x: Numbers) -> Numbers:
        values = {self.x: x}
        for node, again in self.steps:
            inputs = tuple(values.get(number, given) for given, number in zip(again.inputs, again.numbers, strict=True))
            outputs = again.run(inputs)
            values.update({n: o for n, o in zip(node.outputs, outputs, strict=False) if o is not None})
        return np.asarray(values.get(self.y, np.zeros(0)))


def _not_recorded(words: str) -> NotRecorded:
    return NotRecorded(
        "J.check() needs a recorded run",
        f"{words}; finite differences run its operations again",
        "write t = wrt.trace(f, x, values=True), then (d(t.output) / d(t.inputs[0])).check()",
    )
