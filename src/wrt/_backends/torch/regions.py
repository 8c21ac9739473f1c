"""Where a write went, in words: as an index where it is one."""

from __future__ import annotations

from typing import Any

import numpy as np


def region_words(touched: Any, mine: Any, shape: tuple[int, ...]) -> str:
    """`[3]`, `[0:4, 2]` or `7 of 12 elements`: where a write went, as an index where it is one."""
    if len(touched) == len(mine):
        return "[...]"
    order = np.argsort(mine, kind="stable")
    flat = order[np.searchsorted(mine[order], touched)]
    axes = [np.unique(c) for c in np.unravel_index(flat, shape)] if shape else []
    box = 1
    words = []
    for axis, length in zip(axes, shape, strict=True):
        box *= len(axis)
        words.append(_axis_words(axis, length))
    if not axes or box != len(flat) or None in words:
        return f"{len(touched)} of {len(mine)} elements"
    return f"[{', '.join(str(word) for word in words)}]"


def _axis_words(used: Any, length: int) -> str | None:
    if len(used) == length:
        return ":"
    if len(used) == 1:
        return str(int(used[0]))
    steps = np.diff(used)
    if np.any(steps != steps[0]):
        return None
    stop = int(used[-1]) + 1
    return f"{int(used[0])}:{stop}" + (f":{int(steps[0])}" if steps[0] != 1 else "")
