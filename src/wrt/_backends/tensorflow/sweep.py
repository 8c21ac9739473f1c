"""Pull and push on a recorded tape: the only place where wrt calls TensorFlow's gradients.

One row at a time the tape runs its gradient functions eagerly. Of many rows the first tells by its time whether one pull
is traced for all others, or a batch of them (see `price`). What was traced is kept: the same question again traces nothing.
Pushing is double backward: the pull is linear in its seed, and a second tape differentiates it by that seed. A branch
whose gradient cannot be differentiated again would be dropped, so every push is certified by the layers above.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from wrt._backends.tensorflow import compat, price
from wrt._backends.tensorflow.gradients import LEAN
from wrt._backends.tensorflow.read_within import nothing_read
from wrt._backends.tensorflow.refusals import engine
from wrt._core.protocol import CannotBatch, TooFew
from wrt._core.value import Value
from wrt.errors import EngineRefused

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

Tensor = Any
Pulled = list[Tensor | None]

PFOR = "pfor"
ONE_BY_ONE = "one by one"
TRACED = "one by one, traced"
DOUBLE_BACKWARD = "double backward"
LARGE = 40_000  # bytes: such tensors take their time however they are swept
WORTH_TRACING = 64  # rows of large tensors, or columns
FEWEST = 16  # rows for which nothing is ever traced
KEPT = 8  # traced sweeps of one recording
PIECES = 8  # calls of a smaller batch that are cheaper than tracing a larger one


class TapeLinear:
    """The derivative of one tensor with respect to groups of sources; the gradients of a group are summed."""

    pull_rungs: tuple[str, ...] = (PFOR, TRACED, ONE_BY_ONE)
    push_rungs: tuple[str, ...] = (f"{DOUBLE_BACKWARD}, {PFOR}", f"{DOUBLE_BACKWARD}, {ONE_BY_ONE}")

    def __init__(self, recording: TensorFlowRecording, y: Value, groups: Sequence[Sequence[Tensor]]) -> None:
        self.recording = recording
        self.y = y
        self.groups = groups
        self.sources = [source for group in groups for source in group]
        self._seed: Tensor | None = None
        self._second: Any = None
        self._pulled: Pulled = []

    # ---------------------------------------------------------------- rows

    def row(self, position: int) -> Tensor | None:
        """One row in x's own shape: what one plain pass costs, and no more."""
        y = self.y
        seed = np.zeros(y.size, y.dtype.as_numpy_dtype)
        seed[position] = 1
        with compat.sweeping():
            return self._pull_one(tf.constant(seed.reshape(y.shape)))[0]

    def pull(self, seeds: Tensor, rung: str) -> Pulled:
        with compat.sweeping():
            if rung == PFOR and seeds.shape[0] > 1:
                return self._batch(seeds, "pull", self._pull_one)
            one = self._traced_pull(seeds) if rung == TRACED and seeds.shape[0] > 1 else self._pull_one
            rows = [one(seed) for seed in tf.unstack(seeds)]
            return [None if column[0] is None else _stacked(column) for column in zip(*rows, strict=True)]

    def _pull_one(self, seed: Tensor) -> Pulled:
        try:
            with LEAN.held():
                found = compat.pull(self.recording.tape, self.y.key.tensor, self.sources, seed)
        except (LookupError, ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
            raise engine(error) from error
        return _summed(self.groups, [_dense(gradient) for gradient in found])

    def pull_traceable(self, seeds: Tensor, by: Sequence[Value]) -> list[Value | None]:
        """The gradients as tensors of the same tape, which records how they are made."""
        recording = self.recording
        recording.watch_everything()
        with compat.unseen(), compat.reopened(recording.tape), nothing_read(recording):
            rows = [self._pull_one(seed) for seed in tf.unstack(seeds)]
            return [None if column[0] is None else recording.lift(tf.stack(column)) for column in zip(*rows, strict=True)]

    # ---------------------------------------------------------------- columns

    def push(self, tangents: Sequence[Tensor | None], rung: str) -> Tensor | None:
        with compat.sweeping():
            self._set_up_push()
            live = [(g, t) for g, t in zip(self._pulled, tangents, strict=True) if g is not None and t is not None]
            if not live:
                return None
            gradients = [g for g, _ in live]
            columns = [t for _, t in live]

            def one(*column: Tensor) -> Pulled:
                return [self._push_one(gradients, column)]

            if rung == self.push_rungs[0] and columns[0].shape[0] > 1:
                if len(columns) > 1:
                    raise CannotBatch("several tensors at once are pushed one by one")
                (pushed,) = self._batch(columns[0], "push", one)
                return pushed
            return _stacked([one(*column)[0] for column in zip(*map(tf.unstack, columns), strict=True)])

    def _push_one(self, gradients: Sequence[Tensor], column: Sequence[Tensor]) -> Tensor:
        try:
            with LEAN.held():
                found = compat.pull_many(self._second, gradients, [self._seed], column)[0]
        except Exception as error:
            raise CannotBatch(_first_line(error)) from error
        return tf.zeros_like(self._seed) if found is None else _dense(found)

    def _set_up_push(self) -> None:
        if self._seed is not None:
            return
        seed = tf.zeros(self.y.shape, self.y.dtype)
        try:
            with compat.second_tape(seed) as second:
                self._pulled = self._pull_one(seed)
        except EngineRefused as error:
            raise CannotBatch(error.where) from error
        self._seed, self._second = seed, second

    # ---------------------------------------------------------------- batches

    def _key(self, way: str) -> Hashable:
        return way, self.y.key.number, tuple(compat.number(source) for source in self.sources)

    def _is_large(self) -> bool:
        return max(self.y.size, *(int(np.prod(s.shape)) for s in self.sources), 1) * int(self.y.dtype.size) > LARGE

    def _pays(self, chosen: price.Price, count: int, seed: Tensor, *others: price.Price) -> bool:
        """Whether so many rows are cheapest swept so; one of them is measured first, unless they are too few anyway."""
        if count < FEWEST:
            return False
        measured, key = self.recording.rows, self._key("pull")
        if key not in measured:
            measured[key] = _measured(lambda: self._pull_one(seed))
        return price.pays(chosen, count, measured[key], *others)

    def _traced_pull(self, seeds: Tensor) -> Callable[[Tensor], Pulled]:
        """One pull, traced for all rows of this question and those to come."""
        key, traced = self._key(TRACED), self.recording.traced
        if key not in traced:
            count = seeds.shape[0] + self.recording.swept.get(key, 0)
            self.recording.swept[key] = count
            if self._is_large() or not self._pays(price.TRACED, count, seeds[0], price.ONE_BY_ONE):
                raise TooFew(f"{seeds.shape[0]} are swept faster than one is traced")
            _make_room(traced)
            traced[key] = Traced(self._pull_one, compat.traced)
        found: Traced = traced[key]
        try:
            found(seeds[0])
        except Exception as error:
            traced.pop(key, None)
            raise CannotBatch(_first_line(error)) from error
        return found

    def _worth_a_batch(self, way: str, seeds: Tensor) -> bool:
        """Whether a batch is traced for these; asked often enough, it is after all."""
        key, swept = self._key(way), self.recording.swept
        count = seeds.shape[0] + (swept.get(key, 0) if way == "pull" else 0)
        if way == "push" or self._is_large():
            worth = count >= WORTH_TRACING
        else:
            worth = self._pays(price.BATCHED, count, seeds[0], price.ONE_BY_ONE, price.TRACED)
        if not worth:
            swept[key] = count
        return worth

    def _batch(self, seeds: Tensor, way: str, one: Callable[[Tensor], Pulled]) -> Pulled:
        """`one` for all seeds at once, traced the first time; fewer are filled up with zeros, more come in pieces."""
        count = seeds.shape[0]
        key, traced = self._key(way), self.recording.traced
        if way == "push" or (key in traced and PIECES * traced[key].size < count):
            traced.pop(key, None)  # a push belongs to its own second tape
        if key not in traced:
            if not self._worth_a_batch(way, seeds):
                raise TooFew(f"{count} are swept faster one by one than a batch is traced")
            _make_room(traced)
            traced[key] = Batch(one, count)
        batch: Batch = traced[key]
        try:
            if count <= batch.size:
                return batch(seeds)
            pieces = [batch(seeds[start : start + batch.size]) for start in range(0, count, batch.size)]
            return [None if column[0] is None else tf.concat(column, 0) for column in zip(*pieces, strict=True)]
        except Exception as error:
            traced.pop(key, None)
            raise CannotBatch(_first_line(error)) from error


def _measured(pull: Callable[[], Pulled]) -> price.Row:
    """One row counted, another one timed: the first may be slow for other reasons."""
    ran: list[str] = []

    def note(op: str, *rest: Any, **keywords: Any) -> None:
        ran.append(op)

    compat.add_callback(note)
    try:
        pull()
    finally:
        compat.remove_callback(note)
    started = time.process_time()
    pull()
    return price.Row(len(ran), time.process_time() - started)


def _make_room(traced: dict[Any, Any]) -> None:
    while len(traced) >= KEPT:
        traced.pop(next(iter(traced)))


class Traced:
    """A sweep that is traced at its first call by `trace`; what no path leads to is None, as in the sweep itself."""

    def __init__(self, one: Callable[[Tensor], Pulled], trace: Callable[[Callable[[Tensor], Pulled]], Any]) -> None:
        self._reached: list[int] = []
        self._length = 0

        def reached_only(seed: Tensor) -> Pulled:
            found = one(seed)
            self._length = len(found)
            self._reached = [k for k, gradient in enumerate(found) if gradient is not None]
            return [found[k] for k in self._reached]

        self._run = trace(reached_only)

    def __call__(self, seeds: Tensor) -> Pulled:
        found = self._run(seeds)
        result: Pulled = [None] * self._length
        for k, gradient in zip(self._reached, found, strict=True):
            result[k] = gradient
        return result


class Batch:
    """One sweep for `size` seeds, traced at its first call."""

    def __init__(self, one: Callable[[Tensor], Pulled], size: int) -> None:
        self.size = size
        self._traced = Traced(one, lambda sweep: compat.batched(sweep, size))

    def __call__(self, seeds: Tensor) -> Pulled:
        count = seeds.shape[0]
        if count < self.size:
            seeds = tf.concat([seeds, tf.zeros((self.size - count, *seeds.shape[1:]), seeds.dtype)], 0)
        found = self._traced(seeds)
        return found if count == self.size else [None if gradient is None else gradient[:count] for gradient in found]


def _summed(groups: Sequence[Sequence[Tensor]], gradients: Pulled) -> Pulled:
    """One gradient for each group; None where nothing of the group is reached."""
    result: Pulled = []
    rest = iter(gradients)
    for group in groups:
        reached = [gradient for gradient in (next(rest) for _ in group) if gradient is not None]
        result.append(None if not reached else reached[0] if len(reached) == 1 else tf.add_n(reached))
    return result


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    return tf.expand_dims(rows[0], 0) if len(rows) == 1 else tf.stack(rows)


def _dense(gradient: Any) -> Tensor | None:
    """The gradient of a gather comes as slices: which rows, and what to add there."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


def _first_line(error: Exception) -> str:
    said = str(error).strip().splitlines()
    return said[0][:160] if said else type(error).__name__
