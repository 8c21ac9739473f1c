"""A Derivative among tensors: frameworks that take whatever they can for an array, and would multiply its numbers."""

from __future__ import annotations

from wrt._core.index import Shape
from wrt.errors import NotATensor


def no_operand(shape: Shape) -> NotATensor:
    """TensorFlow computes all of J for `u @ J` and multiplies stacks of matrices, unless it is told that J is no tensor."""
    return NotATensor(
        "a derivative was taken for a tensor",
        f"it is a linear map of shape {shape}, computed when somebody asks for its numbers",
        "write J.value for a tensor, u @ J or J @ v for a product",
    )
