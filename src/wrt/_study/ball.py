"""Steps and projections in the three norms: which step of a given length climbs fastest, and how to stay near."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from wrt._study.tensors import Numbers

Norm: TypeAlias = Literal["inf", 2, 1]


def steepest(g: Numbers, norm: Norm) -> Numbers:
    """The step of length one that climbs fastest along a gradient.

    >>> steepest(np.array([3.0, -4.0]), "inf").tolist(), steepest(np.array([3.0, -4.0]), 1).tolist()
    ([1.0, -1.0], [0.0, -1.0])
    """
    if norm == "inf":
        return np.sign(g)
    if norm == 2:
        return g / max(float(np.linalg.norm(g)), 1e-300)
    step = np.zeros(g.shape)
    largest = np.unravel_index(int(np.abs(g).argmax()), g.shape)
    step[largest] = np.sign(g[largest])
    return step


def climb(g: Numbers, norm: Norm) -> float:
    """How much that step climbs: the dual norm of the gradient."""
    return float((g * steepest(g, norm)).sum())


def length(v: Numbers, norm: Norm) -> float:
    flat = v.reshape(-1)
    return float(np.linalg.norm(flat, np.inf if norm == "inf" else norm)) if flat.size else 0.0


def nearest(v: Numbers, radius: float, norm: Norm) -> Numbers:
    """The nearest point of the ball around zero.

    >>> nearest(np.array([3.0, 1.0]), 2.0, 1).tolist()
    [2.0, 0.0]
    """
    if norm == "inf":
        return np.clip(v, -radius, radius)
    if norm == 2:
        return v * min(1.0, radius / max(length(v, 2), 1e-300))
    return v if length(v, 1) <= radius else _on_the_simplex(v, radius)


def _on_the_simplex(v: Numbers, radius: float) -> Numbers:
    """All entries shrink by the same amount, as far as zero: the amount that makes their sum the radius."""
    sizes = np.sort(np.abs(v).reshape(-1))[::-1]
    excess = (np.cumsum(sizes) - radius) / np.arange(1, len(sizes) + 1)
    shrink = float(excess[np.flatnonzero(sizes > excess)[-1]])
    shrunk: Numbers = np.sign(v) * np.maximum(np.abs(v) - shrink, 0.0)
    return shrunk
