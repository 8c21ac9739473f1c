"""One recorded run as plain data: no tensors, no framework. The planner, `why` and the pictures use nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from wrt._core.files import read_regular, refuse_foreign, write_whole
from wrt._core.where import Where, local, portable
from wrt.errors import WrongQuery

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
            "nodes": [_row(node) for node in self.nodes],
        }

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON: no tensors, no pickle, no folder of this machine."""
        refuse_foreign(Path(path).resolve(), b'"format": "wrt-graph"')
        write_whole(Path(path).resolve(), json.dumps(self.to_dict(), indent=1).encode())

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """Read a saved graph; needs no framework. Lines of code come from files below the current folder alone."""
        try:
            data = json.loads(read_regular(Path(path)))
            if (data["format"], data["version"]) != ("wrt-graph", 1):
                raise ValueError(f"it says {str(data['format'])[:40]!r}, version {str(data['version'])[:40]}")
            return _graph(data)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            words = str(error) if type(error) in (ValueError, OSError) else type(error).__name__
            said = getattr(error, "strerror", None) or words
            what = f"{path} is no graph that wrt can read"
            raise WrongQuery(what, f"{said}: a graph is a file of JSON, wrt-graph 1", "write it with t.save(path)") from None


def _row(node: Node) -> dict[str, Any]:
    row = asdict(node)
    for where in (row["where"], (row["write"] or {}).get("where")):
        if where is not None:
            where["file"] = portable(where["file"])
    return row


def _graph(data: dict[str, Any]) -> Graph:
    """Every field as it has to be; raises ValueError and the like where one is not."""
    graph = Graph(_text(data["framework"]), inputs=list(data["inputs"]), outputs=list(data["outputs"]))
    for row in data["tensors"]:
        shape, names = tuple(map(_whole, row["shape"])), tuple(map(_text, row["names"]))
        graph.tensors[_whole(row["id"])] = tensor = Tensor(**(row | {"shape": shape, "names": names}))
        _text(tensor.dtype)
        if tensor.node is not None and _whole(tensor.node) >= len(data["nodes"]):
            raise ValueError(f"tensor {tensor.id} is made by operation {tensor.node}, which is not there")
    graph.nodes.extend(_node(row, number) for number, row in enumerate(data["nodes"]))
    named = [*graph.inputs, *graph.outputs, *(k for node in graph for k in (*node.inputs, *node.outputs))]
    if not graph.tensors.keys() >= set(map(_whole, named)):
        raise ValueError("a tensor is named that is not there")
    return graph


def _node(row: dict[str, Any], number: int) -> Node:
    write = row["write"]
    if write is not None:
        write = Write(**(write | {"where": _where(write["where"])}))
        list(map(_whole, (write.buffer, write.k, write.elements)))
        _text(write.region)
    fixed = {"inputs": tuple(row["inputs"]), "outputs": tuple(row["outputs"]), "notes": tuple(map(_text, row["notes"]))}
    node = Node(**(row | fixed | {"where": _where(row["where"]), "write": write}))
    _text(node.op + node.module)
    if node.id != number or node.gradient not in get_args(Gradient):
        raise ValueError(f"operation {number} has another number or gradient")
    return node


def _where(row: dict[str, Any] | None) -> Where | None:
    if row is None:
        return None
    where = Where(**(row | {"file": local(_text(row["file"]))}))
    list(map(_whole, (where.line, where.end_line or 0, where.column or 0, where.end_column or 0)))
    _text(where.function)
    return where


def _whole(one: Any) -> int:
    if type(one) is not int or one < 0:
        raise ValueError(f"{str(one)[:40]!r} stands where a number has to")
    return one


def _text(one: Any) -> str:
    if type(one) is not str:
        raise ValueError(f"{str(one)[:40]!r} stands where a word has to")
    return one


# ---------------------------------------------------------------- where a value goes and where its gradient goes

_HELD = frozenset(["numpy", "__array__", "__dlpack__", "untyped_storage", "storage"])
"""Operations that hand out the memory of a tensor, not a copy of its numbers."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What became of x on its way to y.

    `reaches`: y is computed from x. `cuts`: operations on the way that took a value with a gradient and gave one without,
    in the order they ran. `left`: operations that carried x out of the framework (`.item()`, NumPy) before y was done, so
    that y may depend on it in ways nobody recorded.
    """

    reaches: bool
    cuts: tuple[Node, ...]
    left: tuple[Node, ...]

    @property
    def independent(self) -> bool:
        """Proven: nothing computed from x went into y, inside the framework or around it."""
        return not self.reaches and not self.left


def flow(graph: Graph, y: int, x: int) -> Flow:
    """Follow x through the run."""
    value, gradient = {x}, {x}
    cuts: list[Node] = []
    left: list[Node] = []
    for node in graph.nodes:
        touched = [k for k in node.inputs if k in value]
        if not touched:
            continue
        made = [k for k in node.outputs if k != x]
        value.update(made)
        carried = any(k in gradient for k in touched)
        if leaves(node):
            left.append(node)
        elif carried and node.gradient in ("yes", "custom"):
            gradient.update(made)
        elif carried and made:
            cuts.append(node)
    needed = upstream(graph, y)
    before = done_by(graph, needed)
    return Flow(
        y in value,
        tuple(c for c in cuts if needed.intersection(c.outputs)),
        tuple(node for node in left if node.id < before),
    )


def done_by(graph: Graph, needed: set[int]) -> int:
    """From which operation on nothing can have an effect on these values any more.

    Numbers that leave the framework later were read too late; but memory that others hold can be written at any time.
    """
    if any(node.op in _HELD and needed.intersection(node.inputs) for node in graph.nodes):
        return len(graph.nodes)
    return max((node.id for node in graph.nodes if needed.intersection(node.outputs)), default=len(graph.nodes))


def leaves(node: Node) -> bool:
    """Whether a value goes out of the framework here."""
    return not node.outputs and node.gradient == "cut"


def upstream(graph: Graph, *ys: int) -> set[int]:
    """Every value that these were computed from, themselves included."""
    needed = set(ys)
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
    return needed


def downstream(graph: Graph, *xs: int) -> set[int]:
    """Every value that was computed from these, themselves included."""
    reached = set(xs)
    for node in graph.nodes:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
    return reached
