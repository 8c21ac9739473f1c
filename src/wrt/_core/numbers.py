"""What several backends do with numbers that NumPy sees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.index import Shape
from wrt._core.thresholds import ALIGNMENT_BYTES, MANY_NUMBERS

Numbers = npt.NDArray[Any]

TF32_ROUNDING = 2.0**-11
"""Of float32 numbers that an accelerator multiplies as TF32."""


def aligned_zeros(shape: Shape, dtype: Any) -> Numbers:
    """Memory that begins where a framework's own does: one takes no other over, and another aborts the process on it."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    whole = np.zeros(size + ALIGNMENT_BYTES, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT_BYTES
    return np.asarray(whole[start : start + size].view(dtype).reshape(shape))


def weighted_columns(weights: Numbers, array: Numbers, norms: Numbers | None = None) -> tuple[Numbers, Numbers]:
    """weights @ array and the 2-norm of each column, unless they are known, in double precision, some rows at a time."""
    wide = np.complex128 if np.iscomplexobj(array) else np.float64
    sums, squares = np.zeros(array.shape[1], np.result_type(wide, weights.dtype)), np.zeros(array.shape[1])
    rows = max(1, MANY_NUMBERS // max(1, array.shape[1]))
    with np.errstate(all="ignore"):
        for start in range(0, array.shape[0], rows):
            piece = array[start : start + rows].astype(wide)
            sums += weights[start : start + rows] @ piece
            if norms is None:
                squares += np.einsum("ij,ij->j", piece, piece.conj()).real
        return sums, np.sqrt(squares) if norms is None else norms


def larger(array: Any, rounding: float, numpy: Any = np) -> Any:
    """Where numbers are larger than so many times the largest of their line; a NaN is not smaller."""
    with np.errstate(all="ignore"):
        size = numpy.abs(array)
        largest = numpy.max(numpy.where(numpy.isfinite(size), size, 0), axis=-1, keepdims=True, initial=0)
        return ~(size <= rounding * largest)
