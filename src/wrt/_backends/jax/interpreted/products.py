"""Products: of matrices in any arrangement of their axes, and of windows with kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wrt._backends.jax.interpreted.shapes import RULES as SHAPES

Array = Any
pad = SHAPES["pad"]


def _dot(a: Array, b: Array, dimension_numbers: Any, preferred_element_type: Any, **how: Any) -> Array:
    a, b = _as_wide(preferred_element_type, a, b)
    (summed_a, summed_b), (batch_a, batch_b) = dimension_numbers
    free_a = [k for k in range(a.ndim) if k not in summed_a and k not in batch_a]
    free_b = [k for k in range(b.ndim) if k not in summed_b and k not in batch_b]
    shape = [a.shape[k] for k in (*batch_a, *free_a)] + [b.shape[k] for k in free_b]
    batch = [a.shape[k] for k in batch_a]
    inner = math.prod(a.shape[k] for k in summed_a)
    left = a.transpose((*batch_a, *free_a, *summed_a)).reshape(*batch, math.prod(a.shape[k] for k in free_a), inner)
    right = b.transpose((*batch_b, *summed_b, *free_b)).reshape(*batch, inner, math.prod(b.shape[k] for k in free_b))
    return np.matmul(left, right).reshape(shape)


def _convolution(
    a: Array, kernel: Array, window_strides: Sequence[int], padding: Sequence[tuple[int, int]], lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int], dimension_numbers: Any, feature_group_count: int, batch_group_count: int,
    preferred_element_type: Any, **how: Any,
) -> Array:  # fmt: skip
    """Every window beside every other as a matrix, times the kernel as a matrix."""
    a, kernel = _as_wide(preferred_element_type, a, kernel)
    images = a.transpose(dimension_numbers.lhs_spec)  # (batch, features, *space)
    weights = kernel.transpose(dimension_numbers.rhs_spec)  # (out, features of a group, *space)
    edges = [(low, high, gap - 1) for (low, high), gap in zip(padding, lhs_dilation, strict=True)]
    images = pad(images, images.dtype.type(0), [(0, 0, 0), (0, 0, 0), *edges])
    if batch_group_count > 1:  # each group of images has outputs of its own
        pieces = zip(np.split(images, batch_group_count), np.split(weights, batch_group_count), strict=True)
    else:
        pieces = zip(np.split(images, feature_group_count, 1), np.split(weights, feature_group_count), strict=True)
    made = np.concatenate([_windowed(part, w, window_strides, rhs_dilation) for part, w in pieces], 1)
    back = np.argsort(dimension_numbers.out_spec)
    return made.transpose(back)


def _windowed(images: Array, weights: Array, strides: Sequence[int], dilation: Sequence[int]) -> Array:
    """(batch, features, *space) and (out, features, *window) to (batch, out, *places)."""
    window = weights.shape[2:]
    reach = [(n - 1) * gap + 1 if n else 0 for n, gap in zip(window, dilation, strict=True)]
    if any(have < need for have, need in zip(images.shape[2:], reach, strict=True)):
        fitting = (max(0, (h - r) // s + 1) for h, r, s in zip(images.shape[2:], reach, strides, strict=True))
        return np.zeros((len(images), len(weights), *fitting), images.dtype)
    places = [(have - need) // step + 1 for have, need, step in zip(images.shape[2:], reach, strides, strict=True)]
    windows = np.empty((len(images), math.prod(window), images.shape[1], *places), images.dtype)
    for k, start in enumerate(np.ndindex(*window)):  # one element of every window at a time: long runs are copied fast
        first = [at * gap for at, gap in zip(start, dilation, strict=True)]
        each = [slice(a, a + (n - 1) * step + 1, step) for a, n, step in zip(first, places, strides, strict=True)]
        windows[:, k] = images[(slice(None), slice(None), *each)]
    flat = np.moveaxis(weights.reshape(len(weights), images.shape[1], -1), 2, 1).reshape(len(weights), -1)
    made = np.matmul(flat, windows.reshape(len(images), flat.shape[1], -1))
    return made.reshape(len(images), len(weights), *places)


def _as_wide(dtype: Any, *arrays: Array) -> list[Array]:
    """Numbers in the type that sums of their products are asked for in."""
    return [array if dtype is None else array.astype(np.promote_types(array.dtype, dtype), copy=False) for array in arrays]


RULES: dict[str, Callable[..., Array]] = {"conv_general_dilated": _convolution, "dot_general": _dot}
