"""One operation's own backward, without anything around it: the autograd nodes that it made, and none besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat


class Pulled(NamedTuple):
    """A gradient for each input that was asked about, and whether the backward wrote into what it was given."""

    gradients: list[Tensor | None]
    mutated: bool


def pull(
    operation: int,
    made_by: Mapping[Any, int],
    asked: Sequence[GradientEdge | None],
    outputs: Sequence[GradientEdge | None],
    seeds: Sequence[Tensor | None],
) -> Pulled:
    """Run the backward of each autograd node that the operation made, from its outputs to the edges asked about."""
    ends = {(e.node, e.output_nr) for e in asked if e is not None}
    waiting: dict[Any, list[Tensor | None]] = {}
    arrived: dict[tuple[Any, int], Tensor] = {}
    mutated = False
    for edge, seed in zip(outputs, seeds, strict=True):
        if edge is not None and seed is not None and not any(_same(edge, a) for a in asked):
            _add(waiting, edge, seed)
    for inner in _in_order(waiting):
        if made_by.get(inner) != operation:
            for output, seed in enumerate(waiting[inner]):  # an alias: the result enters where an input does
                if seed is not None:
                    arrived[inner, output] = seed
            continue
        pulled, wrote = _call(inner, waiting[inner])
        mutated |= wrote
        for (source, output), gradient in zip(inner.next_functions, pulled, strict=False):
            if source is None or gradient is None:
                continue
            gradient = _as_the_engine(gradient, source, output)
            if (source, output) not in ends and made_by.get(source) == operation:
                _add(waiting, GradientEdge(source, output), gradient)
            else:
                known = arrived.get((source, output))
                arrived[source, output] = gradient if known is None else known + gradient
    return Pulled([None if e is None else arrived.get((e.node, e.output_nr)) for e in asked], mutated)


def _in_order(waiting: dict[Any, list[Tensor | None]]) -> Iterator[Any]:
    """Nodes as they fill up, those made last first."""
    done: set[Any] = set()
    while True:
        ready = [node for node in waiting if node not in done]  # grows while we go
        if not ready:
            return
        node = max(ready, key=lambda n: n._sequence_nr())
        done.add(node)
        yield node


def _call(node: Any, gradients: list[Tensor | None]) -> tuple[tuple[Tensor | None, ...], bool]:
    """The backward of one autograd node, without hooks; and whether it wrote into what it was given."""
    if not hasattr(node, "_forward_cls"):
        result = node(*gradients)
        return (result if isinstance(result, tuple) else (result,)), False
    filled = [
        torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device) if g is None else g
        for g, meta in zip(gradients, node._input_metadata, strict=False)
    ]
    before = [g._version for g in filled]
    result = node.apply(*filled)
    mutated = before != [g._version for g in filled]
    return (tuple(result) if isinstance(result, (tuple, list)) else (result,)), mutated


def _as_the_engine(gradient: Tensor, source: Any, output: int) -> Tensor:
    """The engine sums a gradient that is larger than its input down to the input's shape."""
    shape = tuple(source._input_metadata[output].shape)
    if tuple(gradient.shape) == shape:
        return gradient
    try:
        return gradient.sum_to_size(shape)
    except RuntimeError:
        return gradient


def _add(waiting: dict[Any, list[Tensor | None]], edge: GradientEdge, gradient: Tensor) -> None:
    slots = waiting.setdefault(edge.node, [None] * len(edge.node._input_metadata))
    known = slots[edge.output_nr]
    slots[edge.output_nr] = gradient if known is None else known + gradient


def _same(edge: GradientEdge, other: GradientEdge | None) -> bool:
    return other is not None and compat.same_edge(edge, other)
