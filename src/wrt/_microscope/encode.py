"""Numbers as JSON that survives every reader: arrays as bytes, what is not finite as a word, no character that ends a script."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

WORDS = {"f32": "<f4", "f64": "<f8", "i32": "<i4"}
UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def array(numbers: Numbers, dtype: str | None = None) -> dict[str, Any]:
    """An array as its bytes: NaN and infinities travel inside, to the bit.

    >>> array(np.array([1.0, np.nan], dtype=np.float32))
    {'dtype': 'f32', 'shape': [2], 'base64': 'AACAPwAAwH8='}
    """
    word = dtype or ("f64" if numbers.dtype == np.float64 else "f32")
    little = np.ascontiguousarray(numbers, dtype=WORDS[word])
    return {"dtype": word, "shape": list(numbers.shape), "base64": base64.b64encode(little.tobytes()).decode("ascii")}


def extremes(numbers: Numbers) -> dict[str, Any]:
    """Smallest and largest of what is finite, and how much is zero or not finite.

    >>> extremes(np.array([0.0, 2.0, np.inf]))
    {'min': 0.0, 'max': 2.0, 'zeros': 1, 'nonfinite': 1}
    """
    finite = np.isfinite(numbers)
    good = numbers if finite.all() else numbers[finite]
    low, high = (float(good.min()), float(good.max())) if good.size else (0.0, 0.0)
    zeros = int(numbers.size - np.count_nonzero(numbers))
    return {"min": low, "max": high, "zeros": zeros, "nonfinite": int(numbers.size - np.count_nonzero(finite))}


def real(numbers: Numbers) -> Numbers:
    """What a page can draw: floating-point numbers; of a complex one its size.

    >>> real(np.array([3 + 4j])).tolist(), real(np.array([1, 2])).dtype
    ([5.0], dtype('float64'))
    """
    if numbers.dtype.kind == "c":
        return np.asarray(np.abs(numbers))
    if numbers.dtype.kind == "f" and numbers.dtype.itemsize in (4, 8):
        return numbers
    if numbers.dtype.kind in "iub":
        return numbers.astype(np.float64)
    return numbers.astype(np.float32)  # half precisions, and those of ml_dtypes


def text(told: Any) -> str:
    """JSON that can stand inside a script element: nothing in it closes one or opens a comment.

    >>> text({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    return json.dumps(told, allow_nan=False, separators=(",", ":"), ensure_ascii=False).translate(UNSAFE)
