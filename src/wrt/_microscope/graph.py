"""The run as the page draws it: one node for each value, in the user's names, modules and lines."""

from __future__ import annotations

import os
from typing import Any

from wrt._core.finding import Finding
from wrt._core.graph import Graph, Node, Tensor
from wrt._core.where import Where
from wrt._microscope.naming import Names
from wrt._why.causes import by_operation, causes, key
from wrt._why.paths import SHAPE_ONLY

FLOATS = ("float", "double", "half", "complex")


class Drawn:
    """Makes the reply to `graph`."""

    def __init__(self, graph: Graph, names: Names, *, sources: bool) -> None:
        self.graph = graph
        self.names = names
        self.sources = sources
        self._read = _variables_read(graph)

    def reply(self) -> dict[str, Any]:
        nodes = [self._value(tensor) for tensor in self.graph.tensors.values() if tensor.id not in self._read]
        nodes += [self._end(node) for node in self.graph if not node.outputs and node.gradient == "cut"]
        return {
            "nodes": nodes,
            "modules": sorted(self.names.modules),
            "inputs": list(self.graph.inputs),
            "outputs": list(self.graph.outputs),
        }

    def _value(self, tensor: Tensor) -> dict[str, Any]:
        node = self.graph.producer(tensor.id)
        name = self.names.best(tensor.id)
        what = kind(self.graph, tensor, name, self.names)
        shape, dtype = shape_and_dtype(self.names, tensor, name)
        given = () if node is None else node.inputs
        return {
            "id": tensor.id,
            "name": name,
            "names": self.names.of(tensor.id),
            "label": label(name, what) or (node.op if node is not None else "constant"),
            "op": "" if node is None else node.op,
            "kind": what,
            "module": self._module(node, name, what),
            "shape": list(shape),
            "dtype": dtype,
            "inputs": list(dict.fromkeys(self._read.get(k, k) for k in given if k != tensor.id)),
            "gradient": "yes" if node is None else gradient(node),
            "writes": node.write.k if node is not None and node.write is not None else 0,
            "ask": name is not None and is_float(dtype),
            **self._place(node),
        }

    def _end(self, node: Node) -> dict[str, Any]:
        """Where a number leaves the framework: an operation without a result."""
        return {
            "id": -1 - node.id,
            "name": None,
            "names": [],
            "label": node.op,
            "op": node.op,
            "kind": "value",
            "module": node.module,
            "shape": None,
            "dtype": "",
            "inputs": [self._read.get(k, k) for k in node.inputs],
            "gradient": "cut",
            "writes": 0,
            "ask": False,
            **self._place(node),
        }

    def _module(self, node: Node | None, name: str | None, what: str) -> str:
        """A value lies in the module that made it, a parameter in the one that owns it, an input in none."""
        if what == "module-output":
            return str(name)
        if node is not None:
            return node.module
        owner = (name or "").rpartition(".")[0]
        return owner if what == "parameter" and owner in self.names.modules else ""

    def _place(self, node: Node | None) -> dict[str, Any]:
        where = None if node is None else node.where
        return {
            "line": None if where is None else where.line,
            "file": None if where is None else base_name(where),
            "function": None if where is None else where.function or None,
            "text": where.text if where is not None and self.sources else None,
            "finding": blamed(node) if node is not None and gradient(node) == "cut" else None,
        }


def gradient(node: Node) -> str:
    """Whether the gradient goes where the value goes; what reads only a shape passes neither."""
    return "none" if node.gradient == "cut" and key(node.op) in SHAPE_ONLY else node.gradient


def blamed(node: Node) -> dict[str, Any]:
    """The cut in a sentence; `why` says more where a question is about it."""
    slug = by_operation("stops").get(key(node.op), "")
    words = causes()[slug].means if slug else f"{node.op} passes the value on, and not the gradient"
    return {"cause": slug or "cut", "sentence": words, "line": None if node.where is None else node.where.line}


def shape_and_dtype(names: Names, tensor: Tensor, name: str | None) -> tuple[tuple[int, ...], str]:
    """Of a variable of TensorFlow, which is a handle in the graph, what the handle stands for."""
    if tensor.dtype != "resource" or name is None:
        return tensor.shape, tensor.dtype
    held = names.handle(name)
    return held.shape, str(held.dtype).removeprefix("<dtype: '").removesuffix("'>")


def _variables_read(graph: Graph) -> dict[int, int]:
    """What was read of a variable -> the variable: nobody wants to see the reading."""
    found = {}
    for node in graph:
        if node.op == "ReadVariableOp" and len(node.inputs) == 1:
            found.update(dict.fromkeys(node.outputs, node.inputs[0]))
    return found


def kind(graph: Graph, tensor: Tensor, name: str | None, names: Names) -> str:
    """What a value is in the run."""
    if tensor.node is None:
        if tensor.id in names.given:
            return "input"
        if tensor.requires_grad and name is not None and (names.given or _owned(name, names)):
            return "parameter"  # a function was given none of its parameters, a block of code has modules that own them
        return "input" if name is not None and tensor.id in graph.inputs and not names.given else "constant"
    node = graph.nodes[tensor.node]
    if node.op.startswith("Parameter") or (node.write is not None and name is not None and _owned(name, names)):
        return "parameter"  # made, filled or updated within the run
    return "module-output" if name in names.modules else "value"


def _owned(name: str, names: Names) -> bool:
    owner, _, last = name.rpartition(".")
    return owner in names.modules or last in ("weight", "bias", "kernel", "gamma", "beta")


def label(name: str | None, what: str) -> str:
    """A name as it is shown: which of its bindings is meant can be seen from the place in the graph.

    >>> label("x#2", "value"), label("stem.input", "input"), label("Net.forward.x", "input")
    ('x', 'input', 'x')
    """
    told = (name or "").split("#")[0].removesuffix("()")
    return told.rpartition(".")[2] if what == "input" else told


def is_float(dtype: str) -> bool:
    return any(word in dtype for word in FLOATS)


def base_name(where: Where) -> str:
    """The file without its folders: no page says where on a machine it lies."""
    return str(where).rpartition(":")[0] or os.path.basename(where.file)


def short(finding: Finding) -> dict[str, Any]:
    return {"cause": finding.cause, "sentence": finding.sentence, "line": finding.line}
