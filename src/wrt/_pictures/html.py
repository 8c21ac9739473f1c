"""A small heat map as an HTML table: a color for each value, its position and value on hover, and words for readers."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._pictures.draw import alt_text

WIDEST = 48  # cells to a side; a larger matrix shows its top left corner and says so


def table(values: npt.NDArray[Any], title: str) -> str:
    """The matrix as a self-contained piece of HTML.

    >>> 'title="[0, 1] = -2"' in table(np.array([[0.0, -2.0]]), "J")
    True
    """
    numbers = np.asarray(values, dtype=np.float64)
    corner = numbers[:WIDEST, :WIDEST]
    finite = np.abs(numbers[np.isfinite(numbers)])
    reach = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    rows = "".join(
        "<tr>" + "".join(_cell(i, j, corner[i, j], reach) for j in range(corner.shape[1])) + "</tr>"
        for i in range(corner.shape[0])
    )
    cut = "" if corner.shape == numbers.shape else f" (top left {corner.shape[0]} x {corner.shape[1]} shown)"
    words = escape(alt_text(numbers, title), quote=True)
    return (
        f'<figure role="img" aria-label="{words}" style="margin:0"><figcaption>{escape(title)}{cut}</figcaption>'
        f'<table style="border-collapse:collapse;line-height:0">{rows}</table></figure>'
    )


def _cell(i: int, j: int, value: float, reach: float) -> str:
    style = "width:11px;height:11px;min-width:11px;padding:0;border:1px solid #8882;background:"
    return f'<td title="[{i}, {j}] = {value:.6g}" style="{style}{_color(value, reach)}"></td>'


def _color(value: float, reach: float) -> str:
    """Red above zero, blue below, white at zero, gray where it is no number."""
    if not np.isfinite(value):
        return "#b7b7b7"
    share = min(1.0, abs(value) / reach) ** 0.6  # small values must still be told from zero
    full = (178, 24, 43) if value > 0 else (33, 102, 172)
    red, green, blue = (round(255 + share * (one - 255)) for one in full)
    return f"rgb({red},{green},{blue})"
