"""Which line of the user's made an autograd node.

An operation notes the node of its result. Nodes it made on the way (a composite operation leaves several) are those
that can be reached from there and were not made by an earlier operation.
"""

from __future__ import annotations

from typing import Any

from wrt._backends.torch.compat import is_leaf_node
from wrt._backends.torch.listen import Listener


def operations_of_nodes(listener: Listener) -> dict[Any, int]:
    """Autograd node -> the number of the operation that made it."""
    made: dict[Any, int] = {}
    results: dict[int, list[Any]] = {}
    for value in listener.values:
        if value.operation is not None and value.node is not None:
            results.setdefault(value.operation, []).append(value.node)
    for operation in sorted(results):
        waiting = list(results[operation])
        while waiting:
            node = waiting.pop()
            if node in made or is_leaf_node(node):
                continue
            made[node] = operation
            waiting.extend(upstream for upstream, _ in node.next_functions if upstream is not None)
    return made
