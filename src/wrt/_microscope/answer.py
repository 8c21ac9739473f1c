"""What a page asks, read with suspicion, and the answers: a derivative, an overview of one, the reasons why.

Names are looked up, indices are checked, nothing is evaluated; the numbers come through the same lazy Derivative that a
program would use.
"""

from __future__ import annotations

import linecache
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._core.finding import Finding
from wrt._core.report import Report
from wrt._core.thresholds import BLOCK_BYTES
from wrt._core.where import Where
from wrt._microscope import encode
from wrt._microscope.encode import Numbers
from wrt._microscope.graph import Names, base_name
from wrt._microscope.thresholds import QUESTION_PASSES
from wrt._notation.d import d
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle
from wrt._notation.why import why
from wrt._run.progress import LISTENER
from wrt._study.tensors import numbers
from wrt.errors import NoPath, TooLarge, WrongIndex, WrongQuery, WrtError

Index = tuple[int | slice, ...]


# ---- reading a question ----


@dataclass(frozen=True, slots=True)
class Side:
    """A value by its name, and the part of it that is meant (None: all of it)."""

    name: str
    index: Index | None
    handle: Handle
    text: str

    @property
    def selected(self) -> Handle:
        return self.handle if self.index is None else self.handle[self.index]

    @property
    def element(self) -> bool:
        """Whether one single element is meant."""
        if self.index is None:
            return not self.handle.shape
        return len(self.index) == len(self.handle.shape) and all(isinstance(item, int) for item in self.index)

    @property
    def whole(self) -> bool:
        return self.index is None

    def python(self) -> str:
        """As a user would write it."""
        return f"d({self.text})" + (f"[{_spell(self.index)}]" if self.index else "")

    def asked(self) -> dict[str, Any]:
        """The question again, in one spelling."""
        return {"name": self.name, "index": None if self.index is None else self.covers()}

    def covers(self) -> list[int | list[int]]:
        """Which part of the value it is, axis by axis."""
        index = self.index or ()
        rest = [[0, length] for length in self.handle.shape[len(index) :]]
        return [item if isinstance(item, int) else [item.start, item.stop] for item in index] + rest


def side(names: Names, asked: Any) -> Side:
    """One side of a question: `{"name": "conv1", "index": [0, [2, 5], null]}`."""
    if not isinstance(asked, dict):
        raise malformed("a side of a question is not an object", '{"name": "x", "index": null}')
    name = name_in(asked)
    handle = names.handle(name)
    return Side(name, index(asked.get("index"), handle.shape), handle, names.python(name))


def name_in(asked: Any) -> str:
    name = asked.get("name") if isinstance(asked, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= 1000:
        raise malformed("a name is not a text of sensible length", '{"name": "x"}')
    return name


def index(asked: Any, shape: tuple[int, ...]) -> Index | None:
    """Integers, `[from, to]` and null for everything, one for each axis at most."""
    if asked is None:
        return None
    if not isinstance(asked, list) or len(asked) > 32:
        raise malformed("an index is not a list", "[0, [2, 5], null]")
    if len(asked) > len(shape):
        raise WrongIndex(
            f"{len(asked)} indices for {len(shape)} axes", f"the shape here is {shape}", f"give at most {len(shape)}"
        )
    return tuple(_item(item, axis, shape) for axis, item in enumerate(asked))


def _item(item: Any, axis: int, shape: tuple[int, ...]) -> int | slice:
    """One item of an index, checked against its axis."""
    length = shape[axis]
    if item is None:
        return slice(0, length)
    if _is_whole(item):
        if not 0 <= item < length:
            raise WrongIndex(
                f"index {item} is out of bounds for axis {axis} with size {length}",
                f"the shape here is {shape}",
                f"valid indices of axis {axis}: 0 to {length - 1}",
            )
        return int(item)
    if not isinstance(item, list) or len(item) != 2 or not all(map(_is_whole, item)):
        raise malformed("an index is made of integers, [from, to] and null", "[0, [2, 5], null]")
    start, stop = item
    if not 0 <= start < stop <= length:
        raise WrongIndex(
            f"from {start} to {stop} is no part of axis {axis} with size {length}",
            f"the shape here is {shape}",
            f"write [from, to] with 0 <= from < to <= {length}",
        )
    return slice(start, stop)


def _is_whole(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and abs(item) < 2**53


def _spell(chosen: Index) -> str:
    """An index as Python writes it.

    >>> _spell((0, slice(2, 5), slice(0, 7)))
    '0, 2:5, 0:7'
    """
    return ", ".join(str(item) if isinstance(item, int) else f"{item.start}:{item.stop}" for item in chosen)


def malformed(what: str, write: str) -> WrongQuery:
    return WrongQuery(what, "the page asks in JSON, as the protocol says", f"write {write}")


# ---- `derivative`: a row, a column, an element or a block ----


@dataclass(frozen=True, slots=True)
class Limits:
    """What one question may cost: sweeps of the engine, bytes of the answer, seconds to be sent; how long one is waited for."""

    passes: int = QUESTION_PASSES
    bytes: int = BLOCK_BYTES
    request_s: float = 10.0
    idle_s: float = 8 * 3600.0


@dataclass(slots=True)
class Found:
    """Numbers with the shape of one side, and the question that gave them; of a small block the block itself, too."""

    kind: str
    over: str
    data: Numbers
    python: str
    reduced: str | None = None
    block: Numbers | None = None


def derivative(y: Side, x: Side, reduce: Any, limits: Limits) -> dict[str, Any]:
    """The reply to `derivative`."""
    if reduce not in (None, "sum", "norm"):
        raise malformed("reduce is something else", '"sum", "norm" or null')
    started = time.perf_counter()
    J = d(y.selected) / d(x.selected)
    missing: NoPath | None = None
    try:
        found = _find(J, y, x, reduce, limits)
    except NoPath as error:
        missing = error
        kind, over = ("column", "target") if x.element and not y.element else ("row", "source")
        found = Found(kind, over, np.zeros(0), f"{y.python()} / {x.python()}")
    seconds = time.perf_counter() - started
    covered = x if found.over == "source" else y
    return {
        "kind": found.kind,
        "over": found.over,
        "index": covered.covers(),
        **(_numbers(J, found) if missing is None else _no_numbers(missing, covered.selected.shape)),
        "reduced": found.reduced,
        "python": found.python,
        "seconds": seconds,
        "ask": {"target": y.asked(), "source": x.asked(), "reduce": reduce},
    }


def _find(J: Derivative, y: Side, x: Side, reduce: str | None, limits: Limits) -> Found:
    python = f"{y.python()} / {x.python()}"
    if y.element:
        afford(1, x.selected.shape, limits)
        return Found("element" if x.element else "row", "source", numbers(J), python)
    if x.element:
        afford(J.explain().passes, y.selected.shape, limits)
        return Found("column", "target", numbers(J), python)
    return _reduce(J, y, x, reduce or "sum", python, limits)


def _reduce(J: Derivative, y: Side, x: Side, reduce: str, python: str, limits: Limits) -> Found:
    """A block over one of its sides: the gradient of the sum over the region, or how strongly each element moves it."""
    by_source = not y.whole or x.whole
    over, shape = ("source", x.selected.shape) if by_source else ("target", y.selected.shape)
    rows = len(y.selected.shape)
    axes = tuple(range(rows)) if by_source else tuple(range(rows, J.ndim))
    small = J.size <= 64 * 64  # such a block is sent as it is, too
    if reduce == "norm":
        afford(J.explain().passes, J.shape, limits)
        block = numbers(J)
        written = f"np.sqrt(np.square(({python}).numpy()).sum(axis={axes}))"
        return Found("block", over, np.sqrt(np.square(block).sum(axis=axes)), written, "norm", block if small else None)
    afford(1 if by_source or small else J.explain().passes, shape, limits)
    ones = f"np.ones({(y if by_source else x).selected.shape})"
    written = f"{ones} @ ({python})" if by_source else f"({python}) @ {ones}"
    if small:
        block = numbers(J)
        return Found("block", over, block.sum(axis=axes), written, "sum", block)
    data = np.ones(y.selected.shape) @ J if by_source else J @ np.ones(x.selected.shape)
    return Found("block", over, numbers(data), written, "sum")


def afford(passes: int, shape: tuple[int, ...], limits: Limits) -> None:
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


def _numbers(J: Derivative, found: Found) -> dict[str, Any]:
    data, ran = encode.real(found.data), report(J)
    reply = {
        "shape": list(data.shape),
        "data": encode.array(data),
        **encode.extremes(data),
        "plan": plan(J),
        "certificate": certificate(J),
        "passes": 0 if ran is None else ran.passes,
        "connected": J.has_path,
        "finding": None,
        "note": "complex: the size of each derivative is shown" if found.data.dtype.kind == "c" else None,
    }
    if found.block is not None:
        block = encode.real(found.block)
        reply["block"] = {"shape": list(block.shape), "data": encode.array(block)}
    return reply


def _no_numbers(error: NoPath, shape: tuple[int, ...]) -> dict[str, Any]:
    """No gradient arrives although the value does: nothing is drawn, and the reason stands in its place."""
    known = error.finding
    finding: dict[str, Any] = {"cause": "", "sentence": f"{error.what}: {error.where}", "line": None}
    if isinstance(known, Finding):
        finding = {"cause": known.cause, "sentence": known.sentence, "line": known.line}
    return {
        "shape": list(shape), "data": None, "min": 0.0, "max": 0.0, "zeros": 0, "nonfinite": 0, "plan": None,
        "certificate": None, "passes": 0, "connected": False, "finding": finding, "note": error.write,
    }  # fmt: skip


def report(J: Derivative) -> Report | None:
    """What ran; `explain()` would also look for hooks in the whole program, too slow for a click."""
    return J.known.report if J.known is not None else J._report


def certificate(J: Derivative) -> str | None:
    """What proves the answer, in words."""
    ran = report(J)
    return None if ran is None or ran.certificate is None else str(ran.certificate)


def plan(J: Derivative) -> dict[str, Any]:
    """What ran, in a form that JSON can hold."""
    ran = report(J)
    return {"question": f"{J.ask.m} x {J.ask.n} entries", "shape": list(J.shape)} | ({} if ran is None else ran.to_dict())


# ---- `map`: how strongly one axis of the target depends on one axis of the source; a causal model shows its triangle ----


def overview(y: Side, x: Side, keep: Any, limits: Limits) -> dict[str, Any]:
    """The size of the derivative between every pair of positions along two axes, over everything else."""
    row, column = _axes(keep, y, x)
    started = time.perf_counter()
    whole = d(y.selected) / d(x.selected)
    lengths = y.selected.shape[row], x.selected.shape[column]
    afford(max(lengths[0], whole.explain().passes), lengths, limits)
    afford(0, (*y.selected.shape[:row], *y.selected.shape[row + 1 :], *x.selected.shape), limits)
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
        "connected": bool(whole.has_path),
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


# ---- `why`: the findings for a pair of values, with the lines of source they point at ----


def reasons(y: Side, x: Side, *, sources: bool) -> dict[str, Any]:
    """The reply to `why`."""
    found = why(y.selected, x.selected)
    return {"question": found.question, "findings": [_finding(finding, sources=sources) for finding in found]}


def _finding(finding: Finding, *, sources: bool) -> dict[str, Any]:
    """One finding as plain data; the file by its name alone."""
    where = finding.where
    return {
        "cause": finding.cause,
        "sentence": finding.sentence,
        "certain": finding.certain,
        "file": None if where is None else base_name(where),
        "line": finding.line,
        "function": None if where is None else where.function or None,
        "evidence": finding.evidence.splitlines(),
        "remedy": finding.remedy,
        "source_lines": _lines(where) if sources and where is not None else None,
    }


def _lines(where: Where) -> list[dict[str, Any]] | None:
    around = range(max(1, where.line - 2), where.line + 3)
    texts = [(line, linecache.getline(where.file, line).rstrip("\n")) for line in around]
    shown = [{"line": line, "text": text, "mark": line == where.line} for line, text in texts if text]
    return shown or None
