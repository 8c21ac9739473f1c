"""A view taken after y was computed means the elements of its base: `d(y) / d(x[0])`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from wrt._backends.torch import compat
from wrt._backends.torch.recording.writes import geometry, offsets_of, positions_of
from wrt._core.index import Elements
from wrt._core.value import Part, Side, Value

AFTERWARDS = "a view taken afterwards: asked of the elements of its base"


def base_side(lift: Callable[[torch.Tensor], Value], view: torch.Tensor, elements: Elements) -> Side | None:
    """These elements of a view as elements of its base; None where they are not elements of it one by one."""
    base = _differentiable_base(view)
    if base is None:
        return None
    real_of_complex = base.is_complex() and view.dtype == base.real.dtype
    if view.dtype != base.dtype and not real_of_complex:
        return None
    if view.is_conj() or view.is_neg():
        return None
    like = torch.view_as_real(base) if real_of_complex else base
    positions = positions_of(geometry(like), offsets_of(geometry(view), elements.positions))
    if positions is None:
        return None
    picked = Elements.at(tuple(like.shape), positions.reshape(elements.shape))
    part = Part(lift(base), picked, component="pairs" if real_of_complex else "")
    return Side(elements.shape, (part,), notes=(AFTERWARDS,))


def in_base(view: torch.Tensor | None, elements: Elements) -> tuple[torch.Tensor, Elements] | None:
    """The base of a view and these elements in it, whether it has a gradient or not; None where there is none of its kind."""
    base = None if view is None else view._base
    if view is None or base is None or view.dtype != base.dtype or view.is_conj() or view.is_neg():
        return None
    positions = positions_of(geometry(base), offsets_of(geometry(view), elements.positions))
    return None if positions is None else (base, Elements.at(tuple(base.shape), positions.reshape(elements.shape)))


def _differentiable_base(view: torch.Tensor) -> torch.Tensor | None:
    """What the view looks into, as far as gradients know it.

    `torch.arange(6.0).reshape(2, 3).requires_grad_()` is a leaf that is a view itself: the base of its views is the
    `arange`, which has no gradient, so the leaf is found at the end of the view's own history instead.
    """
    base = view._base
    if base is None or base.requires_grad:
        return base
    node = view.grad_fn
    while node is not None and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
        if node is not None and compat.is_leaf_node(node):
            leaf: torch.Tensor = node.variable
            same_memory = leaf.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
            return leaf if same_memory and leaf is not view else None
    return None
