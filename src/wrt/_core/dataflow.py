"""Where a value goes and where its gradient goes: the difference between the two is what `why` is about."""

from __future__ import annotations

from dataclasses import dataclass

from wrt._core.graph import Graph, Node

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


def upstream(graph: Graph, y: int) -> set[int]:
    """Every value that y was computed from, itself included."""
    needed = {y}
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
    return needed
