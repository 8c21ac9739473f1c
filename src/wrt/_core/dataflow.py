"""Where a value goes and where its gradient goes: the difference between the two is what `why` is about."""

from __future__ import annotations

from dataclasses import dataclass

from wrt._core.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class Flow:
    """What became of x on its way to y.

    `reaches`: y is computed from x. `cuts`: operations on the way that took a value with a gradient and gave one without,
    in the order they ran. `left`: operations that carried x out of the framework (`.item()`, NumPy), so that y may depend
    on it in ways nobody recorded.
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
        if not node.outputs and node.gradient == "cut":
            left.append(node)
        elif carried and node.gradient in ("yes", "custom"):
            gradient.update(made)
        elif carried and made:
            cuts.append(node)
    needed = upstream(graph, y)
    return Flow(y in value, tuple(c for c in cuts if needed.intersection(c.outputs)), tuple(left))


def upstream(graph: Graph, y: int) -> set[int]:
    """Every value that y was computed from, itself included."""
    needed = {y}
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
    return needed
