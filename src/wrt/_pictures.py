"""Pictures of plain arrays: heat maps and bars by matplotlib, small tables by HTML. Nothing here knows a derivative."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wrt.errors import WrtError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY_CELLS = 4_000_000  # more would not be seen on any screen


class NoMatplotlib(WrtError, ImportError):
    """A picture was asked for where matplotlib is not installed."""


def axes(ax: Axes | None = None, *, size: tuple[float, float] | None = None) -> Axes:
    """The given axes, or new ones on a figure of their own."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise NoMatplotlib(
            "pictures need matplotlib", "it is not installed", "pip install 'wrt[plot]'"
        ) from None
    _, made = pyplot.subplots(figsize=size, layout="constrained")
    return made


def heat(
    values: npt.NDArray[Any], ax: Axes | None = None, *, title: str = "", across: str = "", down: str = "",
    signed: bool = True,
) -> Axes:  # fmt: skip
    """A matrix in colors; with `signed`, white is zero and the scale reaches equally far in both directions."""
    shown = np.ma.masked_invalid(np.asarray(values, dtype=np.float64))
    ax = axes(ax, size=_size(shown.shape))
    reach = float(np.abs(shown).max()) if shown.count() else 0.0
    reach = reach or 1.0
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    image = ax.imshow(
        shown,
        aspect="auto" if max(shown.shape) > 6 * max(1, min(shown.shape)) else "equal",
        interpolation="nearest",
        cmap=colormaps["RdBu_r" if signed else "magma"].with_extremes(bad="#b7b7b7"),  # gray: not finite
        vmin=-reach if signed else 0.0,
        vmax=reach,
    )
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    ax.set(title=title, xlabel=across, ylabel=down)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_gid(alt_text(values, title))
    return ax


def bars(names: Sequence[str], values: Sequence[float], ax: Axes | None = None, *, title: str, across: str,
         marked: Sequence[str] = ()) -> Axes:  # fmt: skip
    """One horizontal bar for each name, on a logarithmic scale; what is marked stands out, what is zero says so."""
    ax = axes(ax, size=(7.0, 1.2 + 0.28 * len(names)))
    place = np.arange(len(names))
    positive = [v for v in values if np.isfinite(v) and v > 0]
    floor = min(positive) / 10 if positive else 1e-12
    widths = [v if np.isfinite(v) and v > 0 else floor for v in values]
    colors = ["#c0392b" if mark else "#34699a" for mark in (marked or [""] * len(names))]
    ax.barh(place, widths, color=colors, left=0, height=0.7)
    ax.set_xscale("log")
    ax.set_xlim(left=floor / 2)
    for k, v in enumerate(values):
        words = (marked[k] if marked else "") or ("0" if v == 0 else "" if np.isfinite(v) else "not finite")
        if words:
            ax.annotate(words, (widths[k], k), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set_yticks(place, names, fontsize=8)
    ax.invert_yaxis()
    ax.set(title=title, xlabel=across)
    ax.margins(x=0.25)
    return ax


def alt_text(values: npt.NDArray[Any], title: str) -> str:
    """What the picture shows, for those who cannot see it.

    >>> alt_text(np.array([[0.0, -2.0]]), "gradient")
    'gradient: heat map of 1 x 2 values from -2 to 0, largest size 2 at [0, 1], 1 zeros'
    """
    numbers = np.asarray(values, dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    shape = " x ".join(map(str, numbers.shape)) or "1"
    if not finite.size:
        return f"{title}: heat map of {shape} values, none finite"
    at = [int(k) for k in np.unravel_index(int(np.nanargmax(np.where(np.isfinite(numbers), np.abs(numbers), -1))), numbers.shape)]
    broken = numbers.size - finite.size
    tail = f", {broken} not finite" if broken else ""
    return (
        f"{title}: heat map of {shape} values from {finite.min():.3g} to {finite.max():.3g}, "
        f"largest size {np.abs(finite).max():.3g} at {at}, {int((finite == 0).sum())} zeros{tail}"
    )


def matrix_of(values: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Any array as something flat to look at: a row of one image is that image, everything else rows by columns."""
    if rows == 1 and values.ndim >= 2:
        image = values.reshape(-1, *values.shape[-2:])
        return image[0] if len(image) == 1 else image.reshape(-1, values.shape[-1])
    return values.reshape(rows, -1)


def _size(shape: tuple[int, ...]) -> tuple[float, float]:
    height, width = shape
    longest = max(height, width, 1)
    return 2.0 + 4.5 * max(width / longest, 0.35), 1.0 + 4.0 * max(height / longest, 0.3)


def table(values: npt.NDArray[Any], title: str) -> str:
    """The matrix as a self-contained piece of HTML; of more than 48 x 48 cells the top left corner, and it says so.

    >>> 'title="[0, 1] = -2"' in table(np.array([[0.0, -2.0]]), "J")
    True
    """
    numbers = np.asarray(values, dtype=np.float64)
    corner = numbers[:48, :48]
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
