"""Operations that treat each number alone.

Where the slope at a number takes long to compute, it is computed once and not for each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from wrt._backends.torch.nodes import Node
from wrt._backends.torch.rules.batch import Tensor
from wrt._backends.torch.rules.families import Many, One, Rule, Terms, over, times

aten = torch.ops.aten

SMALL = 2**15  # numbers of a batch that new memory is found for at once: measured from 2^14 to 2^16


def _sloped(slope: Callable[[Node], Tensor], like: str = "_saved_self") -> One:
    return One(lambda node, g, free: times(g, slope(node), free), like=like)


def _fused(name: str, like: str, more: Callable[[Node], tuple[Any, ...]] = lambda node: ()) -> One:
    """An operation of torch's own for just this: of a gradient, and of what was saved.

    The node's own backward is that operation, and it takes many gradients as well as one. It is quicker to start, but a
    large batch is better written where it lies.
    """
    written, fresh = getattr(aten, name).grad_input, getattr(aten, name).default

    def pull(node: Node, g: Tensor, free: bool) -> Tensor:
        if free and g.numel() > SMALL:
            pulled: Tensor = written(g, getattr(node, like), *more(node), grad_input=g)
            return pulled
        if callable(node):
            return node(g)
        return fresh(g, getattr(node, like), *more(node))  # what stands in for a node only tells what it saved

    return One(pull, like=like)


def _power(node: Node) -> Tensor:
    exponent, x = node._saved_exponent, node._saved_self
    if exponent == 0:
        return torch.zeros_like(x)
    return x * 2 if exponent == 2 else exponent * x.pow(exponent - 1)


def _gelu(node: Node) -> Tensor:
    x = node._saved_self
    slope: Tensor = aten.gelu_backward(torch.ones_like(x), x, approximate=node._saved_approximate)
    return slope


def _silu(node: Node) -> Tensor:
    x = node._saved_self
    slope: Tensor = aten.silu_backward(torch.ones_like(x), x)
    return slope


def _softplus(node: Node) -> Tensor:
    x = node._saved_self
    slope: Tensor = aten.softplus_backward(torch.ones_like(x), x, node._saved_beta, node._saved_threshold)
    return slope


def _elu(node: Node) -> Tensor:
    x = node._saved_self
    scales = node._saved_alpha, node._saved_scale, node._saved_input_scale
    slope: Tensor = aten.elu_backward(torch.ones_like(x), *scales, False, x)
    return slope


def _clamped(node: Node, g: Tensor, free: bool) -> Tensor:
    x, least, most = node._saved_self, node._saved_min, node._saved_max
    inside = torch.ones_like(x, dtype=torch.bool)
    if least is not None:
        inside &= x >= least
    if most is not None:
        inside &= x <= most
    return torch.where(inside, g, 0.0)


def _quotient(node: Node, g: Tensor, free: bool) -> Tensor:
    divisor = node._saved_other
    return times(g, -(node._saved_self / divisor / divisor), free)


def _chosen(node: Node, g: Tensor, free: bool) -> Tensor:
    return torch.where(node._saved_condition, g, 0.0)


def _other(node: Node, g: Tensor, free: bool) -> Tensor:
    return torch.where(node._saved_condition, 0.0, g)


def _masked(node: Node, g: Tensor, free: bool) -> Tensor:
    return g.masked_fill_(node._saved_mask, 0) if free else g.masked_fill(node._saved_mask, 0)


def _of_two(lost: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Node, Tensor, bool], Tensor]:
    """One of two numbers was taken, and they share the gradient where they are equal."""

    def pull(node: Node, g: Tensor, free: bool) -> Tensor:
        a, b = node._saved_self, node._saved_other
        equal = a == b
        if not equal.is_cpu or bool(equal.any()):
            g, free = times(g, torch.where(equal, 0.5, 1.0).to(g.dtype), free), True
        return g.masked_fill_(lost(a, b), 0) if free else g.masked_fill(lost(a, b), 0)

    return pull


def _alpha(node: Node) -> float:
    factor: float = node._saved_alpha
    return factor


ELEMENTWISE: dict[str, Rule] = {
    "AbsBackward0": _sloped(lambda node: node._saved_self.sgn()),
    "AddBackward0": Terms(lambda node: 1, _alpha),
    "AtanBackward0": One(lambda node, g, free: over(g, node._saved_self.square() + 1, free)),
    "ClampBackward1": One(_clamped),
    "CosBackward0": _sloped(lambda node: -node._saved_self.sin()),
    "CoshBackward0": _sloped(lambda node: node._saved_self.sinh()),
    "DivBackward0": Many(lambda node, g, free: over(g, node._saved_other, free), _quotient),
    "EluBackward0": _sloped(_elu),
    "ErfBackward0": _sloped(lambda node: 2 / math.sqrt(math.pi) * torch.exp(-node._saved_self.square())),
    "ExpBackward0": _sloped(lambda node: node._saved_result, "_saved_result"),
    "Expm1Backward0": _sloped(lambda node: node._saved_result + 1, "_saved_result"),
    "GeluBackward0": _sloped(_gelu),
    "HardtanhBackward0": _fused(
        "hardtanh_backward", "_saved_self", lambda node: (node._saved_min_val, node._saved_max_val)
    ),
    "LeakyReluBackward0": _fused("leaky_relu_backward", "_saved_self", lambda node: (node._saved_negative_slope, False)),
    "Log1PBackward0": One(lambda node, g, free: over(g, node._saved_self + 1, free)),
    "LogBackward0": One(lambda node, g, free: over(g, node._saved_self, free)),
    "MaskedFillBackward0": Many(_masked),
    "MaximumBackward0": Many(_of_two(torch.lt), _of_two(torch.gt)),
    "MinimumBackward0": Many(_of_two(torch.gt), _of_two(torch.lt)),
    "MulBackward0": Many(
        lambda node, g, free: times(g, node._saved_other, free), lambda node, g, free: times(g, node._saved_self, free)
    ),
    "NegBackward0": One(lambda node, g, free: g.neg_() if free else -g),
    "PowBackward0": _sloped(_power),
    "ReciprocalBackward0": _sloped(lambda node: -node._saved_result.square(), "_saved_result"),
    "ReluBackward0": _fused("threshold_backward", "_saved_result", lambda node: (0,)),
    "RsqrtBackward0": _sloped(lambda node: -0.5 * node._saved_result.pow(3), "_saved_result"),
    "RsubBackward1": Terms(lambda node: -_alpha(node)),
    "SigmoidBackward0": _fused("sigmoid_backward", "_saved_result"),
    "SiluBackward0": _sloped(_silu),
    "SinBackward0": _sloped(lambda node: node._saved_self.cos()),
    "SinhBackward0": _sloped(lambda node: node._saved_self.cosh()),
    "SoftplusBackward0": _sloped(_softplus),
    "SqrtBackward0": One(lambda node, g, free: over(g, 2 * node._saved_result, free)),
    "SubBackward0": Terms(lambda node: 1, lambda node: -_alpha(node)),
    "TanBackward0": _sloped(lambda node: node._saved_result.square() + 1, "_saved_result"),
    "TanhBackward0": _fused("tanh_backward", "_saved_result"),
    "WhereBackward0": Many(_chosen, _other),
}
