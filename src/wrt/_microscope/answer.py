"""`derivative`: a row, a column, an element or a block, through the same lazy Derivative that a program would use."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._core.finding import Finding
from wrt._core.report import Report
from wrt._microscope import encode
from wrt._microscope.encode import Numbers
from wrt._microscope.graph import short
from wrt._microscope.question import Side, malformed
from wrt._notation.d import d
from wrt._notation.derivative import Derivative
from wrt._study.tensors import numbers
from wrt.errors import NoPath, TooLarge

BLOCK = 64 * 64  # entries of a true block that are sent with its sum


@dataclass(frozen=True, slots=True)
class Limits:
    """What one question may cost: sweeps of the engine, and bytes of the answer."""

    passes: int = 4096
    bytes: int = 64 * 2**20


@dataclass(slots=True)
class Found:
    """Numbers with the shape of one side, and the question that gave them."""

    kind: str
    over: str
    data: Numbers
    J: Derivative
    python: str
    reduced: str | None = None
    block: Numbers | None = None


def derivative(y: Side, x: Side, reduce: Any, limits: Limits) -> dict[str, Any]:
    """The reply to `derivative`."""
    if reduce not in (None, "sum", "norm"):
        raise malformed("reduce is something else", '"sum", "norm" or null')
    started = time.perf_counter()
    J = d(y.selected) / d(x.selected)
    try:
        found = _found(J, y, x, reduce, limits)
    except NoPath as error:
        reply = _cut(J, y, x, error, time.perf_counter() - started)
    else:
        reply = _reply(found, y, x, time.perf_counter() - started)
    return reply | {"ask": {"target": y.asked(), "source": x.asked(), "reduce": reduce}}


def _found(J: Derivative, y: Side, x: Side, reduce: str | None, limits: Limits) -> Found:
    python = f"{y.python()} / {x.python()}"
    if y.element:
        afford(J, 1, x.selected.shape, limits)
        return Found("element" if x.element else "row", "source", numbers(J), J, python)
    if x.element:
        afford(J, J.explain().passes, y.selected.shape, limits)
        return Found("column", "target", numbers(J), J, python)
    if reduce == "norm":
        return _norm(J, y, x, python, limits)
    return _sum(J, y, x, python, limits)


def _sum(J: Derivative, y: Side, x: Side, python: str, limits: Limits) -> Found:
    """The gradient of the sum over the region; a small block is sent as it is, too."""
    small = J.size <= BLOCK
    block = numbers(J) if small else None
    by_source = not y.whole or x.whole
    afford(J, 1, (x if by_source else y).selected.shape, limits)
    rows = tuple(range(len(y.selected.shape)))
    columns = tuple(range(len(rows), J.ndim))
    if by_source:
        data = block.sum(axis=rows) if block is not None else numbers(np.ones(y.selected.shape) @ J)
        return Found("block", "source", data, J, f"np.ones({y.selected.shape}) @ ({python})", "sum", block)
    if block is not None:
        data = block.sum(axis=columns)
    else:
        afford(J, J.explain().passes, y.selected.shape, limits)
        data = numbers(J @ np.ones(x.selected.shape))
    return Found("block", "target", data, J, f"({python}) @ np.ones({x.selected.shape})", "sum", block)


def _norm(J: Derivative, y: Side, x: Side, python: str, limits: Limits) -> Found:
    """How strongly each element of one side moves the region of the other: all its rows are needed."""
    afford(J, J.explain().passes, J.shape, limits)
    block = numbers(J)
    rows = tuple(range(len(y.selected.shape)))
    by_source = not y.whole or x.whole
    axes = rows if by_source else tuple(range(len(rows), J.ndim))
    data = np.sqrt(np.square(block).sum(axis=axes))
    told = f"np.sqrt(np.square(({python}).numpy()).sum(axis={axes}))"
    over = "source" if by_source else "target"
    return Found("block", over, data, J, told, "norm", block if J.size <= BLOCK else None)


def afford(J: Derivative, passes: int, shape: tuple[int, ...], limits: Limits) -> None:
    """Refuse before anything runs."""
    if passes > limits.passes:
        raise TooLarge(
            f"this answer takes {passes} passes",
            f"the page may use {limits.passes} for one question",
            "choose one element of the target (a row is one pass), or a smaller region",
        )
    size = 8 * math.prod(shape)
    if size > limits.bytes:
        raise TooLarge(
            f"this answer has {math.prod(shape)} numbers",
            f"the page may be sent {limits.bytes // 2**20} MiB for one question",
            "choose a part of the tensor, or ask in Python",
        )


def _reply(found: Found, y: Side, x: Side, seconds: float) -> dict[str, Any]:
    data = encode.real(found.data)
    covered = x if found.over == "source" else y
    ran = report(found.J)
    reply = {
        "kind": found.kind,
        "over": found.over,
        "index": covered.covers(),
        "shape": list(data.shape),
        "data": encode.array(data),
        **encode.extremes(data),
        "reduced": found.reduced,
        "python": found.python,
        "plan": plan(found.J),
        "certificate": None if ran is None or ran.certificate is None else str(ran.certificate),
        "seconds": seconds,
        "passes": 0 if ran is None else ran.passes,
        "connected": found.J.connected,
        "finding": None,
        "note": "complex: the size of each derivative is shown" if found.data.dtype.kind == "c" else None,
    }
    if found.block is not None:
        block = encode.real(found.block)
        reply["block"] = {"shape": list(block.shape), "data": encode.array(block)}
    return reply


def report(J: Derivative) -> Report | None:
    """What ran; `explain()` would also look for hooks in the whole program, too slow for a click."""
    return J.known.report if J.known is not None else J._report


def plan(J: Derivative) -> dict[str, Any]:
    """What ran, in a form that JSON can hold."""
    ran = report(J)
    told: dict[str, Any] = {"question": f"{J.ask.m} x {J.ask.n} entries", "shape": list(J.shape)}
    return told | ({} if ran is None else ran.to_dict())


def _cut(J: Derivative, y: Side, x: Side, error: NoPath, seconds: float) -> dict[str, Any]:
    """No gradient arrives although the value does: nothing is drawn, and the reason stands in its place."""
    finding = error.finding
    over = "target" if x.element and not y.element else "source"
    covered = y if over == "target" else x
    return {
        "kind": "column" if over == "target" else "row",
        "over": over,
        "index": covered.covers(),
        "shape": list(covered.selected.shape),
        "data": None,
        "min": 0.0,
        "max": 0.0,
        "zeros": 0,
        "nonfinite": 0,
        "reduced": None,
        "python": f"{y.python()} / {x.python()}",
        "plan": None,
        "certificate": None,
        "seconds": seconds,
        "passes": 0,
        "connected": False,
        "finding": short(finding) if isinstance(finding, Finding) else _sentence(error),
        "note": error.write,
    }


def _sentence(error: NoPath) -> dict[str, Any]:
    return {"cause": "", "sentence": f"{error.what}: {error.where}", "line": None}
