"""What a page may ask of one recording, and the answers: the same for the server, the file and the notebook."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from wrt._core.graph import Graph
from wrt._microscope import encode
from wrt._microscope.answer import Limits, Side, derivative, index, name_in, overview, reasons, side
from wrt._microscope.graph import Names, Start, drawing, is_float, start, view
from wrt._notation.d import d
from wrt._notation.trace import Handle, Trace
from wrt._pictures import MANY_CELLS
from wrt._study.tensors import numbers
from wrt.errors import NotATensor, NotRecorded, UnknownName, WrtError

PROTOCOL = 1


class Microscope:
    """One recording under the glass. `ask(verb, args)` answers, or raises a `WrtError` in three lines."""

    def __init__(
        self, t: Trace, *, title: str = "", tokens: Sequence[str] = (), limits: Limits | None = None,
        sources: bool = True, computes: bool = True, target: Any = None, source: Any = None,
    ) -> None:  # fmt: skip
        self.t = t
        self.tokens = [str(one) for one in tokens]
        self.limits = limits or Limits()
        self.sources = sources
        self.computes = computes
        self._title = title
        self._opens = target, source
        self._verbs = {
            "hello": self.hello, "graph": self.graph, "tensor": self.tensor, "sizes": self.sizes,
            "derivative": self.derivative, "why": self.why, "map": self.map,
        }  # fmt: skip

    @property
    def verbs(self) -> frozenset[str]:
        return frozenset(self._verbs)

    def ask(self, verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one question of the page."""
        if verb not in self._verbs:
            known = ", ".join(sorted(self._verbs))
            raise UnknownName(f"no question is called {verb[:40]!r}", f"there is {known}", "ask one of these")
        return self._verbs[verb](dict(args))

    # ---------------------------------------------------------------- the run

    @cached_property
    def plain(self) -> Graph:
        return self.t.graph

    @cached_property
    def names(self) -> Names:
        return Names(self.t)

    @cached_property
    def start(self) -> Start:
        found = start(self.names)
        target, source = self._opens
        if target is not None:
            name, handle = self.named(target)
            found = replace(found, target=name, index=_first(handle))
        return found if source is None else replace(found, source=self.named(source)[0])

    def named(self, asked: Any) -> tuple[str, Handle]:
        """A value of this recording by its name, or by a handle: the name that the page has for it, and the handle."""
        if isinstance(asked, str):
            known = self.names.number(asked)
            return (asked if known is None else self.names.best(known) or asked), self.names.handle(asked)
        if not isinstance(asked, Handle):
            raise NotATensor(
                f"a {type(asked).__name__} is no value of this recording",
                "values are chosen by name, or as handles with an index",
                't["conv2"][0, 5, 3, 3], or "conv2"',
            )
        number = self.names.numbered(asked)
        name = None if number is None else self.names.best(number)
        if name is None:
            raise NotATensor("this value has no name in the recording", "a page finds values by name", "bind it to a variable")
        return name, asked

    @cached_property
    def length(self) -> int:
        """How many tokens the run's sequence has; 0 where it has none."""
        return len(self.tokens) or (len(self.start.tokens) if self.start.tokens is not None else 0)

    @property
    def title(self) -> str:
        return self._title or self.start.title

    def hello(self, args: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "title": self.title,
            "framework": self.plain.framework,
            "computes": self.computes,
            "targets": self.start.targets,
            "sources": self.start.sources,
            "default": {"target": self.start.target, "source": self.start.source, "index": self.start.index},
            "limits": {"passes": self.limits.passes, "bytes": self.limits.bytes},
            "note": self.start.note or self._met,
            "verbs": sorted(self._verbs) if self.computes else None,
        }

    @cached_property
    def _met(self) -> str | None:
        """Hooks and the like between the first target and source: looked for once, since it takes a while."""
        if self.start.target is None or self.start.source is None:
            return None
        try:
            J = d(self.names.handle(self.start.target)) / d(self.names.handle(self.start.source))
            notes = J.ask.y.record.notes(J.ask.y, J.ask.x)
        except WrtError:
            return None
        return "; ".join(notes) or None

    @cached_property
    def _graph(self) -> dict[str, Any]:
        return drawing(self.names, sources=self.sources)

    def graph(self, args: dict[str, Any]) -> dict[str, Any]:
        return self._graph

    # ---------------------------------------------------------------- numbers

    def tensor(self, args: dict[str, Any]) -> dict[str, Any]:
        name = name_in(args)
        handle = self.names.handle(name)
        chosen = index(args.get("index"), handle.shape)
        number = self.names.number(name)
        shape, dtype = (handle.shape, str(handle.dtype)) if number is None else self.names.shape_and_dtype(number)
        what = "value" if number is None else self.names.kind(number)
        seen = view(
            shape, integer=not is_float(dtype), tokens=self.length, last=self.plain.framework != "torch",
            given=what == "input",
        )  # fmt: skip
        told: dict[str, Any] = {"name": name, "python": self.names.python(name), "shape": list(shape), "dtype": dtype}
        told |= {"kind": what, "integer": not is_float(dtype)}
        told |= seen.to_dict() | {"tokens": self._labels() if seen.tokens is not None else None}
        return told | self._numbers(handle if chosen is None else handle[chosen], name)

    def _numbers(self, handle: Handle, name: str) -> dict[str, Any]:
        size = math.prod(handle.shape)
        nothing: dict[str, Any] = {"data": None, "min": 0.0, "max": 0.0, "zeros": 0, "nonfinite": 0}
        if size > MANY_CELLS:
            return nothing | {"note": f"{name} has {size} numbers, a page is sent {MANY_CELLS} at once: ask for a part of it"}
        try:
            data = encode.real(numbers(handle))
        except NotRecorded as error:
            return nothing | {"note": f"{error.what}: {error.write}"}
        return {"data": encode.array(data), **encode.extremes(data), "note": None}

    def _labels(self) -> list[str]:
        return self.tokens or [str(one) for one in self.start.tokens or ()]

    def sizes(self, args: dict[str, Any]) -> dict[str, Any]:
        """How large the gradient of what is selected is at every value it passes: one pass of the engine where it can."""
        y = side(self.names, args.get("target"))
        started = time.perf_counter()
        found = {str(k): told for k, told in self._sizes(y)}
        return {"target": args.get("target"), "sizes": found, "seconds": time.perf_counter() - started}

    def _sizes(self, y: Side) -> Iterator[tuple[int, dict[str, Any]]]:
        value, elements = y.selected.__wrt_differential__()
        recording: Any = y.handle._recording
        number = recording.numbered(value)
        if number is None:
            raise UnknownName(f"{y.name} is not part of the graph", "the run did not use it", "choose another value")
        seed = np.zeros(value.size)
        seed[elements.positions] = 1.0
        evidence = recording.evidence()
        for k, g in evidence.cotangents(number, seed.reshape(value.shape), self._values).items():
            if g is not None and g.size and k in self.plain.tensors:
                yield k, measure(g)

    @cached_property
    def _values(self) -> frozenset[int]:
        """What the run computed and was given; gradients of all parameters would double the pass."""
        return frozenset(k for k in self.plain.tensors if self.names.kind(k) != "parameter")

    # ---------------------------------------------------------------- derivatives

    def derivative(self, args: dict[str, Any]) -> dict[str, Any]:
        y, x = side(self.names, args.get("target")), side(self.names, args.get("source"))
        return derivative(y, x, args.get("reduce"), self.limits)

    def map(self, args: dict[str, Any]) -> dict[str, Any]:
        y, x = side(self.names, args.get("target")), side(self.names, args.get("source"))
        return overview(y, x, args.get("keep"), self.limits)

    def why(self, args: dict[str, Any]) -> dict[str, Any]:
        y, x = side(self.names, args.get("target")), side(self.names, args.get("source"))
        return reasons(y, x, sources=self.sources)


def _first(handle: Handle) -> list[int] | None:
    """The first element that a handle selects; None for all of a tensor with nothing in it."""
    value, elements = handle.__wrt_differential__()
    return [int(k) for k in np.unravel_index(elements.first, value.shape)] if elements.size else None


def measure(gradient: encode.Numbers) -> dict[str, Any]:
    """Size and health of one gradient."""
    sizes = np.abs(gradient)
    finite = np.isfinite(sizes)
    good = sizes if finite.all() else sizes[finite]
    return {
        "max": float(good.max()) if good.size else "nan",
        "mean": float(good.mean()) if good.size else "nan",
        "zeros": int(sizes.size - np.count_nonzero(sizes)),
        "nonfinite": int(sizes.size - good.size),
        "size": int(sizes.size),
    }
