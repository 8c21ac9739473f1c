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
            _check(data, _FORM)
            graph = cls(data["framework"], inputs=data["inputs"], outputs=data["outputs"], nodes=list(map(_node, data["nodes"])))
            for row in data["tensors"]:
                graph.tensors[row["id"]] = Tensor(**(row | {"shape": tuple(row["shape"]), "names": tuple(row["names"])}))
            named = [*graph.inputs, *graph.outputs, *(k for node in graph for k in (*node.inputs, *node.outputs))]
            made = [one.node for one in graph.tensors.values() if one.node is not None]
            if not (graph.tensors.keys() >= set(named) and max(made, default=-1) < len(graph) and _numbered(graph)):
                raise ValueError("it names tensors or operations that it does not hold")
            return graph
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            words = str(error) if type(error) in (ValueError, OSError) else type(error).__name__
            said = getattr(error, "strerror", None) or words
            what = f"{path} is no graph that wrt can read"
            raise WrongQuery(what, f"{said}: a graph is a file of JSON, wrt-graph 1", "write it with t.save(path)") from None


_PLACE = {"file": str, "line": int, "end_line": (int,), "column": (int,), "end_column": (int,), "function": str}
_WRITE = {"buffer": int, "k": int, "elements": int, "region": str, "where": (_PLACE,)}
_NODE = {"id": int, "op": str, "inputs": [int], "outputs": [int], "where": (_PLACE,), "module": str, "gradient": str,
         "write": (_WRITE,), "notes": [str]}  # fmt: skip
_TENSOR = {"id": int, "shape": [int], "dtype": str, "node": (int,), "output": int, "names": [str], "requires_grad": bool}
_FORM = {"format": str, "version": int, "framework": str, "inputs": [int], "outputs": [int], "tensors": [_TENSOR],
         "nodes": [_NODE]}  # fmt: skip
"""Of a file, all of it; (form,) may also be null, and no number is negative."""


def _check(one: Any, form: Any, name: str = "it") -> None:
    if isinstance(form, tuple):
        if one is None:
            return
        form = form[0]
    kind: Any = form if isinstance(form, type) else type(form)
    if type(one) is not kind or (kind is int and one < 0) or (kind is dict and one.keys() != form.keys()):
        raise ValueError(f"{name} is {str(one)[:40]!r}")
    for key, inner in one.items() if kind is dict else enumerate(one) if kind is list else ():
        _check(inner, form[key if kind is dict else 0], f"{name}.{key}" if kind is dict else name)


def _numbered(graph: Graph) -> bool:
    return all(node.id == k and node.gradient in get_args(Gradient) for k, node in enumerate(graph))


def _row(node: Node) -> dict[str, Any]:
    row = asdict(node)
    for where in (row["where"], (row["write"] or {}).get("where")):
        if where is not None:
            where["file"] = portable(where["file"])
    return row


def _node(row: dict[str, Any]) -> Node:
    where, write = _where(row["where"]), row["write"] and Write(**(row["write"] | {"where": _where(row["write"]["where"])}))
    fixed = {"inputs": tuple(row["inputs"]), "outputs": tuple(row["outputs"]), "notes": tuple(row["notes"])}
    return Node(**(row | fixed | {"where": where, "write": write}))


def _where(row: dict[str, Any] | None) -> Where | None:
    return None if row is None else Where(**(row | {"file": local(row["file"])}))


# ---------------------------------------------------------------- where a value goes and where its gradient goes

_HELD = frozenset("numpy __array__ __dlpack__ to_dlpack untyped_storage storage data_ptr __cuda_array_interface__".split())
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
