"""Pull and push on a recorded tape: the only place where wrt calls TensorFlow's gradients.

A plain pull runs the tape's gradient functions eagerly, for one seed. Many rows are pulled by one traced function, row by
row, or side by side (pfor), where the number of rows and of operations says that tracing pays: nothing else decides it, so
that the same question is swept the same way whenever it is asked. What was traced is kept on the recording.

Pushing is double backward: the pull is linear in its seed, and a second tape differentiates it by that seed. A branch whose
gradient cannot be differentiated again would be dropped; the proof of every answer notices it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow import thresholds as limit
from wrt._backends.tensorflow.numpy_reads import refuse_reads
from wrt._backends.tensorflow.refusals import engine_failed
from wrt._backends.tensorflow.tensors import dense
from wrt._core.finding import first_line
from wrt._core.index import Positions
from wrt._core.protocol import CannotSweep, Marks, Swept
from wrt._core.thresholds import KEPT_ENGINES
from wrt._core.value import Value
from wrt.errors import EngineRefused

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

Tensor = Any
Gradients = list[Tensor | None]
Sweep = Callable[..., Gradients]

PFOR = "pfor"
TRACED = "one by one, traced"
ONE_BY_ONE = "one by one"
DOUBLE_BACKWARD = "double backward"


class TapeEngine:
    """The derivative of one tensor with respect to groups of sources; the gradients of a group are summed."""

    can_pull = True
    can_push = True
    push_cost = limit.PUSH_COST_IN_PULLS

    def __init__(self, recording: TensorFlowRecording, y: Value, xs: Sequence[Value]) -> None:
        self.recording, self.y, self.xs = recording, y, xs
        self.groups = [recording.sources(x) for x in xs]
        self.sources = [source for group in self.groups for source in group]
        self._second: tuple[Tensor, Any, Gradients] | None = None  # seed, tape and gradients of a pull, to push by

    # ---------------------------------------------------------------- rows

    def plain(self, seed: Tensor, *, then_push: bool = False) -> Gradients:
        with compat.sweeping():
            one = tf.squeeze(seed, 0)
            if not then_push:
                found = self._pull_one(one)
            else:
                with compat.second_tape(one) as tape:
                    found = self._pull_one(one)
                self._second = one, tape, found
            return [None if gradient is None else tf.expand_dims(gradient, 0) for gradient in found]

    def pull(self, seeds: Tensor, *, batched: bool = True) -> Swept:
        with compat.sweeping():
            return self._sweep("pull", self._pull_one, [seeds], batched=batched)

    def _pull_one(self, seed: Tensor) -> Gradients:
        try:
            found = compat.pull(self.recording.tape, [self.y.key.tensor], self.sources, [seed])
        except (LookupError, ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
            raise engine_failed(error) from error
        return _sum_groups(self.groups, [dense(gradient) for gradient in found])

    def pull_traceable(self, seeds: Tensor, by: Sequence[Value]) -> list[Value | None]:
        """The gradients as tensors of the same tape, which records how they are made."""
        recording = self.recording
        recording.watch_everything()
        with compat.unrecorded(), compat.reopened(recording.tape), refuse_reads(recording):
            rows = [self._pull_one(seed) for seed in tf.unstack(seeds)]
            return [None if column[0] is None else recording.lift(tf.stack(column)) for column in zip(*rows, strict=True)]

    # ---------------------------------------------------------------- columns

    def push(self, tangents: Sequence[Tensor | None], *, batched: bool = True) -> Swept:
        with compat.sweeping():
            seed, tape, pulled = self._set_up_push()
            live = [(g, t) for g, t in zip(pulled, tangents, strict=True) if g is not None and t is not None]
            if not live:
                return Swept([None], DOUBLE_BACKWARD, 0)
            gradients = [gradient for gradient, _ in live]

            def push_one(*column: Tensor) -> Gradients:
                try:
                    found = compat.pull(tape, gradients, [seed], column)[0]
                except Exception as error:
                    raise CannotSweep(first_line(error)) from error
                return [tf.zeros_like(seed) if found is None else dense(found)]

            swept = self._sweep("push", push_one, [tangent for _, tangent in live], batched=batched)
            swept.method = f"{DOUBLE_BACKWARD}, {swept.method}"
            return swept

    def _set_up_push(self) -> tuple[Tensor, Any, Gradients]:
        if self._second is None:
            try:
                self.plain(tf.zeros((1, *self.y.shape), self.y.dtype), then_push=True)
            except EngineRefused as error:
                raise CannotSweep(error.where) from error
        assert self._second is not None
        return self._second

    # ---------------------------------------------------------------- what the operations tell

    def reach(self, rows: Positions, *, certain: bool = False) -> Marks | None:
        return None  # `local_maps` tell all that is known

    # ---------------------------------------------------------------- many lines

    def _sweep(self, way: str, sweep: Sweep, lines: Sequence[Tensor], *, batched: bool) -> Swept:
        """`sweep` for every line; where a method fails, the next slower one."""
        count = lines[0].shape[0]
        refused: list[str] = []
        for method in self._methods(way, count) if batched else ():
            try:
                traced = self._traced(way, method, sweep, lines)
                if method == PFOR:
                    return Swept(traced(*lines), method, 1, tuple(refused))
                return Swept(_one_by_one(traced, lines), method, count, tuple(refused))
            except Exception as error:  # no batching rule, a gradient that needs numbers, too little memory
                refused.append(f"{method}: {first_line(error)}")
        return Swept(_one_by_one(sweep, lines), ONE_BY_ONE, count, tuple(refused))

    def _methods(self, way: str, count: int) -> list[str]:
        """Those that are quicker than one plain pass after another, the quickest first, by what they are estimated to take."""
        if count < 2:
            return []
        operations, numbers = self.recording.work_between(self.y, self.xs)
        if way == "push":
            operations *= 2
        written = 1e-6 * count * numbers / limit.EAGER_NUMBERS_PER_US
        seconds = {
            PFOR: 1e-3 * limit.PFOR_MS_PER_OPERATION * (operations + 2) + written / 10,
            TRACED: 1e-3 * limit.TRACE_MS_PER_OPERATION * (operations + 4) + 1e-6 * limit.TRACED_US_PER_ROW * count + written,
            ONE_BY_ONE: 1e-6 * limit.EAGER_US_PER_OPERATION * operations * count + written,
        }
        return [method for method in sorted(seconds, key=seconds.__getitem__) if seconds[method] < seconds[ONE_BY_ONE]]

    def _traced(self, way: str, method: str, sweep: Sweep, lines: Sequence[Tensor]) -> Traced:
        """Traced once for each number of lines; a push belongs to the second tape of its engine, and is not kept."""
        size = lines[0].shape[0] if method == PFOR else 1
        key: Hashable = (size, method, self.y.key.number, tuple(compat.number(source) for source in self.sources))
        kept: dict[Hashable, Traced | str] = self.recording.traced if way == "pull" else {}
        found = kept.get(key)
        if found is None:
            try:
                found = Traced(sweep, lines if method == PFOR else [line[0] for line in lines], size)
            except Exception as error:
                found = first_line(error)  # the next question need not try again
            remember(kept, key, found, KEPT_ENGINES)
        if isinstance(found, str):
            raise CannotSweep(found)
        return found


class Traced:
    """A sweep as a graph, of one line or of `size` side by side; what no path leads to is None, as in the sweep itself."""

    def __init__(self, sweep: Sweep, like: Sequence[Tensor], size: int) -> None:
        self._reached: list[int] = []
        self._length = 0

        def sweep_reached(*line: Tensor) -> Gradients:
            found = sweep(*line)
            self._length = len(found)
            self._reached = [k for k, gradient in enumerate(found) if gradient is not None]
            return [found[k] for k in self._reached]

        self._run = compat.compile_for(sweep_reached if size == 1 else compat.for_each(sweep_reached, size), like)

    def __call__(self, *lines: Tensor) -> Gradients:
        result: Gradients = [None] * self._length
        for k, gradient in zip(self._reached, self._run(*lines), strict=True):
            result[k] = gradient
        return result


def remember(kept: dict[Hashable, Any], key: Hashable, thing: Any, most: int) -> None:
    """Keep a thing, and no more than so many: what was kept first goes first."""
    while len(kept) >= most:
        kept.pop(next(iter(kept)), None)
    kept[key] = thing


def _one_by_one(sweep: Sweep, lines: Sequence[Tensor]) -> Gradients:
    rows = [sweep(*line) for line in zip(*map(tf.unstack, lines), strict=True)]
    return [None if column[0] is None else tf.stack(column) for column in zip(*rows, strict=True)]


def _sum_groups(groups: Sequence[Sequence[Tensor]], gradients: Gradients) -> Gradients:
    """One gradient for each group; None where nothing of the group is reached."""
    result: Gradients = []
    rest = iter(gradients)
    for group in groups:
        reached = [gradient for gradient in (next(rest) for _ in group) if gradient is not None]
        result.append(None if not reached else reached[0] if len(reached) == 1 else tf.add_n(reached))
    return result
