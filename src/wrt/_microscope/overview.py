"""`map`: how strongly one axis of the target depends on one axis of the source; a causal model shows its triangle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wrt._microscope import encode
from wrt._microscope.answer import Limits, afford, report
from wrt._microscope.question import Side, malformed
from wrt._notation.d import d
from wrt._run.progress import LISTENER
from wrt._study.tensors import numbers
from wrt.errors import WrtError


def overview(y: Side, x: Side, keep: Any, limits: Limits) -> dict[str, Any]:
    """The size of the derivative between every pair of positions along two axes, over everything else."""
    row, column = _axes(keep, y, x)
    started = time.perf_counter()
    whole = d(y.selected) / d(x.selected)
    lengths = y.selected.shape[row], x.selected.shape[column]
    afford(whole, whole.explain().passes, (*y.selected.shape[:row], *y.selected.shape[row + 1 :], *x.selected.shape), limits)
    table = np.zeros(lengths)
    passes = 0
    for k in range(lengths[0]):
        J = d(y.selected[(slice(None),) * row + (k,)]) / d(x.selected)
        with _step(f"position {k + 1} of {lengths[0]}", k, lengths[0]):
            block = np.abs(numbers(J)).astype(np.float64)
        ran = report(J)
        passes += 0 if ran is None else ran.passes
        kept = block.ndim - len(x.selected.shape) + column
        others = tuple(axis for axis in range(block.ndim) if axis != kept)
        table[k] = np.sqrt(np.square(block).sum(axis=others))
    return {
        "kind": "map",
        "shape": list(table.shape),
        "data": encode.array(table),
        **encode.extremes(table),
        "keep": [row, column],
        "python": f"{y.python()} / {x.python()}",
        "passes": passes,
        "seconds": time.perf_counter() - started,
        "connected": bool(whole.connected),
        "ask": {"target": y.asked(), "source": x.asked(), "keep": [row, column]},
    }


@contextmanager
def _step(words: str, done: int, total: int) -> Iterator[None]:
    """One step of many: whoever listens hears of the steps, not of the passes within each, and may end them all the same."""
    listener = LISTENER.get()
    if listener is None:
        yield
        return
    listener(words, done, total)
    before = LISTENER.set(lambda *passes: listener(words, done, total))
    try:
        yield
    finally:
        LISTENER.reset(before)


def _axes(keep: Any, y: Side, x: Side) -> tuple[int, int]:
    if not isinstance(keep, list) or len(keep) != 2 or not all(type(axis) is int for axis in keep):
        raise malformed("keep is not two axes", '"keep": [1, 1]')
    for axis, one in zip(keep, (y, x)):
        if not 0 <= axis < len(one.selected.shape):
            raise WrtError(
                f"{one.name} has no axis {axis}", f"its shape is {one.selected.shape}", "choose an axis that it has"
            )
    return keep[0], keep[1]
