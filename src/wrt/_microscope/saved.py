"""A page in one file: what it carries is chosen beforehand, fits a stated size, and names no folder of this machine.

A whole Jacobian goes into it in its smallest form: dense, sparse, or two thin factors through a narrow place.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wrt._core.files import refuse_foreign, write_whole
from wrt._core.index import Elements
from wrt._core.protocol import random_signs
from wrt._core.report import Certificate
from wrt._core.thresholds import BLOCK_BYTES
from wrt._microscope import assets, encode
from wrt._microscope.answer import certificate, plan
from wrt._microscope.encode import Numbers
from wrt._microscope.graph import is_float
from wrt._microscope.model import Microscope
from wrt._microscope.thresholds import QUESTION_PASSES, SAVED_SECONDS
from wrt._notation.d import d
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle, Trace
from wrt._run.prove import compare, wide
from wrt._study.tensors import handle_of, narrow_places, numbers
from wrt.errors import NotATensor, TooLarge, WrtError

UNITS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
Named = tuple[str, Handle]
"""A value by the name that the page has for it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The file, and what it carries."""

    path: Path
    bytes: int
    rows: int
    words: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.path}: {self.words}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(str(self))}</p>"


def save(
    microscope: Microscope, path: str | os.PathLike[str], *, rows: Sequence[Any] | None = None, by: Sequence[Any] = (),
    limit: str | int = "20 MB",
) -> Saved:  # fmt: skip
    """Compute what was chosen, or a sensible choice, and write the page."""
    target, page = Path(path).resolve(), assets.bundle()
    refuse_foreign(target)  # before anything is computed
    carried = Carried(microscope, _bytes(limit), len(page.script) + len(page.style))
    usual = [] if microscope.start.source is None else [microscope.start.source]
    sources = [microscope.named(one) for one in by or usual]
    if rows is None:
        carried.choose(sources)
    else:
        for one in rows:
            for source in sources:
                carried.rows(microscope.named(one), source)
    carried.tensors()
    hello = microscope.hello({})
    text = assets.file_page(f"{hello['title']} · wrt", encode.text(carried.data(hello)), page)
    encoded = text.encode(errors="replace")
    if len(encoded) > carried.limit:
        raise carried.too_large("what the page needs for itself", len(encoded))
    refuse_foreign(target)
    write_whole(target, encoded)
    return Saved(Path(path), len(encoded), carried.count, carried.words(len(encoded)))


class Carried:
    """What goes into one file, and how much room is left."""

    def __init__(self, microscope: Microscope, limit: int, page: int) -> None:
        self.microscope = microscope
        self.limit = limit
        self.graph = microscope.graph({})
        self.used = page + len(encode.text(self.graph)) + 20_000
        self.count = 0
        self.pairs: list[str] = []
        self._matrices: list[dict[str, Any]] = []
        self._tensors: dict[str, Any] = {}
        self._sizes: list[dict[str, Any]] = []
        self._why: list[dict[str, Any]] = []

    # ---------------------------------------------------------------- derivatives

    def rows(self, y: Named, x: Named) -> None:
        """Every element of y's selection by all of x: asked for, so it has to fit."""
        try:
            found = matrix(self.microscope.t, y, x)
        except WrtError as error:
            self._missing(y, x, error)
            return
        size = bytes_of(found)
        if self.used + size > self.limit:
            raise self.too_large(f"{y[0]} by {x[0]}", self.used + size)
        self._add(found, size, y, x)

    def choose(self, sources: list[Named]) -> None:
        """The output and every layer by the input: all rows where small, otherwise rows spread over it.

        Nobody asked for the most that fits: half of the room is left to the values, or unused.
        """
        started = time.monotonic()
        room = (self.limit - self.used) // 2 + self.used
        for y in self._places():
            for x in sources:
                left = SAVED_SECONDS - (time.monotonic() - started)
                if y[0] != x[0] and (left > 0 or not self._matrices):
                    self._offer(y, x, (room - self.used) // (1 if not self._matrices else 4), max(left, 0.0) / 2)

    def _places(self) -> list[Named]:
        """The target first, then what the layers gave, the last one first."""
        m = self.microscope
        made = [k for k, one in m.plain.tensors.items() if k in m.start.after and is_float(one.dtype) and m.names.best(k)]
        layers = [k for k in made if m.names.kind(k) == "module-output"]
        names = [m.start.target, *(m.names.best(k) for k in reversed(layers or made))][:25]
        return [(name, m.names.handle(name)) for name in dict.fromkeys(names) if name is not None]

    def _offer(self, y: Named, x: Named, room: int, seconds: float) -> None:
        m = math.prod(y[1].shape)
        first = self.microscope.start.index if y[0] == self.microscope.start.target else None
        few = m <= QUESTION_PASSES and dense_bytes(y[1], x[1]) <= BLOCK_BYTES
        most = max(1, int(4 * seconds / _row_seconds(y[1], x[1])))  # four rows of a batch take the time of one, at least
        for count in ([m] if few else []) + [min(m, 256), min(m, 16), 1]:
            if count > most:
                continue
            chosen = y if count >= m else (y[0], _pick(y[1], spread(y[1].shape, count, first)))
            if count != m and dense_bytes(chosen[1], x[1]) > room:
                continue
            try:
                found = matrix(self.microscope.t, chosen, x)
            except WrtError as error:
                self._missing(chosen, x, error)
                return
            size = bytes_of(found)
            if size <= room:
                self._add(found, size, chosen, x)
                return

    def _add(self, found: dict[str, Any], size: int, y: Named, x: Named) -> None:
        self._matrices.append(found)
        self.used += size + 2000
        rows = math.prod(y[1].shape)
        self.count += rows
        whole = "" if found["rows"] is None else f" of {math.prod(found['target']['shape'])}"
        self.pairs.append(f"{rows}{whole} {'row' if rows == 1 and not whole else 'rows'} of {y[0]} by {x[0]} ({found['kind']})")

    def _missing(self, y: Named, x: Named, error: WrtError) -> None:
        """No path, or no derivative: the file says why instead."""
        sides = {"target": {"name": y[0], "index": None}, "source": {"name": x[0], "index": None}}
        try:
            told = self.microscope.why(sides)
        except WrtError:
            told = {"question": "", "findings": []}
        stands = error.where if self.microscope.sources else ""  # the second line of an error quotes the user's code
        told["error"] = {"what": error.what, "stands": stands, "write": error.write}
        self._why.append({"target": {"name": y[0]}, "source": {"name": x[0]}, "reply": told})

    # ---------------------------------------------------------------- numbers

    def tensors(self) -> None:
        """The values themselves: both sides of every matrix, then others up to half of the limit."""
        m = self.microscope
        wanted = [side["name"] for one in self._matrices for side in (one["target"], one["source"])]
        wanted += [one[side]["name"] for one in self._why for side in ("target", "source")]
        others = [name for k in m.plain.tensors if (name := m.names.best(k)) is not None]
        for name in dict.fromkeys(wanted + others):
            size = int(math.prod(m.names.handle(name).shape) * 8 * 4 / 3) + 600
            if self.used + size > (self.limit if name in wanted else self.limit // 2):
                continue
            try:
                self._tensors[name] = m.tensor({"name": name})
            except WrtError:
                continue
            data = self._tensors[name]["data"]
            self.used += 600 + (len(data["base64"]) if data else 0)
        self._measure()

    def _measure(self) -> None:
        begin = self.microscope.start
        for index in (None, begin.index) if begin.target is not None else ():
            with contextlib.suppress(WrtError):
                self._sizes.append(self.microscope.sizes({"target": {"name": begin.target, "index": index}}))

    # ---------------------------------------------------------------- the whole

    def data(self, hello: dict[str, Any]) -> dict[str, Any]:
        return {
            "hello": hello | self._there() | {"computes": False, "verbs": None, "note": hello["note"] or self._note()},
            "graph": self.graph,
            "tensors": self._tensors,
            "answers": [],
            "maps": self._matrices,
            "sizes": self._sizes,
            "whys": self._why,
            "made": {"rows": self.count, "words": "; ".join(self.pairs)},
        }

    def _there(self) -> dict[str, list[str]]:
        """What can be chosen on the page: what has an answer in it."""
        pairs = [*self._matrices, *self._why]
        sides = {f"{side}s": list(dict.fromkeys(one[side]["name"] for one in pairs)) for side in ("target", "source")}
        return sides if pairs else {}

    def _note(self) -> str:
        return f"a saved page: it carries {self._list(3)}. A live one answers every click: t.show()"

    def _list(self, most: int) -> str:
        more = len(self.pairs) - most
        return "; ".join([*self.pairs[:most], *([f"{more} more"] if more > 0 else [])]) or "no derivatives"

    def words(self, size: int) -> str:
        told = f"{size / 1e6:.1f} MB of {self.limit / 1e6:g} MB"
        values = f"{sum(one['data'] is not None for one in self._tensors.values())} values"
        return f"{told}, {values}, {self._list(6)}"

    def too_large(self, what: str, size: int) -> TooLarge:
        return TooLarge(
            f"{what} would make the file {size / 1e6:.1f} MB",
            f"its limit is {self.limit / 1e6:g} MB",
            f'choose fewer rows, or write limit="{math.ceil(1.2 * size / 1e6)} MB"',
        )


def _row_seconds(y: Handle, x: Handle) -> float:
    """How long one row takes: the second one, for the first may have to be compiled."""
    J = d(y[(0,) * len(y.shape)]) / d(x)
    for _ in range(2):
        started = time.perf_counter()
        with contextlib.suppress(WrtError):
            numbers(J[...])
    return max(1e-5, time.perf_counter() - started)


def _pick(handle: Handle, positions: Any) -> Handle:
    value, _ = handle.__wrt_differential__()
    return Handle(handle._recording, value, Elements.at(value.shape, positions))


def _bytes(limit: str | int) -> int:
    """`20 MB` as a number.

    >>> _bytes("1.5 MB"), _bytes(2048)
    (1500000, 2048)
    """
    if isinstance(limit, int):
        return limit
    read = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", limit)
    if read is None or read[2].upper() not in UNITS:
        raise NotATensor(f"limit={limit!r} is no size", "a size is a number of bytes or a text", 'write limit="20 MB"')
    return int(float(read[1]) * UNITS[read[2].upper()])


def matrix(t: Trace, y: Named, x: Named) -> dict[str, Any]:
    """Rows are the flattened elements of y's selection, columns those of x; raises where there is no path."""
    J = d(y[1]) / d(x[1])
    factors = _narrow(t, y[1], x[1])
    if factors is not None and (proof := _agree(J, *factors)):
        left, right = (encode.array(one) for one in factors)
        return _reply(y, x, J, {"kind": "factors", "factors": {"left": left, "right": right}}) | {"certificate": str(proof)}
    rows, columns = math.prod(y[1].shape), math.prod(x[1].shape)
    dense = encode.real(numbers(J)).reshape(rows, columns)
    return _reply(y, x, J, _smaller(dense))


def bytes_of(form: dict[str, Any]) -> int:
    """Characters of its arrays."""
    inner = form[form["kind"]]
    return sum(len(one["base64"]) for one in ([inner] if "base64" in inner else inner.values()))


def dense_bytes(y: Handle, x: Handle) -> int:
    """What all of it takes, at most."""
    return int(math.prod(y.shape) * math.prod(x.shape) * 4 * 4 / 3)  # four characters of base64 for three bytes


def _smaller(dense: Numbers) -> dict[str, Any]:
    """Sparse where that takes less room; an entry that is not finite counts as one."""
    entries = int(np.count_nonzero(dense))
    size = dense.dtype.itemsize
    if entries * (size + 4) + 4 * (dense.shape[0] + 1) >= dense.size * size:
        return {"kind": "dense", "dense": encode.array(dense)}
    at_row, at_column = np.nonzero(dense)
    starts = np.searchsorted(at_row, np.arange(dense.shape[0] + 1))
    sparse = {
        "indptr": encode.array(starts, "i32"),
        "indices": encode.array(at_column, "i32"),
        "values": encode.array(dense[at_row, at_column]),
    }
    return {"kind": "sparse", "sparse": sparse}


def _narrow(t: Trace, y: Handle, x: Handle) -> tuple[Numbers, Numbers] | None:
    """(m, w) and (w, n) through the narrowest value that everything passes, where that is smaller than m x n."""
    recording: Any = y._recording
    ends = [recording.numbered(one.__wrt_differential__()[0]) for one in (y, x)]
    if None in ends or not all(one.__wrt_differential__()[1].everything for one in (y, x)):
        return None
    m, n = math.prod(y.shape), math.prod(x.shape)
    sizes = {k: math.prod(t.graph.tensors[k].shape) for k in narrow_places(t, {ends[1]}, {ends[0]}) if k not in ends}
    for number in sorted(sizes, key=lambda k: sizes[k]):
        if 3 * sizes[number] * (m + n) > m * n:
            return None
        cut = handle_of(t, number)
        if cut is not None and not cut.writes:
            left, right = numbers(d(y) / d(cut)), numbers(d(cut) / d(x))
            return encode.real(left).reshape(m, sizes[number]), encode.real(right).reshape(sizes[number], n)
    return None


def _agree(J: Derivative, left: Numbers, right: Numbers) -> Certificate:
    """A random combination of rows of the product, next to one plain pull of the same combination."""
    u = random_signs(1, left.shape[0], seed=1)
    pulled = wide(numbers(u.reshape(J.rows.shape) @ J)).reshape(-1)
    last, first = wide(left), wide(right)
    squares = np.einsum("kn,kn->n", first, (last.T @ last) @ first)
    return compare((u @ last @ first)[0], np.sqrt(np.maximum(squares, 0.0)), pulled, float(np.finfo(left.dtype).eps)).certificate


def _reply(y: Named, x: Named, J: Any, form: dict[str, Any]) -> dict[str, Any]:
    value, elements = y[1].__wrt_differential__()
    rows = None if elements.everything else [int(k) for k in elements.positions]
    return {
        "target": {"name": y[0], "shape": list(value.shape)},
        "source": {"name": x[0], "shape": list(x[1].shape)},
        "rows": rows,
        "plan": plan(J),
        "certificate": certificate(J),
        **form,
    }


def spread(shape: tuple[int, ...], count: int, first: list[int] | None) -> Numbers:
    """About `count` flat positions of a shape, evenly spread, the one to look at first among them."""
    size = math.prod(shape)
    chosen = np.unique(np.linspace(0, size - 1, num=min(count, size)).astype(np.int64))
    if first is not None and len(first) == len(shape):
        chosen = np.union1d(chosen, [int(Elements.all(shape).pick(tuple(first)).first)])
    return chosen
