"""The run as the page draws it: the names of its values, and one node for each value, in the user's modules and lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from wrt._core.graph import Graph, Node
from wrt._core.where import Where
from wrt._notation.trace import Handle, Trace
from wrt._why.causes import by_operation, causes, key
from wrt._why.paths import SHAPE_ONLY


class Names:
    """Every value's names, the best first, and what each value is in the run; built once for a recording."""

    def __init__(self, t: Trace) -> None:
        self.t = t
        self.graph = graph = t.graph
        self.modules = _modules(graph)
        self._of: dict[int, list[str]] = {}
        self._number: dict[str, int] = {}
        for number, name in _texts(t):
            if number in graph.tensors and name not in self._number:
                self._number[name] = number
                self._of.setdefault(number, []).append(name)
        for number, found in self._of.items():
            leaf = graph.tensors[number].node is None
            found.sort(key=self._rank if leaf else lambda name: (*self._rank(name), len(name)))
        self.given: set[int | None] = {self.numbered(handle) for _, handle in ends(t.inputs, "inputs")}
        self._ends: dict[str, Handle] = {}
        for text, handle in (*ends(t.output, "output"), *ends(t.inputs, "inputs")):
            at = self.numbered(handle)
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
        return f"t.{name}" if name in self._ends else f"t[{_quote(name)}]"

    def number(self, name: str) -> int | None:
        """The value behind a text; None where the graph has no such value."""
        return self._number.get(name)

    def numbered(self, handle: Handle) -> int | None:
        """Which tensor of the graph a handle is."""
        return self.t._one.numbered(handle.__wrt_differential__()[0])

    def shape_and_dtype(self, number: int) -> tuple[tuple[int, ...], str]:
        """Of a variable of TensorFlow, which is a handle in the graph, what the handle stands for."""
        tensor, name = self.graph.tensors[number], self.best(number)
        if tensor.dtype != "resource" or name is None:
            return tensor.shape, tensor.dtype
        held = self.handle(name)
        return held.shape, str(held.dtype).removeprefix("<dtype: '").removesuffix("'>")

    def is_float(self, number: int) -> bool:
        return is_float(self.shape_and_dtype(number)[1])

    def kind(self, number: int) -> str:
        """What a value is in the run: an input, a parameter, a constant, the output of a module, any other value."""
        tensor, name = self.graph.tensors[number], self.best(number)
        if tensor.node is None:
            if number in self.given:
                return "input"
            if tensor.requires_grad and name is not None and (self.given or self._owned(name)):
                return "parameter"  # a function was given none of its parameters, a block of code has modules that own them
            return "input" if name is not None and number in self.graph.inputs and not self.given else "constant"
        node = self.graph.nodes[tensor.node]
        if node.op.startswith("Parameter") or (node.write is not None and name is not None and self._owned(name)):
            return "parameter"  # made, filled or updated within the run
        return "module-output" if name in self.modules else "value"

    def _owned(self, name: str) -> bool:
        owner, _, last = name.rpartition(".")
        return owner in self.modules or last in ("weight", "bias", "kernel", "gamma", "beta")

    def _rank(self, name: str) -> tuple[bool, bool, bool, bool]:
        """Module paths and variables bound once, then earlier meanings of a variable, then words of wrt's.

        What a function gave `f()` and what a module was given `fc.input` are such words. Of what went in the first name is
        the user's own, later ones are those of the functions it was handed to; of what was computed the shortest reads best.
        """
        return name.endswith(("()", ".input")), name.endswith("]"), "#" in name, name not in self.modules


def _quote(name: str) -> str:
    """A name as a Python text with double quotes, whatever is in it: a text of JSON is one of Python.

    >>> print(_quote('say "hi"'), _quote("conv1"))
    "say \\"hi\\"" "conv1"
    """
    return json.dumps(name, ensure_ascii=False)


def ends(tree: Any, text: str) -> Iterator[tuple[str, Handle]]:
    """What a function gave or was given, leaf by leaf, as it is written behind `t.`."""
    if isinstance(tree, Handle):
        yield text, tree
    elif isinstance(tree, Mapping):
        for key, one in tree.items():
            yield from ends(one, f"{text}[{_quote(key) if isinstance(key, str) else repr(key)}]")
    elif isinstance(tree, (list, tuple)):
        for place, one in enumerate(tree):
            yield from ends(one, f"{text}[{place}]")


def _modules(graph: Graph) -> set[str]:
    """Every module path of the run, and the paths around it."""
    found: set[str] = set()
    for node in graph:
        parts = node.module.split(".") if node.module else []
        found.update(".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return found


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


FLOATS = ("float", "double", "half", "complex")


def drawn(names: Names, *, sources: bool) -> dict[str, Any]:
    """The reply to `graph`; `sources` puts the user's lines into it."""
    graph, read = names.graph, _variables_read(names.graph)
    nodes = [_value(names, k, read, sources) for k in graph.tensors if k not in read]
    nodes += [_end(node, read, sources) for node in graph if not node.outputs and node.gradient == "cut"]
    return {"nodes": nodes, "modules": sorted(names.modules), "inputs": list(graph.inputs), "outputs": list(graph.outputs)}


def _value(names: Names, number: int, read: Mapping[int, int], sources: bool) -> dict[str, Any]:
    node, name, what = names.graph.producer(number), names.best(number), names.kind(number)
    shape, dtype = names.shape_and_dtype(number)
    given = () if node is None else node.inputs
    return {
        "id": number,
        "name": name,
        "names": names.of(number),
        "label": label(name, what) or (node.op if node is not None else "constant"),
        "op": "" if node is None else node.op,
        "kind": what,
        "module": _module(names, node, name, what),
        "shape": list(shape),
        "dtype": dtype,
        "inputs": list(dict.fromkeys(read.get(k, k) for k in given if k != number)),
        "gradient": "yes" if node is None else _gradient(node),
        "writes": node.write.k if node is not None and node.write is not None else 0,
        "ask": name is not None and is_float(dtype),
        **_place(node, sources),
    }


def _end(node: Node, read: Mapping[int, int], sources: bool) -> dict[str, Any]:
    """Where a number leaves the framework: an operation without a result."""
    return {
        "id": -1 - node.id, "name": None, "names": [], "label": node.op, "op": node.op, "kind": "value", "module": node.module,
        "shape": None, "dtype": "", "inputs": [read.get(k, k) for k in node.inputs], "gradient": "cut", "writes": 0,
        "ask": False, **_place(node, sources),
    }  # fmt: skip


def _module(names: Names, node: Node | None, name: str | None, what: str) -> str:
    """A value lies in the module that made it, a parameter in the one that owns it, an input in none."""
    if what == "module-output":
        return str(name)
    if node is not None:
        return node.module
    owner = (name or "").rpartition(".")[0]
    return owner if what == "parameter" and owner in names.modules else ""


def _place(node: Node | None, sources: bool) -> dict[str, Any]:
    where = None if node is None else node.where
    return {
        "line": None if where is None else where.line,
        "file": None if where is None else base_name(where),
        "function": None if where is None else where.function or None,
        "text": where.text if where is not None and sources else None,
        "finding": _blame(node) if node is not None and _gradient(node) == "cut" else None,
    }


def _gradient(node: Node) -> str:
    """Whether the gradient goes where the value goes; what reads only a shape passes neither."""
    return "none" if node.gradient == "cut" and key(node.op) in SHAPE_ONLY else node.gradient


def _blame(node: Node) -> dict[str, Any]:
    """The cut in a sentence; `why` says more where a question is about it."""
    slug = by_operation("stops").get(key(node.op), "")
    words = causes()[slug].means if slug else f"{node.op} passes the value on, and not the gradient"
    return {"cause": slug or "cut", "sentence": words, "line": None if node.where is None else node.where.line}


def _variables_read(graph: Graph) -> dict[int, int]:
    """What was read of a variable -> the variable: nobody wants to see the reading."""
    found = {}
    for node in graph:
        if node.op == "ReadVariableOp" and len(node.inputs) == 1:
            found.update(dict.fromkeys(node.outputs, node.inputs[0]))
    return found


def label(name: str | None, what: str) -> str:
    """A name as it is shown: which of its bindings is meant can be seen from the place in the graph.

    >>> label("x#2", "value"), label("stem.input", "input"), label("Net.forward.x", "input")
    ('x', 'input', 'x')
    """
    told = (name or "").split("#")[0].removesuffix("()")
    return told.rpartition(".")[2] if what == "input" else told


def is_float(dtype: str) -> bool:
    return any(word in dtype for word in ("float", "double", "half", "complex"))


def base_name(where: Where) -> str:
    """The file without its folders: no page says where on a machine it lies."""
    return str(where).rpartition(":")[0] or os.path.basename(where.file)
