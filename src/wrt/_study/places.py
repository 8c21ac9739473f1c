"""Between a recorded run as plain data and its handles: which tensor of the graph a name means, and the narrow places."""

from __future__ import annotations

from wrt._notation.trace import Handle, Trace
from wrt.errors import WrtError


def tensors_of(run: Trace, handle: Handle) -> set[int]:
    """Which tensor of the graph a handle is; empty where the run did not use it."""
    value, _ = handle.__wrt_differential__()
    number = handle._recording.numbered(value)
    return set() if number is None or number not in run.graph.tensors else {number}


def handle_of(run: Trace, tensor: int) -> Handle | None:
    """The handle of one tensor of the graph, by any of its names; None where it has none."""
    for name in run.graph.tensors[tensor].names:
        try:
            bindings = run.names.all(name)
        except WrtError:
            continue
        for k in range(len(bindings)):
            handle = run[name, k]
            if tensors_of(run, handle) == {tensor}:
                return handle
    return None


def narrow_places(run: Trace, x: set[int], y: set[int]) -> list[int]:
    """Tensors through which everything from x to y passes, in the order of the run.

    After each operation, count the tensors that come from x and are still read on the way to y: one alone is narrow.
    """
    graph = run.graph
    reached = set(x)
    for node in graph:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
    needed = set(y)
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
    on_the_way = reached & needed
    last_read = dict.fromkeys(on_the_way & y, len(graph))
    for node in graph:
        if on_the_way.intersection(node.outputs):
            for read in on_the_way.intersection(node.inputs):
                last_read[read] = max(last_read.get(read, -1), node.id)
    found: list[int] = []
    alive = {tensor for tensor in x if tensor in last_read}
    for node in graph:
        alive |= {made for made in node.outputs if made in last_read}
        alive = {tensor for tensor in alive if last_read[tensor] > node.id}
        if len(alive) == 1 and (only := next(iter(alive))) not in found and only not in x:
            found.append(only)
    return found
