"""An answer of `wrt ask` for people and for programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

MANY = 200  # entries; longer answers show their corners


def for_people(derivative: Any, name: str) -> str:
    """The question, its shape and dtype, and its numbers; the corners of what is large."""
    numbers = derivative.numpy()
    passes = derivative.explain().passes
    cost = "1 pass" if passes == 1 else f"{passes} passes"
    zeros = "" if derivative.connected else ", no dependence: exact zeros"
    head = f"{name}   shape {derivative.shape}, {dtype(derivative)}, {cost}{zeros}"
    rest = f"\n  {numbers.size} entries; --json gives every one" if numbers.size > MANY else ""
    return f"{head}\n{_indented(numbers)}{rest}"


def _indented(numbers: Any) -> str:
    with np.printoptions(precision=6, suppress=_plain(numbers), threshold=MANY, edgeitems=3, linewidth=100):
        text = str(numbers)
    return "\n".join(f"  {line}" for line in text.splitlines())


def _plain(numbers: Any) -> bool:
    """Whether the numbers read well without exponents: none is huge, and none that matters is tiny."""
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    return not sizes.size or bool(sizes.max() < 1e6 and sizes.min() > 1e-4)


def for_programs(derivative: Any, name: str) -> dict[str, Any]:
    """The same as plain data, every number of it, with what ran."""
    numbers = derivative.numpy()
    return {
        "query": name,
        "shape": list(derivative.shape),
        "dtype": dtype(derivative),
        "connected": derivative.connected,
        "value": plain(numbers.tolist()),
        "explain": derivative.explain().to_dict(),
    }


def plain(value: Any) -> Any:
    """JSON has no complex numbers, no NaN and no infinity: pairs and words stand for them.

    >>> plain([1.0, float("nan"), 2 + 1j])
    [1.0, 'nan', [2.0, 1.0]]
    """
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    return value if math.isfinite(value) else str(value)


def dtype(derivative: Any) -> str:
    """The name of a dtype of any framework: float32, bfloat16."""
    kind = derivative.dtype
    return str(getattr(kind, "name", kind)).rsplit(".", 1)[-1]
