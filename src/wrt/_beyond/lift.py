"""A question about one sample, answered for a whole batch in the passes of one.

In a batch whose samples do not mix, the Jacobian is block-diagonal: one pull with a one at row k of every sample returns
row k of every sample's own Jacobian. That they do not mix is not assumed: a pull with random signs for the samples
proves it for every batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond.question import Question, value_at
from wrt._beyond.thresholds import SEED_NUMBERS
from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.protocol import CannotSweep, random_signs
from wrt._core.report import Report
from wrt._core.value import Value
from wrt._run.answer import raise_unless_independent
from wrt._run.prove import Proof, compare, wide
from wrt._run.sweep import Sweeper
from wrt._run.thresholds import FLOOR_ROUNDINGS
from wrt.errors import WrongQuery, WrongShape

Numbers = npt.NDArray[Any]


class Batched:
    """A question, in the run of `count` samples at once. `x` may be without an axis of samples: a parameter."""

    def __init__(self, question: Question, recording: Any, count: int) -> None:
        y, x = value_at(recording, question.y), value_at(recording, question.x)
        if not is_per_sample(y, question.rows.of, count):
            raise no_axis_of_samples("y", question.rows.of, y.shape, count)
        self.question, self.count = question, count
        self.shared = not is_per_sample(x, question.columns.of, count)
        if self.shared and x.shape != question.columns.of:
            raise no_axis_of_samples("x", question.columns.of, x.shape, count)
        self.ask = Ask(y, Elements.all(y.shape), recording.side(x, Elements.all(x.shape)))
        self.arrays = recording.backend.arrays
        recording.ready(y, self.ask.x)
        self.sweeper = Sweeper(self.ask, recording.engine(y, self.ask.x.values), Report())
        self.precision = Proof(self.sweeper).precision
        self.rows, self.columns = question.rows.positions, question.columns.positions
        whole = (y, *self.ask.x.values)
        can_push = self.sweeper.engine.can_push and not self.shared and not any(map(self.arrays.is_complex, whole))
        can_push = can_push and all(value.dtype == y.dtype for value in whole)  # what is pushed has y's precision
        self.by_rows = len(self.rows) <= len(self.columns) or not can_push

    # ---------------------------------------------------------------- what is taken

    def value(self) -> Numbers:
        """(count, r, c): every sample's own block."""
        found = np.concatenate([lines for _, lines in self._proven()], axis=0)  # (lines, count, across)
        return found.transpose(1, 0, 2) if self.by_rows else found.transpose(1, 2, 0)

    def norm(self) -> Numbers:
        """(count,): the Frobenius norm of every sample's block, which is never stored."""
        squares = np.zeros(self.count)
        for _, lines in self._proven():
            for part in (lines.real, lines.imag) if lines.dtype.kind == "c" else (lines,):
                squares += np.einsum("kbc,kbc->kb", part, part).sum(0, dtype=float)
        return np.sqrt(squares)

    def diagonal(self) -> Numbers:
        """(count, r): dy_i/dx_i of every sample."""
        if len(self.rows) != len(self.columns):
            raise WrongShape(
                f"a Jacobian of {len(self.rows)} x {len(self.columns)} has no diagonal",
                f"for one sample y has shape {self.question.rows.shape}, x has shape {self.question.columns.shape}",
                "ask for elements of both sides that match",
            )
        kept = [lines[np.arange(len(at)), :, at] for at, lines in self._proven()]
        return np.concatenate(kept, axis=0).T

    # ---------------------------------------------------------------- rows or columns of all samples at once

    def _proven(self) -> Iterator[tuple[Numbers, Numbers]]:
        """(numbers of the lines, (lines, count, across)), and at the end the proof that samples do not mix."""
        signs = random_signs(1, self.count, 31)[0]
        weights = random_signs(1, len(self.rows), 32)[0]
        got = np.zeros((self.count, len(self.columns)))
        squares = np.zeros_like(got)
        for at, lines in self._lines():
            yield at, lines
            if lines.dtype.kind == "c":
                got = got.astype(complex)
            if self.by_rows:
                got += np.tensordot(weights[at], lines.astype(got.dtype), 1)
                squares += (np.abs(lines).astype(np.float64) ** 2).sum(0)
            else:
                got[:, at] += (lines.astype(got.dtype) @ weights).T
                squares[:, at] += (np.abs(lines).astype(np.float64) ** 2).sum(2).T
        self._prove(signs, weights, got * signs[:, None], squares * (signs**2)[:, None])

    def _prove(self, signs: Numbers, weights: Numbers, got: Numbers, squares: Numbers) -> None:
        """One plain pull with random signs for the samples, held to what they say one by one (see `_run/prove.py`)."""
        alone = np.bincount(self.rows, weights, self.ask.m // self.count)
        seed, arrays = np.outer(signs, alone).reshape(1, -1), self.arrays
        pulled = self.sweeper.plain(arrays.from_numpy(seed, self.ask.y), "independent check")
        if pulled is None:
            return
        if self.shared:
            got, squares = got.sum(0, keepdims=True), squares.sum(0, keepdims=True)
        expected = wide(arrays.numpy(pulled)).reshape(len(got), -1)[:, self.columns]
        noise = FLOOR_ROUNDINGS * self.precision * np.abs(expected)  # the seed is rounded to y's type
        held = compare(
            got.reshape(-1), np.sqrt(squares).reshape(-1), expected.reshape(-1), self.precision, noise.reshape(-1)
        ).certificate
        if not held.passed:
            raise mixed(f"a pull with random signs for the samples differs by {held.difference:.1e} of its size")

    def _lines(self) -> Iterator[tuple[Numbers, Numbers]]:
        try:
            yield from self._swept()
        except CannotSweep:
            if self.by_rows:
                raise
            self.by_rows = True  # pushing is refused here: rows, whatever they cost
            yield from self._swept()

    def _swept(self) -> Iterator[tuple[Numbers, Numbers]]:
        lines = self.rows if self.by_rows else self.columns
        across = self.columns if self.by_rows else self.rows
        whole = self.ask.m if self.by_rows else self.ask.n
        piece = max(1, SEED_NUMBERS // (max(self.ask.m, self.ask.n) * (self.count if self.shared else 1)))
        for start in range(0, len(lines), piece):
            at = np.arange(start, min(start + piece, len(lines)))
            seeds = self._seeds(lines[at], whole)
            if self.by_rows:
                found = self.sweeper.pull_weights(seeds, "lines of all samples")
            else:
                found = self.sweeper.push(seeds, "lines of all samples")
            if found is None:
                raise_unless_independent(self.ask)
                numbers = np.zeros((len(at), self.count, len(across)), self._dtype())
            elif self.shared:
                numbers = self.arrays.numpy(found).reshape(len(at), self.count, -1)[:, :, across]
            else:
                numbers = self._asked(self.arrays.numpy(found).reshape(len(at), self.count, -1), across)
            yield at, numbers

    @staticmethod
    def _asked(numbers: Numbers, across: Numbers) -> Numbers:
        everything = len(across) == numbers.shape[2] and bool((across == np.arange(len(across))).all())
        return numbers if everything else numbers[:, :, across]

    def _seeds(self, places: Numbers, whole: int) -> Any:
        """A one at each place of every sample: together for a block of every sample, one by one for what they share."""
        like = self.ask.y if self.by_rows else self.ask.x.values[0]
        samples = np.arange(self.count) * (whole // self.count)
        spots = places[:, None] + samples[None, :]  # (lines, count)
        if self.shared:
            count = spots.size
            flat = np.arange(count) * whole + spots.reshape(-1)
        else:
            count = len(places)
            flat = (np.arange(count)[:, None] * whole + spots).reshape(-1)
        ones = self.arrays.from_numpy(np.ones(len(flat)), like)
        return self.arrays.scatter((count, whole), flat, ones, like)

    def _dtype(self) -> Any:
        return self.arrays.numpy(self.arrays.zeros((0,), self.ask.x.values[0])).dtype


def no_axis_of_samples(letter: str, alone: tuple[int, ...], batched: tuple[int, ...], count: int) -> WrongShape:
    """A sum or a mean over the batch cannot be told apart into samples; nor can samples along another axis."""
    return WrongShape(
        f"{letter} has no axis of samples in front",
        f"its shape is {alone} for one sample and {batched} for {count}",
        'ask for a value with one entry for each sample (a loss with reduction="none"), or write batch=1',
    )


def mixed(words: str) -> WrongQuery:
    """An answer for one sample would depend on the others of its batch."""
    return WrongQuery(
        "the samples of a batch are not independent of each other",
        words,
        "put the model in evaluation mode (batch normalization, dropout), or write batch=1",
    )


def is_per_sample(value: Value, alone: tuple[int, ...], count: int) -> bool:
    """Whether a Value of the batch is `count` times the Value of one sample, along its first axis."""
    return bool(alone) and alone[0] == 1 and value.shape == (count, *alone[1:])
