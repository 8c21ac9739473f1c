"""The live autograd graph between y and x as plain data: for finding where it is narrow, and what a pass costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from wrt._backends.torch.compat import ACCUMULATE
from wrt._backends.torch.nodes import ByKind, Node, Spot
from wrt._core.flow import Flow, leads_unmixed
from wrt._core.thresholds import MOST_NODES, NEAR_OPERATIONS
from wrt._core.value import Value

SAME_NUMBERS = frozenset({"ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "UnsqueezeBackward0"})
_VIEWS = ByKind(dict.fromkeys(SAME_NUMBERS, True))
SQUEEZE = "SqueezeBackward"
WORTH_IT = 2**33  # multiplications below which a device is done before the detour around them is prepared
PRODUCTS = frozenset({"AddmmBackward0", "MmBackward0", "MvBackward0"})


def signature(y: Value) -> tuple[Hashable, dict[Node, int]]:
    """The structure of everything that led to y: which operations, and how they hang together; and their numbers."""
    edge = y.key.edge
    if edge is None:
        return (), {}
    number = {edge.node: 0}
    order = [edge.node]
    kinds: list[str] = []
    links: list[int] = []
    for node in order:  # grows while it is walked
        kinds.append(type(node).__name__)
        for source, output in node.next_functions:
            if source is None:
                links.append(-1)
                continue
            place = number.get(source)
            if place is None:
                place = number[source] = len(order)
                order.append(source)
            links.append(place << 3 | output)
        if len(order) > MOST_NODES:
            break
    return (hash(tuple(kinds)), hash(tuple(links)), edge.output_nr, len(order)), number


def flow(y: Value, xs: Sequence[Value], make: Callable[[GradientEdge], Value]) -> Flow | None:
    """The part of the graph that leads from y to any x; None where nothing does, or where it is too large to walk."""
    start: Spot = (y.key.edge.node, y.key.edge.output_nr)
    ends = {(x.key.edge.node, x.key.edge.output_nr) for x in xs if x.key.edge is not None}
    walked = _walked(start[0], ends)
    if walked is None or start[0] not in walked[1]:
        return None
    chart = _chart(start, ends, *walked)
    kinds = [type(node).__name__ for node, _ in chart.spots]
    metadata = [node._input_metadata[output] for node, output in chart.spots]
    sizes = [math.prod(each.shape) for each in metadata]
    work = [_work(kind, node, size) for kind, (node, _), size in zip(kinds, chart.spots, sizes, strict=True)]
    mixing = frozenset([k for k, (node, _) in enumerate(chart.spots) if work[k][0] and _mixes(kinds[k], node)])
    on_cpu, dtype = y.key.device.type == "cpu", y.dtype
    met: dict[int, Value] = {}  # one Value for each tensor: what is found out about it is found out once

    def value(tensor: int) -> Value | None:
        if metadata[tensor].dtype != dtype:
            return None
        if tensor not in met:
            met[tensor] = make(GradientEdge(*chart.spots[tensor]))
        return met[tensor]

    return Flow(
        sizes,
        chart.made_from,
        [products for products, _ in work],
        [elements for _, elements in work],
        chart.ends,
        not leads_unmixed(chart.made_from, mixing, set(chart.ends)),
        _push_cost(kinds, work, on_cpu),
        value,
        mixing,
        not on_cpu,
        lambda tensor: _is_sum(chart.spots[tensor], chart.made_from[tensor]),
        chart.trail,
    )


@dataclass(frozen=True, slots=True)
class _Chart:
    """The tensors between y and x, numbered breadth first from y."""

    spots: list[Spot]
    made_from: list[list[int]]
    steps: list[tuple[int, int]]
    """For each tensor one that is made from it, and as which input of it."""
    ends: tuple[int, ...]

    def trail(self, tensor: int) -> tuple[int, ...]:
        """The way from y to a tensor: which input of each operation, one after another."""
        found: list[int] = []
        while tensor:
            tensor, k = self.steps[tensor]
            found.append(k)
        return tuple(reversed(found))


def _chart(start: Spot, ends: set[Spot], edges: dict[Node, Sequence[Spot]], leads: set[Node]) -> _Chart:
    number: dict[Spot, int] = {start: 0}
    spots = [start]
    steps = [(0, 0)]
    made_from: list[list[int]] = []
    for spot in spots:  # grows while it is walked
        sources: list[int] = []
        made_from.append(sources)
        if spot in ends:
            continue
        for k, source in enumerate(edges[spot[0]]):
            if source in ends or source[0] in leads:
                if source not in number:
                    number[source] = len(spots)
                    spots.append(source)
                    steps.append((len(made_from) - 1, k))
                sources.append(number[source])
    return _Chart(spots, made_from, steps, tuple(number[end] for end in ends if end in number))


def at_address(y: Value, trail: Sequence[int], make: Callable[[GradientEdge], Value]) -> Value | None:
    """The tensor at the end of a way that another graph had; None where this one has no such way, or another dtype."""
    spot: Spot = (y.key.edge.node, y.key.edge.output_nr)
    for k in trail:
        sources = spot[0].next_functions
        if k >= len(sources) or sources[k][0] is None:
            return None
        spot = sources[k]
    value = None if type(spot[0]) is ACCUMULATE else make(GradientEdge(*spot))
    return value if value is not None and value.dtype == y.dtype else None


def _is_sum(spot: Spot, sources: list[int]) -> bool:
    """Whether a tensor is a + b, both of them of its shape and both leading to x."""
    node, output = spot
    if len(sources) != 2 or sources[0] == sources[1] or type(node).__name__ != "AddBackward0" or node._saved_alpha != 1:
        return False
    shape = node._input_metadata[output].shape
    return all(source._input_metadata[k].shape == shape for source, k in node.next_functions)


def _walked(start: Node, ends: set[Spot]) -> tuple[dict[Node, Sequence[Spot]], set[Node]] | None:
    """What every node that a backward visits is made from, and the nodes behind which an end lies."""
    edges: dict[Node, Sequence[Spot]] = {}
    readers: dict[Node, list[Node]] = {start: []}
    order = [start]
    last: list[Node] = []  # nodes made from an end itself
    for node in order:
        edges[node] = sources = node.next_functions
        for spot in sources:
            source = spot[0]
            if source is None:
                continue
            if spot in ends:
                last.append(node)
            if type(source) is ACCUMULATE:
                continue
            if source in readers:
                readers[source].append(node)
            else:
                readers[source] = [node]
                order.append(source)
        if len(order) > MOST_NODES:
            return None
    leads = set(last)
    for node in last:
        for reader in readers[node]:
            if reader not in leads:
                leads.add(reader)
                last.append(reader)
    return edges, leads


def _mixes(name: str, node: Node) -> bool:
    """A matrix times one vector: every number that comes out depends on every number that goes in."""
    if name in ("AddmmBackward0", "MmBackward0"):
        sizes: Any = getattr(node, "_saved_mat1_sym_sizes", None) or getattr(node, "_saved_self_sym_sizes", (0,))
        return bool(sizes[0] == 1)
    return bool(name == "MvBackward0")


def _push_cost(names: list[str], work: list[tuple[float, float]], on_cpu: bool) -> float:
    """On a CPU a convolution is pushed in about half the time of its pull; most else costs a little more."""
    total = sum(products for products, _ in work)
    convolved = sum(products for name, (products, _) in zip(names, work, strict=True) if name == "ConvolutionBackward0")
    return 0.6 if on_cpu and convolved > 0.8 * total > 0 else 1.3


def _work(name: str, node: Node, size: int) -> tuple[float, float]:
    """(multiplications, other numbers touched) in one pass through a node."""
    try:
        if name == "AddmmBackward0":
            return float(size * node._saved_mat1_sym_sizes[1]), float(size)
        if name == "MmBackward0":
            return float(size * node._saved_self_sym_sizes[1]), float(size)
        if name == "MvBackward0":
            return float(size * node._saved_self.shape[1]), float(size)
        if name == "BmmBackward0":
            return float(size * node._saved_self.shape[-1]), float(size)
        if name == "ConvolutionBackward0":
            return float(size * math.prod(node._saved_weight.shape[1:])), float(size)
    except (RuntimeError, AttributeError):  # freed, or saved under another name
        pass
    if name in SAME_NUMBERS or "AccumulateGrad" in name:
        return 0.0, 0.0
    return 0.0, float(size)




def widest(y: Value) -> int:
    """How many numbers the widest tensor near y has."""
    start = y.key.edge.node
    seen = {start}
    near = [start]
    most = 1
    for node in near:
        inner = False
        for source, _ in node.next_functions:
            if source is not None and type(source) is not ACCUMULATE:
                inner = True
                if source not in seen and len(near) < NEAR_OPERATIONS:
                    seen.add(source)
                    near.append(source)
        if inner and not _VIEWS[type(node)]:  # what is made of leaves alone is mostly a weight
            most = max(most, math.prod(node._input_metadata[0].shape))
    return most


def weights(
    node: Node, xs: Sequence[Value], make: Callable[[GradientEdge], Value]
) -> tuple[Value, torch.Tensor] | None:
    """y = W h (+ b) with one h: the Value h, and W as the cotangents that the rows of y have there.

    `node` made y. None where y is no such product, or where W or b depend on x too.
    """
    name = type(node).__name__
    while name in SAME_NUMBERS or name.startswith(SQUEEZE):
        node = node.next_functions[0][0]
        name = type(node).__name__
    if name not in PRODUCTS:
        return None
    try:
        if name == "MvBackward0":
            matrix, at = node._saved_self, 1
        elif name == "AddmmBackward0" and node._saved_mat1_sym_sizes[0] == 1 and node._saved_alpha == 1:
            matrix, at = node._saved_mat2.mT, 1
        elif name == "MmBackward0" and node._saved_self_sym_sizes[0] == 1:
            matrix, at = node._saved_mat2.mT, 0
        else:
            return None
    except (RuntimeError, AttributeError):  # the weights were changed or freed since
        return None
    source, which = node.next_functions[at]
    others = [spot for k, spot in enumerate(node.next_functions) if k != at and spot[0] is not None]
    if source is None or matrix is None or _reach(others, xs):
        return None
    if matrix.device.type != "cpu" and matrix.shape[0] * matrix.numel() < WORTH_IT:
        return None
    value = make(GradientEdge(source, which))
    return value, matrix.detach().reshape(-1, *value.shape)


def _reach(spots: list[Spot], xs: Sequence[Value]) -> bool:
    """Whether some x lies behind these; a leaf is known without a walk."""
    ends = {(edge.node, edge.output_nr) for x in xs if (edge := x.key.edge) is not None}
    for spot in spots:
        if spot in ends:
            return True
        if type(spot[0]) is ACCUMULATE:
            continue
        walked = _walked(spot[0], ends)
        if walked is None or spot[0] in walked[1]:
            return True
    return False


def no_tensor() -> None:
    """Stands where a Moment keeps its tensor: a cut has none that the user holds."""
