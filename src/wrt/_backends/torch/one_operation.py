"""One operation under examination: its own backward, without anything around it, and its call run again on other numbers.

Numbers are double-precision NumPy arrays: what a diagnosis looks at.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat
from wrt._backends.torch.recording.saved import unbox
from wrt._core.evidence import Again, Numbers, last_line


def like(cotangent: Numbers, edge: GradientEdge) -> Tensor:
    meta = compat.metadata(edge.node, edge.output_nr)
    return torch.as_tensor(cotangent).to(meta.dtype).to(meta.device).reshape(tuple(meta.shape))


def as_numbers(tensor: Tensor | None) -> Numbers | None:
    if tensor is None or not isinstance(tensor, Tensor):
        return None
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to("cpu", torch.float64).numpy()


class quiet:
    """Outside the user's modes, hooks of ours included; nothing is noted."""

    def __enter__(self) -> None:
        self._undisturbed = compat.Undisturbed()
        self._undisturbed.__enter__()
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *reason: Any) -> None:
        self._caught.__exit__(*reason)
        self._undisturbed.__exit__(*reason)


# ---------------------------------------------------------------- its backward

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
        if edge is not None and seed is not None and not any(a is not None and compat.same_edge(edge, a) for a in asked):
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
        node = max(ready, key=compat.made)
        done.add(node)
        yield node


def _call(node: Any, gradients: list[Tensor | None]) -> tuple[tuple[Tensor | None, ...], bool]:
    """The backward of one autograd node, without hooks; and whether it wrote into what it was given."""
    if not compat.is_custom(node):
        result = node(*gradients)
        return (result if isinstance(result, tuple) else (result,)), False
    filled = [_zeros(compat.metadata(node, k)) if g is None else g for k, g in enumerate(gradients)]
    before = [g._version for g in filled]
    result = node.apply(*filled)
    mutated = before != [g._version for g in filled]
    return (tuple(result) if isinstance(result, (tuple, list)) else (result,)), mutated


def _zeros(like: Any) -> Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def _as_the_engine(gradient: Tensor, source: Any, output: int) -> Tensor:
    """The engine sums a gradient that is larger than its input down to the input's shape."""
    shape = tuple(compat.metadata(source, output).shape)
    if tuple(gradient.shape) == shape:
        return gradient
    try:
        return gradient.sum_to_size(shape)
    except RuntimeError:
        return gradient


def _add(waiting: dict[Any, list[Tensor | None]], edge: GradientEdge, gradient: Tensor) -> None:
    slots = waiting.setdefault(edge.node, [None] * compat.outputs_of(edge.node))
    known = slots[edge.output_nr]
    slots[edge.output_nr] = gradient if known is None else known + gradient


# ---------------------------------------------------------------- its call, run again


def rerun(kept: tuple[Any, Any, Any], values: Sequence[int]) -> Again | None:
    """The call behind kept arguments, whose tensors are these values of the run, to be made again on other numbers."""
    func = kept[0]
    leaves, structure = compat.tree_flatten(unbox(kept[1:]))
    custom = isinstance(func, type) and issubclass(func, torch.autograd.Function)
    tensors = [(place, leaf) for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    if len(tensors) != len(values) or any(t.layout != torch.strided for _, t in tensors):
        return None  # a sparse tensor has no fixed elements to move
    floats = [(number, place, t) for number, (place, t) in zip(values, tensors, strict=True) if t.is_floating_point()]
    call = _Call(func.apply if custom else func, leaves, structure, [place for _, place, _ in floats])
    inputs = tuple(t.detach().double().cpu().numpy().copy() for _, _, t in floats)
    code = getattr(inspect.unwrap(func.backward), "__code__", None) if custom else None
    rule = None if code is None else last_line(code)
    numbers, name = tuple(number for number, _, _ in floats), func.__name__ if custom else ""
    return Again(inputs, numbers, call, name, rule, push=call.push, is_narrow=lambda: call.narrow)


class _Call:
    """A call made again with some of its tensors replaced by double-precision numbers."""

    def __init__(self, func: Callable[..., Any], leaves: list[Any], structure: Any, places: list[int]) -> None:
        self.func, self.structure, self.places = func, structure, places
        self.leaves = [t.double().cpu() if isinstance(t, Tensor) and t.is_floating_point() else t for t in leaves]
        self.narrow = False

    def __call__(self, inputs: Sequence[Numbers]) -> list[Numbers | None]:
        results = self._results(inputs)
        self.narrow |= any(isinstance(r, Tensor) and r.dtype in (torch.float32, torch.float16, torch.bfloat16) for r in results)
        return [as_numbers(r) if isinstance(r, Tensor) else None for r in results]

    def push(self, inputs: Sequence[Numbers], place: int, tangent: Numbers) -> list[Numbers | None]:
        """Forward mode of the call, from one of its inputs."""
        with forward_ad.dual_level():
            results = self._results(inputs, place, torch.from_numpy(np.ascontiguousarray(tangent)))
            moved = [forward_ad.unpack_dual(r).tangent if isinstance(r, Tensor) else None for r in results]
            return [as_numbers(t) for t in moved]

    def _results(self, inputs: Sequence[Numbers], moving: int = -1, tangent: Tensor | None = None) -> Sequence[Any]:
        leaves = list(self.leaves)
        for place, array in zip(self.places, inputs, strict=True):
            leaves[place] = torch.from_numpy(np.ascontiguousarray(array)).clone()
        if tangent is not None:
            leaves[self.places[moving]] = forward_ad.make_dual(leaves[self.places[moving]], tangent)
        args, kwargs = compat.tree_unflatten(leaves, self.structure)
        with quiet(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            result = self.func(*args, **kwargs)
        return result if isinstance(result, (tuple, list)) else [result]
