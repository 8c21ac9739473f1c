"""The leaves of a tree side by side: one Jacobian with respect to all parameters of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from wrt import _backends
from wrt._core.value import Part, Side
from wrt._notation.derivative import Derivative
from wrt.errors import NotATensor, WrongShape

Split = Callable[[Any], Any]


def joined(tree: Any) -> tuple[Derivative, Split]:
    """One Derivative of shape y.shape + (all elements,), and the function that cuts such a vector into the tree again.

    >>> import torch, wrt
    >>> from wrt import d
    >>> a = torch.ones(2, requires_grad=True)
    >>> b = torch.ones(3, requires_grad=True)
    >>> J, split = wrt.joined(d(a.sum() * b) / d({"a": a, "b": b}))
    >>> J.shape, J.value.tolist()[0]
    ((3, 5), [1.0, 1.0, 2.0, 0.0, 0.0])
    >>> {name: tuple(part.shape) for name, part in split(J.value[0]).items()}
    {'a': (2,), 'b': (3,)}
    """
    if isinstance(tree, Derivative):
        leaves, rebuild = [tree], lambda parts: parts[0]
    else:
        leaves, rebuild = _leaves(tree)
    first = leaves[0]
    for leaf in leaves:
        if leaf.order != 1 or leaf._entries is not None or leaf._transposed:
            raise WrongShape(
                "only first derivatives stand side by side",
                f"one of the leaves has shape {leaf.shape}",
                "join d(y) / d(model) itself, then index or transpose what comes back",
            )
        if not _same(leaf, first):
            raise WrongShape(
                "the leaves are derivatives of different tensors",
                f"their shapes are {first.shape} and {leaf.shape}",
                "join the tree of one y: wrt.joined(d(y) / d(model))",
            )
    sides = [leaf.ask.x for leaf in leaves]
    ends = np.cumsum([0, *(side.size for side in sides)])
    return Derivative(first._y, first.rows, (_side_by_side(sides, ends),)), _splitter(sides, ends, rebuild)


def _leaves(tree: Any) -> tuple[list[Derivative], Callable[[list[Any]], Any]]:
    for backend in _backends.loaded():
        found = backend.tree(tree)
        if found is not None and found[0] and all(isinstance(leaf, Derivative) for leaf in found[0]):
            return found
    raise NotATensor(
        f"wrt.joined() of {type(tree).__name__}",
        "it takes the derivatives of one y with respect to a model, or to a dict or list of tensors",
        "write J, split = wrt.joined(d(y) / d(model))",
    )


def _same(one: Derivative, other: Derivative) -> bool:
    """Whether both are derivatives of the same elements of the same tensor."""
    same = one._y is other._y or one._y.record.same(one._y, other._y)
    return same and one.rows == other.rows


def _side_by_side(sides: list[Side], ends: Any) -> Side:
    if len(sides) == 1:
        return replace(sides[0], shape=(sides[0].size,))
    parts: list[Part] = []
    for side, start in zip(sides, ends[:-1], strict=True):
        for part in side.parts:
            into = np.arange(side.size) if part.into is None else part.into
            parts.append(replace(part, into=start + into))
    return Side((int(ends[-1]),), tuple(parts), None, tuple(note for side in sides for note in side.notes))


def _splitter(sides: list[Side], ends: Any, rebuild: Callable[[list[Any]], Any]) -> Split:
    def split(vector: Any) -> Any:
        """Cut the last axis of an array into the leaves; what stands before it stays."""
        lead = tuple(vector.shape[:-1])
        if not vector.shape or vector.shape[-1] != ends[-1]:
            raise WrongShape(
                f"split() of an array of shape {tuple(vector.shape)}",
                f"the leaves have {ends[-1]} elements together",
                f"give it an array whose last axis counts {ends[-1]}",
            )
        pieces = [vector[..., int(a) : int(b)] for a, b in pairwise(ends)]
        return rebuild([reshaped(piece, lead + side.shape) for piece, side in zip(pieces, sides, strict=True)])

    return split


def reshaped(piece: Any, shape: tuple[int, ...]) -> Any:
    """An array of any framework, or of NumPy, in another shape."""
    backend = _backends.owner(piece)
    return piece.reshape(shape) if backend is None else backend.arrays.reshape(piece, shape)
