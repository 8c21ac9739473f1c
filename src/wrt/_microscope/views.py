"""Which picture fits a tensor: by its shape, its numbers, and what it is in the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

COLORS = (1, 3, 4)  # gray, color, color with transparency


@dataclass(frozen=True, slots=True)
class View:
    """A kind of picture, and which axis of the tensor is which in it; axes without a role get a slider."""

    kind: str
    rows: int | None = None
    columns: int | None = None
    channel: int | None = None
    batch: int | None = None
    tokens: int | None = None

    def to_dict(self) -> dict[str, Any]:
        axes = asdict(self)
        return {"view": axes.pop("kind"), "axes": axes}


def view(shape: Sequence[int], *, integer: bool = False, tokens: int = 0, last: bool = False, given: bool = False) -> View:
    """The picture for a shape.

    `tokens` is the length of the run's sequence of tokens (0: none), `last` where the framework puts channels, `given`
    whether this is what went in.

    >>> view((1, 8, 16, 16)).kind, view((1, 16, 16, 8), last=True).channel, view((10,)).kind
    ('planes', 3, 'series')
    >>> view((1, 12, 64), tokens=12)
    View(kind='tokens', rows=1, columns=2, channel=None, batch=0, tokens=1)
    """
    wide = [axis for axis, length in enumerate(shape) if length > 1]
    if not wide:
        return View("scalar")
    if tokens > 1 and tokens in shape:
        found = _along_tokens(shape, tokens)
        if found is not None:
            return found
    if len(shape) == 1:
        return View("series", columns=0)
    if len(shape) == 2:
        return View("series" if len(wide) == 1 and not integer else "matrix", rows=0, columns=1)
    return _planes(shape, last, given)


def _along_tokens(shape: Sequence[int], tokens: int) -> View | None:
    """Sequences: (T,), (N, T), (N, T, D), (T, D), (N, heads, T, T)."""
    rank = len(shape)
    if rank >= 2 and shape[-1] == shape[-2] == tokens:
        lead = rank - 2
        return View(
            "planes" if lead else "matrix", rank - 2, rank - 1,
            rank - 3 if lead else None, 0 if lead > 1 else None, rank - 2,
        )  # fmt: skip
    at = next((axis for axis in range(min(rank, 2)) if shape[axis] == tokens), None)
    if at is None:
        at = rank - 2 if rank >= 2 and shape[rank - 2] == tokens else None
    if at is None or rank - at > 2:
        return None
    batch = 0 if at >= 1 else None
    if at == rank - 1:
        return View("tokens", columns=at, batch=batch, tokens=at)
    return View("tokens", at, rank - 1, at - 1 if at > 1 else None, batch, at)


def _planes(shape: Sequence[int], last: bool, given: bool) -> View:
    """Images and feature maps: planes of rows and columns, one for each channel."""
    rank = len(shape)
    if _channels_last(shape[-3:], last):
        rows, columns, channel = rank - 3, rank - 2, rank - 1
    else:
        rows, columns, channel = rank - 2, rank - 1, rank - 3
    batch = 0 if rank > 3 else None
    image = given and shape[channel] in COLORS and min(shape[rows], shape[columns]) > 1
    flat = rank == 3 and shape[channel] == 1
    return View("image" if image else "matrix" if flat else "planes", rows, columns, channel, batch)


def _channels_last(three: Sequence[int], last: bool) -> bool:
    """Where the channels of (a, b, c) stand: squares and few colors give it away, otherwise the framework's habit."""
    first_square, last_square = three[1] == three[2], three[0] == three[1]
    if first_square != last_square:
        return last_square
    if (three[0] in COLORS) != (three[2] in COLORS):
        return three[2] in COLORS
    return last
