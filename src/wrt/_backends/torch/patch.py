"""Rows and columns of a local map: only the patch of every layer that lies between them is pulled.

Walking from y, the rows asked for can reach a growing box of each tensor; walking from x, the columns asked for are
reached from a growing box. A pull has to visit the intersection alone. torch's own operators and their own backwards run
on those patches; what is known here is only which patch belongs to which. An operation that is in none of these tables is
not known to be local: None, and whole tensors are swept.

What the graph says is read every time; the boxes that follow from it are kept, as a recipe for the next such graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F

from wrt._backends.torch import compat
from wrt._backends.torch.compat import ACCUMULATE
from wrt._backends.torch.nodes import Spot, signed
from wrt._core.index import Elements, Positions, Shape
from wrt._core.thresholds import KEPT_ENTRIES, MOST_OPERATIONS
from wrt._core.value import Value

Sources = tuple[tuple[int, int], ...]
"""Inputs that lead to x: which one it is, and the number of its tensor, counted from y."""


def walk(start: Spot, end: Spot, known: Callable[[Any], bool]) -> tuple[list[Spot], list[Sources]] | None:
    """From y to x, the tensors on the way and what each is made from; x, the last one, is not asked what it is made of.

    None where nothing leads there, where a node on the way is not known, or where there is too much to walk.
    """
    leads: dict[Spot, list[tuple[int, Spot]]] = {end: []}  # an empty list for all others that do not lead to x
    order: list[Spot] = []
    stack: list[tuple[Spot, Sequence[Spot] | None]] = [(start, None)]
    while stack:
        spot, sources = stack.pop()
        if spot in leads:
            continue
        if sources is None:
            if len(leads) > MOST_OPERATIONS:
                return None
            sources = spot[0].next_functions
            stack.append((spot, sources))
            for source in sources:
                if source not in leads and source[0] is not None and type(source[0]) is not ACCUMULATE:
                    stack.append((source, None))  # a leaf that is not x leads nowhere
            continue
        found = [(k, source) for k, source in enumerate(sources) if source == end or leads.get(source)]
        if found and not known(spot[0]):
            return None
        leads[spot] = found
        if found:
            order.append(spot)
    if not leads[start]:
        return None
    order = [*reversed(order), end]
    number = {spot: k for k, spot in enumerate(order)}
    return order, [tuple((k, number[source]) for k, source in leads[spot]) for spot in order]


Box = tuple[tuple[int, int], ...]  # start and stop along each axis
Tensor: TypeAlias = torch.Tensor
Pull = Callable[[Any, Tensor], Tensor]
"""A node and cotangents of a patch of its output, (count, *patch) -> those of a patch of one input."""

CONVOLUTION = "ConvolutionBackward0"
MAX_POOL = "MaxPool2DWithIndicesBackward0"
BATCH_NORM = "NativeBatchNormBackward0"
WINDOWS = (CONVOLUTION, MAX_POOL)
SELECT = "SelectBackward0"
ELEMENTWISE = frozenset(
    f"{name}Backward0"
    for name in (
        "Tanh Relu Sigmoid Gelu Silu Softplus Elu LeakyRelu Hardtanh Hardswish Mish Exp Log Sin Cos Sqrt Abs Neg "
        "Reciprocal Clone Erf Log1P Expm1 Add Sub Mul Div Pow"
    ).split()
)
EACH_BY_ITSELF = ELEMENTWISE | {BATCH_NORM}
"""With the statistics of its training, batch normalization acts on each number by itself."""
BY_RESULT: dict[str, Any] = {
    "TanhBackward0": torch.ops.aten.tanh_backward.default,
    "SigmoidBackward0": torch.ops.aten.sigmoid_backward.default,
    "ReluBackward0": lambda g, result: torch.ops.aten.threshold_backward.default(g, result.expand_as(g), 0),
}
"""torch's own backwards that need only the result, and so only a patch of it; other nodes are asked for all their slopes."""
SAME_NUMBERS = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "UnsqueezeBackward0", "SqueezeBackward")


class Operation(NamedTuple):
    """What made one tensor of the run, as plain data: two runs that say the same of it share their patches."""

    name: str
    shape: Shape
    sources: Sources
    weight: Shape = ()
    """The shape of a convolution's weight; of a pool, two ones and its window."""
    windows: tuple[Any, ...] = ((), (), ())
    """Stride, padding and dilation along each axis."""
    groups: int = 1
    selected: tuple[int, int] = (0, 0)
    """Axis and index of a select, as torch keeps them: negative ones as huge unsigned numbers."""

    def work(self, box: Box) -> int:
        """Multiplications of one pull through a patch."""
        return math.prod([b - a for a, b in box]) * math.prod(self.weight[1:])

    @property
    def whole_work(self) -> int:
        return math.prod(self.shape) * math.prod(self.weight[1:])

    def chosen(self, shape: Shape) -> tuple[int, int]:
        """Axis and index of a select from a tensor of this shape."""
        axis, index = map(signed, self.selected)
        axis %= len(shape)
        return axis, index % shape[axis]

    def reached(self, box: Box) -> list[tuple[int, int]]:
        """Where the windows of a patch of the output begin and end along each axis, padding included."""
        return [
            (a * s - p, (b - 1) * s - p + (k - 1) * d + 1)
            for (a, b), s, p, d, k in zip(box[2:], *self.windows, self.weight[2:], strict=True)
        ]


Operations = tuple[Operation, ...]


class TorchPatches:
    """The patches between some rows of y and some columns of x, in one graph.

    `work` counts the multiplications of a pull through them, `whole` those of a pull through the whole tensors.
    """

    def __init__(self, recipe: Recipe, nodes: list[Any]) -> None:
        self.recipe = recipe
        self.nodes = nodes
        self.work = float(recipe.work)
        self.whole = float(recipe.whole)

    def pull(self, seeds: Tensor) -> Tensor | None:
        """(k, rows) -> (k, columns); None where what the graph had saved is gone."""
        try:
            with compat.Undisturbed(), torch.no_grad():
                return self.recipe.pull(self.nodes, seeds)
        except RuntimeError:  # changed or freed since: the engine is asked, and says so
            return None


class Places:
    """Where some elements of a tensor lie, axis by axis, and the patch around them."""

    def __init__(self, elements: Elements, shape: Shape) -> None:
        self.along: Positions = np.array(np.unravel_index(elements.positions, shape))  # (axes, elements)
        low, high = self.along.min(1).tolist(), self.along.max(1).tolist()
        self.bounds: Box = tuple([(a, b + 1) for a, b in zip(low, high, strict=True)])

    def inside(self, box: Box) -> Positions:
        """Flat positions within a patch, -1 for those outside of it."""
        sizes = [b - a for a, b in box]
        within = self.along - np.array([[a] for a, _ in box])
        if box == self.bounds:
            return np.ravel_multi_index(tuple(within), sizes)
        found = np.ravel_multi_index(tuple(within), sizes, mode="clip")
        return np.where((within >= 0).all(0) & (within < np.array(sizes)[:, None]).all(0), found, -1)


class Recipe:
    """What to do with each tensor between y and x, and where rows and columns lie in the patches of the two ends."""

    def __init__(self, operations: Operations, boxes: list[Box], rows: Places, columns: Places) -> None:
        self.work = sum([one.work(box) for one, box in zip(operations[:-1], boxes[:-1], strict=True)])
        self.whole = sum([one.whole_work for one in operations[:-1]])
        self.steps: list[tuple[int, int, Pull]] = [
            (later, earlier, puller(one, k, operations[earlier].shape, boxes[later], boxes[earlier]))
            for later, one in enumerate(operations[:-1])
            for k, earlier in one.sources
        ]
        self.start = tuple(b - a for a, b in boxes[0])
        place = rows.inside(boxes[0])
        kept = None if place.min() >= 0 else np.flatnonzero(place >= 0)  # rows outside cannot reach the columns
        self._kept = None if kept is None else torch.from_numpy(kept)
        self._rows = torch.from_numpy(place if kept is None else place[kept])
        place = columns.inside(boxes[-1])
        all_of_it = math.prod(b - a for a, b in boxes[-1]) == len(place) and bool((np.diff(place) == 1).all())
        self._columns = None if all_of_it else torch.from_numpy(place)

    def pull(self, nodes: list[Any], seeds: Tensor) -> Tensor:
        cotangents: dict[int, Tensor] = {0: self._patch_of(seeds)}
        for later, earlier, pull in self.steps:
            piece = pull(nodes[later], cotangents[later])
            before = cotangents.get(earlier)
            cotangents[earlier] = piece if before is None else before + piece
        found = cotangents[len(nodes) - 1].reshape(len(seeds), -1)
        return found if self._columns is None else found.index_select(1, self._columns.to(seeds.device))

    def _patch_of(self, seeds: Tensor) -> Tensor:
        """Weights of the rows as a patch of y."""
        if self._kept is not None:
            seeds = seeds.index_select(1, self._kept.to(seeds.device))
        patch = torch.zeros(len(seeds), math.prod(self.start), dtype=seeds.dtype, device=seeds.device)
        patch.index_add_(1, self._rows.to(seeds.device), seeds)  # a row may be asked for twice
        return patch.view(len(patch), *self.start)


def patches(y: Value, rows: Elements, x: Value, columns: Elements) -> TorchPatches | None:
    """None where something between y and x is not known to be local, or where the two cannot meet."""
    start, end = ((value.key.edge.node, value.key.edge.output_nr) for value in (y, x))
    walked = walk(start, end, may_be_local)
    try:
        operations = None if walked is None else _read_all(*walked)
    except RuntimeError:  # weights that were changed or freed since
        return None
    if walked is None or operations is None:
        return None
    found = recipe(operations, rows, columns, _listed(rows), _listed(columns))
    return None if found is None else TorchPatches(found, [node for node, _ in walked[0]])


def _listed(elements: Elements) -> bytes | None:
    return None if elements.listed is None else elements.listed.tobytes()


@lru_cache(maxsize=KEPT_ENTRIES)
def recipe(operations: Operations, rows: Elements, columns: Elements, *listed: bytes | None) -> Recipe | None:
    """The patches between rows and columns; None where these cannot meet.

    `listed` tells apart what two Elements do not: lists of as many positions.
    """
    shapes = [one.shape for one in operations]
    of_y, of_x = Places(rows, shapes[0]), Places(columns, shapes[-1])
    reach: dict[int, Box] = {0: of_y.bounds}
    for later, one in enumerate(operations):
        for _, earlier in one.sources:
            reach[earlier] = _union(reach.get(earlier), back(one, shapes[earlier], reach[later]))
    last = len(operations) - 1
    ahead: dict[int, Box] = {last: of_x.bounds}
    for later in range(last - 1, -1, -1):
        for _, earlier in operations[later].sources:
            ahead[later] = _union(ahead.get(later), forth(operations[later], shapes[earlier], ahead[earlier]))
    boxes = [_intersection(reach[number], ahead[number]) for number in range(len(operations))]
    if any(a >= b for box in set(boxes) for a, b in box):
        return None  # exact zeros, which the engine says too
    boxes[last] = ahead[last]
    return Recipe(operations, boxes, of_y, of_x)


def _union(one: Box | None, other: Box) -> Box:
    if one is None:
        return other
    return tuple([(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)])


def _intersection(one: Box, other: Box) -> Box:
    return tuple([(max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)])


# ---------------------------------------------------------------- what the graph says


def shape_of(spot: Spot) -> Shape:
    variable = getattr(spot[0], "variable", None)
    return tuple((spot[0]._input_metadata[spot[1]] if variable is None else variable).shape)


def may_be_local(node: Any) -> bool:
    """Whether operations of this name are known."""
    name = type(node).__name__
    return name in EACH_BY_ITSELF or name in (*WINDOWS, SELECT) or name.startswith(SAME_NUMBERS)


def _read_all(spots: list[Spot], sources: list[Sources]) -> Operations | None:
    """The graph as plain data; None where one of its operations is not known to be local."""
    shapes = [shape_of(spot) for spot in spots]
    if len({node for node, _ in spots}) < len(spots):
        return None  # two results of one operation: none of ours has two
    found = [_read(spot[0], shape, of, shapes) for spot, shape, of in zip(spots[:-1], shapes, sources, strict=False)]
    known = [one for one in found if one is not None]
    return (*known, Operation("x", shapes[-1], ())) if len(known) == len(found) else None


def _read(node: Any, shape: Shape, sources: Sources, shapes: list[Shape]) -> Operation | None:
    """The operation that made a tensor of this shape; None where it is not local after all."""
    name = type(node).__name__
    if name == CONVOLUTION:
        if node._saved_transposed or not 3 <= len(shape) <= 5 or [k for k, _ in sources] != [0]:
            return None
        windows = (node._saved_stride, node._saved_padding, node._saved_dilation)
        return Operation(name, shape, sources, tuple(node._saved_weight.shape), windows, node._saved_groups)
    if name == MAX_POOL:
        kernel = node._saved_kernel_size * (2 // len(node._saved_kernel_size))
        stride, padding, dilation = (
            tuple(one) * (2 // len(one)) if one else kernel
            for one in (node._saved_stride, node._saved_padding, node._saved_dilation)
        )
        return Operation(name, shape, sources, (1, 1, *kernel), (stride, padding, dilation)) if len(shape) == 4 else None
    if name == SELECT:
        return Operation(name, shape, sources, selected=(node._saved_dim, node._saved_index))
    if name == BATCH_NORM and (node._saved_training or [k for k, _ in sources] != [0]):
        return None  # in training, every number of a batch depends on all of them
    if name in EACH_BY_ITSELF:
        fits = all(shapes[source] == shape for _, source in sources)
    else:
        fits = all(_long(shapes[source]) == _long(shape) for _, source in sources)
    return Operation(name, shape, sources) if fits else None


# ---------------------------------------------------------------- which patch belongs to which


def back(operation: Operation, before: Shape, box: Box) -> Box:
    """What of an input of this shape a patch of the output is computed from."""
    if operation.name in WINDOWS:
        spatial = [(max(0, a), min(n, b)) for (a, b), n in zip(operation.reached(box), before[2:], strict=True)]
        return (box[0], box[1] if operation.name == MAX_POOL else (0, before[1]), *spatial)
    if operation.name == SELECT:
        axis, index = operation.chosen(before)
        return (*box[:axis], (index, index + 1), *box[axis:])
    return box if operation.name in EACH_BY_ITSELF else _same_patch(box, operation.shape, before)


def forth(operation: Operation, before: Shape, box: Box) -> Box:
    """What of the output a patch of an input can change."""
    if operation.name in WINDOWS:
        spatial = [
            (max(0, -(((k - 1) * d - a - p) // s)), min(n, (b - 1 + p) // s + 1))
            for (a, b), n, s, p, d, k in zip(
                box[2:], operation.shape[2:], *operation.windows, operation.weight[2:], strict=True
            )
        ]
        return (box[0], box[1] if operation.name == MAX_POOL else (0, operation.shape[1]), *spatial)
    if operation.name == SELECT:
        axis, index = operation.chosen(before)
        rest = (*box[:axis], *box[axis + 1 :])
        return rest if box[axis][0] <= index < box[axis][1] else tuple((0, 0) for _ in rest)
    return box if operation.name in EACH_BY_ITSELF else _same_patch(box, before, operation.shape)


def _same_patch(box: Box, before: Shape, after: Shape) -> Box:
    """The same patch where axes of one are elsewhere."""
    known = iter([each for each, n in zip(box, before, strict=True) if n != 1])
    return tuple((0, 1) if n == 1 else next(known) for n in after)


def _long(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


# ---------------------------------------------------------------- torch's own backwards, on patches


def puller(operation: Operation, k: int, before: Shape, box: Box, into: Box) -> Pull:
    """How cotangents of a patch of the output become those of a patch of the k-th input."""
    if operation.name == CONVOLUTION:
        return _convolution(operation, box, into)
    if operation.name == MAX_POOL:
        return _max_pool(operation, before, box, into)
    if operation.name not in EACH_BY_ITSELF:  # the same numbers, perhaps with other axes
        moved = back(operation, before, box)
        sizes, fit_moved = tuple([b - a for a, b in moved]), _fitting(moved, into)
        return lambda node, g: fit_moved(g.reshape(len(g), *sizes))
    index, fit = _index(box), _fitting(box, into)
    if operation.name == BATCH_NORM:
        return _batch_norm(box, fit)
    if operation.name in BY_RESULT:
        pulled = BY_RESULT[operation.name]
        return lambda node, g: fit(pulled(g, node._saved_result[index]))
    return _elementwise(operation.shape, k, index, fit)


def _elementwise(shape: Shape, k: int, index: tuple[slice, ...], fit: Callable[[Tensor], Tensor]) -> Pull:
    def pull(node: Any, g: Tensor) -> Tensor:
        slope = node(torch.ones(shape, dtype=g.dtype, device=g.device))
        slope = slope[k] if isinstance(slope, tuple) else slope
        return fit(g * slope[index])

    return pull


def _batch_norm(box: Box, fit: Callable[[Tensor], Tensor]) -> Pull:
    channels = slice(*box[1])

    def pull(node: Any, g: Tensor) -> Tensor:
        weight = node._saved_weight
        with torch.enable_grad():
            x = torch.zeros(g.shape[1:], dtype=g.dtype, device=g.device, requires_grad=True)
            made = F.batch_norm(
                x, node._saved_running_mean[channels], node._saved_running_var[channels],
                None if weight is None else weight[channels].detach(), None, False, 0.0, node._saved_eps,
            )  # fmt: skip
            (slope,) = torch.autograd.grad(made, x, torch.ones_like(made))
        return fit(g * slope)

    return pull


def _max_pool(operation: Operation, before: Shape, box: Box, into: Box) -> Pull:
    """The pool of the part of the input that its windows reach; outside of the input nothing is ever the largest."""
    stride, _, dilation = operation.windows
    reached = operation.reached(box)
    inner = [(max(0, a), min(n, b)) for (a, b), n in zip(reached, before[2:], strict=True)]
    index = _index((*box[:2], *inner))
    around = [
        edge for (a, b), (c, e) in zip(reversed(reached), reversed(inner), strict=True) for edge in (c - a, b - e)
    ]
    fit = _fitting((*box[:2], *inner), into)

    def pull(node: Any, g: Tensor) -> Tensor:
        with torch.enable_grad():
            x = node._saved_self.detach()[index].clone().requires_grad_()
            made = F.max_pool2d(F.pad(x, around, value=-math.inf), operation.weight[2:], stride, 0, dilation)
        pieces = [torch.autograd.grad(made, x, one, retain_graph=True)[0] for one in g]
        return fit(torch.stack(pieces))

    return pull


def _convolution(operation: Operation, box: Box, into: Box) -> Pull:
    """torch's own backward of the convolution that makes just this patch, from all that its windows reach."""
    reached, groups = operation.reached(box), operation.groups
    channels, there = slice(*box[1]), operation.weight[0]
    whole = [*(0, 0) * (len(box) - 2), box[1][0], there - box[1][1]]  # in groups, zeros for the other channels
    stride, _, dilation = (list(one) for one in operation.windows)
    zero = [0] * len(stride)
    sizes = (operation.weight[1] * groups, *(b - a for a, b in reached))
    fit = _fitting((box[0], (0, sizes[0]), *reached), into)

    def pull(node: Any, g: Tensor) -> Tensor:
        flat = g.flatten(0, 1)  # (count * samples, channels, ...)
        weight = node._saved_weight if groups > 1 else node._saved_weight[channels]
        flat = F.pad(flat, whole) if groups > 1 and any(whole) else flat
        like = flat.new_zeros(()).expand(len(flat), *sizes)  # its numbers are not needed
        piece = torch.ops.aten.convolution_backward.default(
            flat, like, weight, None, stride, zero, dilation, False, zero, groups, [True, False, False]
        )[0]
        return fit(piece.view(g.shape[0], -1, *piece.shape[1:]))

    return pull


def _fitting(box: Box, into: Box) -> Callable[[Tensor], Tensor]:
    """What of a patch lies inside another one; zeros where that is larger."""
    if box == into:
        return lambda piece: piece
    around: list[int] = []
    for (start, stop), (a, b) in zip(box, into, strict=True):
        around = [start - a, b - stop, *around]
    return lambda piece: F.pad(piece, around)


def _index(box: Box) -> tuple[slice, ...]:
    return tuple([slice(a, b) for a, b in box])
