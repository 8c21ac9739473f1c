"""A push through convolutions in half the time: the gradient of their weights is not computed.

The double backward of a convolution computes the gradient of its weight whether anybody asked for it or not, and that
takes as long as the push itself. While a batch is pushed, convolutions with anything else than a weight of the network
are answered by zeros of the right shape, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from wrt._backends.torch import compat

CONVOLUTION = "ConvolutionBackwardBackward0"
BIAS_GRADIENT = 2  # the third thing a convolution's backward returns
MOST_NODES = 5000


class Weights:
    """The weights of the convolutions that a push passes, and how many there are of these."""

    def __init__(self, places: frozenset[int], convolutions: int) -> None:
        self.places = places
        self.convolutions = convolutions


def weights_of(pulled: Iterable[torch.Tensor | None]) -> Weights | None:
    """None where there is no convolution, or where x reaches y through a weight: then its gradient is needed."""
    found: dict[Any, int] = {}
    for g in pulled:
        if g is None or g.grad_fn is None:
            continue
        for count, node in enumerate(compat.reachable(g.grad_fn)):
            if count > MOST_NODES:
                return None
            for source, which in node.next_functions:
                if which and source is not None and type(source).__name__ == CONVOLUTION and which <= BIAS_GRADIENT:
                    return None
            if type(node).__name__ == CONVOLUTION:
                try:
                    found[node] = node._saved_weight.data_ptr()
                except (RuntimeError, AttributeError):  # freed or changed since
                    return None
    return Weights(frozenset(found.values()), len(found)) if found else None


def push(one: Callable[..., torch.Tensor], columns: list[torch.Tensor], weights: Weights | None) -> torch.Tensor:
    """A batch of pushes; with weights that nobody differentiates, without their gradients."""
    if weights is not None:
        with _Spared(weights) as spared:
            (pushed,) = compat.batched(lambda *each: (one(*each),), *columns)
        if spared.computed == weights.convolutions:  # one for each: nothing was left out that is needed
            assert pushed is not None
            return pushed
    (pushed,) = compat.batched(lambda *each: (one(*each),), *columns)
    assert pushed is not None
    return pushed


def push_one(one: Callable[..., torch.Tensor], column: list[torch.Tensor], weights: Weights | None) -> torch.Tensor:
    """The same for a single column, without a batch."""
    if weights is not None:
        with _Spared(weights) as spared:
            pushed = one(*column)
        if spared.computed == weights.convolutions:
            return pushed
    return one(*column)


class _Spared(TorchDispatchMode):
    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights
        self.computed = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            if args[1].data_ptr() not in self.weights.places:
                shape = func(*(_shape_of(one) for one in args)).shape
                return torch.zeros((), dtype=args[0].dtype, device=args[0].device).expand(shape)
            self.computed += 1
        return func(*args, **(kwargs or {}))


def _shape_of(argument: Any) -> Any:
    """A tensor without its numbers."""
    if isinstance(argument, torch.Tensor):
        return torch.empty_like(argument, device="meta")
    return argument
