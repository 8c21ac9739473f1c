"""A push through convolutions without the gradients of their weights.

The double backward of a convolution computes the gradient of its weight whether anybody asked for it or not, and that
takes as long as the push itself. While columns are pushed, convolutions with anything else than a weight of the network are
answered by zeros of the right shape, which nobody reads; where that could be otherwise, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from wrt._backends.torch import compat

CONVOLUTION = "ConvolutionBackwardBackward0"


class Weights:
    """The weights of the convolutions that a push passes, and how many convolutions there are."""

    def __init__(self, places: frozenset[int], convolutions: int) -> None:
        self.places = places
        self.convolutions = convolutions


def weights_of(pulled: Iterable[torch.Tensor | None]) -> Weights | None:
    """None where there is no convolution, or where x reaches y through a weight: then its gradient is needed."""
    found: dict[Any, int] = {}
    for gradient in pulled:
        if gradient is None or gradient.grad_fn is None:
            continue
        for node in compat.reachable(gradient.grad_fn):
            for source, output in node.next_functions:  # output 0 is the gradient of the input
                if output in (1, 2) and source is not None and type(source).__name__ == CONVOLUTION:
                    return None
            if type(node).__name__ == CONVOLUTION:
                try:
                    found[node] = node._saved_weight.data_ptr()
                except (RuntimeError, AttributeError):  # freed or changed since
                    return None
    return Weights(frozenset(found.values()), len(found)) if found else None


def push(sweep: Callable[[], Any], weights: Weights) -> Any:
    """What a sweep gives, without the gradients of weights that nobody differentiates by."""
    with _WithoutWeights(weights) as mode:
        pushed = sweep()
    return pushed if mode.computed == weights.convolutions else sweep()  # one for each: nothing was left out that is needed


class _WithoutWeights(TorchDispatchMode):
    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights
        self.computed = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            if args[1].data_ptr() not in self.weights.places:
                shape = func(*(_without_numbers(one) for one in args)).shape
                return torch.zeros((), dtype=args[0].dtype, device=args[0].device).expand(shape)
            self.computed += 1
        return func(*args, **(kwargs or {}))


def _without_numbers(argument: Any) -> Any:
    return torch.empty_like(argument, device="meta") if isinstance(argument, torch.Tensor) else argument
