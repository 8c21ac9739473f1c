"""One recorded run as plain data: no tensors, no framework. The planner, `why` and the pictures use nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from wrt._core.where import Where

Gradient = Literal["yes", "cut", "custom", "none"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value of the run: `id` is its number, `node` the operation that made it (None for an input)."""

    id: int
    shape: tuple[int, ...]
    dtype: str
    node: int | None
    output: int = 0
    names: tuple[str, ...] = ()
    requires_grad: bool = False

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Write:
    """An in-place write: which buffer, its how-many-th, which flat elements (None: all), where."""

    buffer: int
    k: int
    elements: int
    region: str
    where: Where | None

    def __repr__(self) -> str:
        line = f"   {self.where}  {self.where.text}" if self.where else ""
        return f"write {self.k} of {self.region}{line}"


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of the run."""

    id: int
    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    where: Where | None
    module: str = ""
    gradient: Gradient = "yes"
    write: Write | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Graph:
    """Operations in the order they ran, and the values between them."""

    framework: str
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[int, Tensor] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        cuts = sum(node.gradient == "cut" and bool(node.outputs) for node in self.nodes)
        return f"Graph  {len(self.nodes)} operations, {len(self.tensors)} tensors, {cuts} cuts ({self.framework})"

    def producer(self, tensor: int) -> Node | None:
        """The operation that made a tensor."""
        node = self.tensors[tensor].node
        return None if node is None else self.nodes[node]

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": "wrt-graph",
            "version": 1,
            "framework": self.framework,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "tensors": [asdict(tensor) for tensor in self.tensors.values()],
            "nodes": [asdict(node) for node in self.nodes],
        }

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON: no tensors, no pickle."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1))

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """Read a saved graph; needs no framework."""
        data = json.loads(Path(path).read_text())
        graph = cls(data["framework"], inputs=data["inputs"], outputs=data["outputs"])
        for row in data["tensors"]:
            graph.tensors[row["id"]] = Tensor(**(row | {"shape": tuple(row["shape"]), "names": tuple(row["names"])}))
        for row in data["nodes"]:
            graph.nodes.append(_node(row))
        return graph


def _node(row: dict[str, Any]) -> Node:
    where = Where(**row["where"]) if row["where"] else None
    write = row["write"]
    if write:
        write = Write(**(write | {"where": Where(**write["where"]) if write["where"] else None}))
    fixed = {"inputs": tuple(row["inputs"]), "outputs": tuple(row["outputs"]), "notes": tuple(row["notes"])}
    return Node(**(row | fixed | {"where": where, "write": write}))
