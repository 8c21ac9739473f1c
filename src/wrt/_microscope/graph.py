"""The run as the page draws it: one node for each value, in the user's names, modules and lines."""

from __future__ import annotations

import os
from typing import Any

from wrt._core.finding import Finding
from wrt._core.graph import Graph, Node, Tensor
from wrt._core.where import Where
from wrt._microscope.naming import Names

FLOATS = ("float", "double", "half", "complex")


class Drawn:
    """Makes the reply to `graph`; `findings` are marked at the operations they blame."""

    def __init__(self, graph: Graph, names: Names, findings: tuple[Finding, ...], *, sources: bool) -> None:
        self.graph = graph
        self.names = names
        self.sources = sources
        self._blamed = {(one.where.file, one.where.line): one for one in reversed(findings) if one.where is not None}

    def reply(self) -> dict[str, Any]:
        nodes = [self._value(tensor) for tensor in self.graph.tensors.values()]
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
        return {
            "id": tensor.id,
            "name": name,
            "names": self.names.of(tensor.id),
            "label": label(name) or (node.op if node is not None else "constant"),
            "op": "" if node is None else node.op,
            "kind": what,
            "module": str(name) if what == "module-output" else self._module(node, name),
            "shape": list(tensor.shape),
            "dtype": tensor.dtype,
            "inputs": [k for k in node.inputs if k != tensor.id] if node is not None else [],
            "gradient": "yes" if node is None else node.gradient,
            "writes": node.write.k if node is not None and node.write is not None else 0,
            "ask": name is not None and is_float(tensor.dtype),
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
            "inputs": list(node.inputs),
            "gradient": "cut",
            "writes": 0,
            "ask": False,
            **self._place(node),
        }

    def _module(self, node: Node | None, name: str | None) -> str:
        if node is not None:
            return node.module
        owner = (name or "").rpartition(".")[0]
        return owner if owner in self.names.modules else ""

    def _place(self, node: Node | None) -> dict[str, Any]:
        where = None if node is None else node.where
        blamed = self._blamed.get((where.file, where.line)) if where is not None and node is not None else None
        if blamed is not None and node is not None and node.gradient == "yes" and blamed.cause not in node.op:
            blamed = None if self._cut_on(where) else blamed
        return {
            "line": None if where is None else where.line,
            "file": None if where is None else base_name(where),
            "function": None if where is None else where.function or None,
            "text": where.text if where is not None and self.sources else None,
            "finding": None if blamed is None else short(blamed),
        }

    def _cut_on(self, where: Where | None) -> bool:
        """Whether another operation of the same line is the one that cuts."""
        if not hasattr(self, "_cut_lines"):
            self._cut_lines = {(n.where.file, n.where.line) for n in self.graph if n.gradient == "cut" and n.where}
        return where is not None and (where.file, where.line) in self._cut_lines


def kind(graph: Graph, tensor: Tensor, name: str | None, names: Names) -> str:
    """What a value is in the run."""
    if tensor.node is None:
        given = tensor.id in graph.inputs
        if tensor.requires_grad and name is not None and "." in name and not name.endswith(".input"):
            return "parameter"
        return "input" if name is not None and given else "constant"
    if graph.nodes[tensor.node].op.startswith("Parameter"):
        return "parameter"
    return "module-output" if name in names.modules else "value"


def label(name: str | None) -> str:
    """A name as it is shown: which of its bindings is meant can be seen from the place in the graph."""
    return (name or "").split("#")[0].removesuffix("()") if name else ""


def is_float(dtype: str) -> bool:
    return any(word in dtype for word in FLOATS)


def base_name(where: Where) -> str:
    """The file without its folders: no page says where on a machine it lies."""
    return str(where).rpartition(":")[0] or os.path.basename(where.file)


def short(finding: Finding) -> dict[str, Any]:
    return {"cause": finding.cause, "sentence": finding.sentence, "line": finding.line}
