"""Where the value of x goes, where its gradient goes, and where the two part; and what a run is to train."""

from __future__ import annotations

from dataclasses import dataclass, field

from wrt._core.evidence import Evidence
from wrt._core.graph import Graph, Node
from wrt._why.causes import key, ops

SHAPE_ONLY = ops(
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full "
    "ZerosLike OnesLike Shape ShapeN Rank Size VarHandleOp backward register_hook result_type"
)
"""Take a tensor for its shape and type; nothing of its numbers goes on."""

CASTS = ops("to type double float half bfloat16 cuda cpu type_as")
"""Convert to another type or device."""

FIRST_VALUE = key("AssignVariableOp")
"""What TensorFlow does with the constant that a variable is made of: the variable is what is trained."""


def carries_numbers(node: Node) -> bool:
    """Whether the result is computed from the numbers of the inputs; `.grad` only hangs on its tensor."""
    return node.op not in ("grad", "grad=") and key(node.op) not in SHAPE_ONLY


@dataclass(frozen=True, slots=True)
class Stop:
    """An operation that took a value with a gradient and gave one without."""

    node: Node
    output: int


@dataclass(slots=True)
class Route:
    """What became of x on its way to y, in the user's own run.

    `path` are the operations through which the gradient passes to y, in order; `stops` where it ends although the value
    goes on to y; `left` where the value went out of the framework.
    """

    x: int
    y: int
    value: set[int] = field(default_factory=set)
    gradient: set[int] = field(default_factory=set)
    needed: set[int] = field(default_factory=set)
    path: list[Node] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    left: list[Node] = field(default_factory=list)
    uses: list[Node] = field(default_factory=list)

    @property
    def reaches(self) -> bool:
        return self.y in self.value

    @property
    def connected(self) -> bool:
        return self.y in self.gradient

    def consumers(self, value: int) -> list[Node]:
        """Operations of the gradient's path that take this value."""
        return [node for node in self.path if value in node.inputs]


def follow(evidence: Evidence, y: int, x: int, start: int | None = None) -> Route:
    """Follow x through the run, from the operation on from which the engine follows it."""
    graph = evidence.graph
    route = Route(x, y, value={x}, needed=upstream(graph, y))
    if start is not None and start < 0:
        route.gradient.add(x)
    for node in graph.nodes:
        if start is not None and node.id > start:
            route.gradient.add(x)
        if not carries_numbers(node) or route.value.isdisjoint(node.inputs):
            continue
        if x in node.inputs:
            route.uses.append(node)
        _step(evidence, route, node)
    if x == y:
        route.gradient.add(y)
    route.path = [n for n in route.path if not route.needed.isdisjoint(set(n.outputs) & route.gradient)]
    route.stops = [s for s in route.stops if s.output in route.needed and s.output not in route.gradient]
    return route


def _step(evidence: Evidence, route: Route, node: Node) -> None:
    carried = not route.gradient.isdisjoint(node.inputs)
    made = [k for k in node.outputs if k not in node.inputs and k != route.x]
    route.value.update(made)
    if not node.outputs and node.gradient == "cut":
        route.left.append(node)
    passed = False
    for output in made:
        if carried and evidence.passes(node, output):
            route.gradient.add(output)
            passed = True
        elif carried:
            route.stops.append(Stop(node, output))
    if passed:
        route.path.append(node)


def upstream(graph: Graph, *values: int) -> set[int]:
    """Every value that these were computed from, themselves included."""
    needed = set(values)
    for node in reversed(graph.nodes):
        if carries_numbers(node) and not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
    return needed


def trainable(evidence: Evidence) -> list[int]:
    """Tensors that were made to have a gradient, as they are last."""
    graph = evidence.graph
    last = {evidence.moments(k)[-1]: k for k in graph.tensors}
    first_values = {k for node in graph.nodes if key(node.op) == FIRST_VALUE for k in node.inputs}
    used = {k for node in graph.nodes if key(node.op) != FIRST_VALUE for k in node.inputs}
    found = []
    for tensor in graph.tensors.values():
        node = graph.producer(tensor.id)
        made = node is None or not node.inputs or node.op.startswith("Parameter")
        if made and tensor.requires_grad and (tensor.id in used or tensor.id not in first_values):
            found.append(last.get(tensor.id, tensor.id))
    return found
