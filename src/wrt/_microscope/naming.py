"""Between the values of a run and the words for them: which text `t[...]` takes for which value, and which reads best."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from wrt._core.graph import Graph
from wrt._notation.trace import Handle, Trace

MADE_UP = ("()", ".input")  # what a function gave, what a module was given: words of wrt's, not of the user's


class Names:
    """Every value's names, the best first; built once for a recording."""

    def __init__(self, t: Trace) -> None:
        graph = t.graph
        self.t = t
        self.modules = modules(graph)
        self._of: dict[int, list[str]] = {}
        self._number: dict[str, int] = {}
        for number, name in _texts(t):
            if number in graph.tensors and name not in self._number:
                self._number[name] = number
                self._of.setdefault(number, []).append(name)
        for number, found in self._of.items():
            leaf = graph.tensors[number].node is None
            found.sort(key=self._rank if leaf else lambda name: (*self._rank(name), len(name)))
        self.given: set[int | None] = {_numbered(t, handle) for _, handle in ends(t, "inputs")}
        self._ends: dict[str, Handle] = {}
        for which in ("output", "inputs"):
            for text, handle in ends(t, which):
                at = _numbered(t, handle)
                if at is not None and at in graph.tensors and not self.of(at) and text not in self._number:
                    self._ends[text] = handle
                    self._number[text] = at
                    self._of[at] = [text]

    def of(self, number: int) -> list[str]:
        return self._of.get(number, [])

    def best(self, number: int) -> str | None:
        found = self.of(number)
        return found[0] if found else None

    def handle(self, name: str) -> Handle:
        """The value itself: by its name, or as what the function gave where that has none."""
        return self._ends[name] if name in self._ends else self.t[name]

    def python(self, name: str) -> str:
        """How a user reaches it: `t["conv1"]`, `t.output[0]`."""
        return f"t.{name}" if name in self._ends else f"t[{quoted(name)}]"

    def number(self, name: str) -> int | None:
        """The value behind a text; None where the graph has no such value."""
        return self._number.get(name)

    def _rank(self, name: str) -> tuple[bool, bool, bool, bool]:
        """Module paths and variables bound once, then earlier meanings of a variable, then words of wrt's.

        Of what went in the first name is the user's own, later ones are those of the functions it was handed to; of what
        was computed the shortest reads best.
        """
        return name.endswith(MADE_UP), name.endswith("]"), "#" in name, name not in self.modules


def quoted(name: str) -> str:
    """A name as a Python text with double quotes, whatever is in it: a text of JSON is one of Python.

    >>> print(quoted('say "hi"'), quoted("conv1"))
    "say \\"hi\\"" "conv1"
    """
    return json.dumps(name, ensure_ascii=False)


def ends(t: Trace, which: str) -> Iterator[tuple[str, Handle]]:
    """What the function gave (or was given), leaf by leaf, as it is written behind `t.`; a block of code has none."""
    return _leaves(which, getattr(t, which) if hasattr(t._one, which) else None)


def _leaves(text: str, tree: Any) -> Iterator[tuple[str, Handle]]:
    if isinstance(tree, Handle):
        yield text, tree
    elif isinstance(tree, Mapping):
        for key, one in tree.items():
            yield from _leaves(f"{text}[{quoted(key) if isinstance(key, str) else repr(key)}]", one)
    elif isinstance(tree, (list, tuple)):
        for place, one in enumerate(tree):
            yield from _leaves(f"{text}[{place}]", one)


def modules(graph: Graph) -> set[str]:
    """Every module path of the run, and the paths around it."""
    found: set[str] = set()
    for node in graph:
        parts = node.module.split(".") if node.module else []
        found.update(".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return found


def _numbered(t: Trace, handle: Handle) -> int | None:
    return t._one.numbered(handle.__wrt_differential__()[0])


def _texts(t: Trace) -> Iterator[tuple[int, str]]:
    """Values and the texts for them, as `t[...]` would read them."""
    numbers: dict[int, int | None] = {}
    recording: Any = t._one
    for name in t.names:
        bindings = t.names.all(name)
        for k, binding in enumerate(bindings):
            key = id(binding.object)
            if key not in numbers:
                numbers[key] = recording.numbered(recording.bound(binding))
            number = numbers[key]
            if number is not None:
                yield number, name if k == len(bindings) - 1 else f"{name}#{k}"
