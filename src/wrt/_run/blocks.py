"""Jacobians as arrays with named axes: an axis of y that goes index by index with one of x is held once.

A network for each of 32 tokens of 32 numbers is 32 x 32 x 32 numbers instead of 1024 x 1024, and products of such arrays
are einsums. A chain of them is multiplied where it costs least first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Shape
from wrt._core.pattern import Compression
from wrt._core.protocol import Array

_NAMES = count()
Axis = tuple[int, int]  # a name and a length


@dataclass(frozen=True, slots=True)
class Blocks:
    """`array` has one axis for each of `axes`; a name among both `rows` and `columns` is a diagonal."""

    array: Array
    axes: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return _size(self.rows), _size(self.columns)


def _size(axes: Sequence[Axis]) -> int:
    return prod(length for _, length in axes)


def _new(shape: Shape) -> tuple[Axis, ...]:
    return tuple((next(_NAMES), length) for length in shape)


def full(array: Array, rows: int, columns: int) -> Blocks:
    """A matrix without structure."""
    axes = _new((rows, columns))
    return Blocks(array, axes, axes[:1], axes[1:])


def layout(compression: Compression) -> tuple[int | None, ...] | None:
    """For each axis of the lines: the axis of what a pass returns that it goes index by index with, None where all its
    indices are swept one after another; None instead of all that where the compression is not one of blocks."""
    if compression.way != "pull" or compression.owned or len(compression.owners) != len(compression.lines):
        return None
    rank = len(compression.lines)
    found: list[int | None] = []
    for axis, (table, length) in enumerate(zip(compression.owners, compression.lines, strict=True)):
        along = [k for k, size in enumerate(table.shape) if size > 1]
        if compression.box[axis] == length and along in ([], [axis]):
            found.append(None)
            continue
        flat = table.reshape(-1)
        if compression.box[axis] != 1 or len(along) != 1 or along[0] < rank or len(flat) != length:
            return None
        if flat[0] or len(set(np.diff(flat).tolist())) > 1:
            return None
        found.append(along[0] - rank)
    return tuple(found)


def from_passes(ask: Ask, compression: Compression, passes: Array) -> Blocks:
    """What the passes of a structured stretch hold."""
    pairs = layout(compression)
    assert pairs is not None
    rank = len(compression.lines)
    columns = _new(compression.box[rank:])
    rows = tuple(
        columns[pair] if pair is not None else axis
        for axis, pair in zip(_new(compression.lines), pairs, strict=True)
    )
    axes = (*(axis for axis, pair in zip(rows, pairs, strict=True) if pair is None), *columns)
    array = ask.y.record.backend.arrays.reshape(passes, tuple(length for _, length in axes))
    return Blocks(array, axes, rows, columns)


def multiply(arrays: Any, chain: list[Blocks]) -> Blocks:
    """The product of them all, in the order that takes the fewest multiplications."""
    chain = list(chain)
    while len(chain) > 1:
        for _ in chain[1:]:  # an axis that is cut for one neighbor may have to be cut for the other too
            for k in range(len(chain) - 1):
                chain[k : k + 2] = _matched(arrays, chain[k], chain[k + 1])
        k = _first([_Shadow(frozenset(one.axes), one.rows, one.columns) for one in chain])
        chain[k : k + 2] = [_product(arrays, chain[k], chain[k + 1])]
    return chain[0]


@dataclass(frozen=True, slots=True)
class _Shadow:
    """The axes of Blocks, without their numbers."""

    axes: frozenset[Axis]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]


def _first(chain: list[_Shadow]) -> int:
    """Which two neighbors to multiply first: the best order of a whole chain, as for plain matrices."""
    best: dict[tuple[int, int], tuple[int, _Shadow, int]] = {(k, k): (0, one, k) for k, one in enumerate(chain)}
    for length in range(1, len(chain)):
        for start in range(len(chain) - length):
            stop = start + length
            tried = []
            for middle in range(start, stop):
                (before, one, _), (after, other, _) = best[start, middle], best[middle + 1, stop]
                kept = (one.axes | other.axes) & frozenset(one.rows + other.columns)
                price = before + after + _size(tuple(one.axes | other.axes))
                tried.append((price, _Shadow(kept, one.rows, other.columns), middle))
            best[start, stop] = min(tried, key=lambda each: each[0])
    start, stop = 0, len(chain) - 1
    while stop - start > 1:
        middle = best[start, stop][2]
        start, stop = (start, middle) if middle > start else (middle + 1, stop)
    return start


def _product(arrays: Any, one: Blocks, other: Blocks) -> Blocks:
    """The columns of one have the names of the rows of the other."""
    kept = tuple(dict.fromkeys(one.rows + other.columns))
    kept = tuple(axis for axis in kept if axis in one.axes or axis in other.axes)
    letters = dict(zip(dict.fromkeys(one.axes + other.axes), map(chr, range(97, 123)), strict=False))
    written = ("".join(letters[axis] for axis in axes) for axes in (one.axes, other.axes, kept))
    array = arrays.contract("{},{}->{}".format(*written), one.array, other.array)
    return Blocks(array, kept, one.rows, other.columns)


def _matched(arrays: Any, one: Blocks, other: Blocks) -> list[Blocks]:
    """Both with the axes between them cut into the same lengths, and called the same on both sides."""
    if one.columns == other.rows:  # they are so already
        return [one, other]
    lengths = _common([n for _, n in one.columns], [n for _, n in other.rows])
    if lengths is None:  # a matrix it is, then
        one, other = (full(dense(arrays, each), *each.shape) for each in (one, other))
        lengths = [one.shape[1]]
    one, other = _cut(arrays, one, one.columns, lengths), _cut(arrays, other, other.rows, lengths)
    same = dict(zip(other.rows, one.columns, strict=True))
    # a diagonal of one that is a diagonal of the other too keeps its name; no two different axes get the same one
    renamed = tuple(tuple(same.get(axis, axis) for axis in axes) for axes in (other.axes, other.rows, other.columns))
    return [one, Blocks(other.array, *renamed)]


def _common(one: list[int], other: list[int]) -> list[int] | None:
    """Lengths that both lists of lengths are products of neighbors of."""
    a, b = [n for n in one if n != 1][::-1], [n for n in other if n != 1][::-1]
    found: list[int] = []
    while a and b:
        x, y = a.pop(), b.pop()
        small = min(x, y)
        if max(x, y) % small:
            return None
        found.append(small)
        if x > small:
            a.append(x // small)
        if y > small:
            b.append(y // small)
    return found if not a and not b else None


def _cut(arrays: Any, blocks: Blocks, axes: tuple[Axis, ...], lengths: list[int]) -> Blocks:
    """With some of its axes split so that together they have these lengths; axes of one go."""
    left = list(lengths)
    parts: dict[Axis, tuple[Axis, ...]] = {}
    for axis in axes:
        piece: list[int] = []
        while prod(piece) < axis[1]:
            piece.append(left.pop(0))
        parts[axis] = (axis,) if piece == [axis[1]] else _new(tuple(piece))

    def split(of: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(part for axis in of for part in parts.get(axis, (axis,)))

    array = arrays.reshape(blocks.array, tuple(n for _, n in split(blocks.axes)))
    return Blocks(array, split(blocks.axes), split(blocks.rows), split(blocks.columns))


def dense(arrays: Any, blocks: Blocks) -> Array:
    """The whole matrix, zeros beside the diagonals written out."""
    whole = (*blocks.rows, *blocks.columns)
    if len(set(whole)) == len(whole):  # no diagonals
        order = [blocks.axes.index(axis) for axis in whole]
        return arrays.reshape(arrays.permute(blocks.array, order), blocks.shape)
    return arrays.strided(blocks.shape, blocks.array, 0, _strides(blocks))


def add(arrays: Any, matrix: Array, blocks: Blocks) -> Array:
    """The sum of a matrix and these."""
    return matrix + dense(arrays, blocks)


def _strides(blocks: Blocks) -> tuple[int, ...]:
    """Numbers from one index of each axis to the next, in the whole matrix."""
    steps = dict.fromkeys((*blocks.rows, *blocks.columns), 0)
    step = 1
    for axis in reversed((*blocks.rows, *blocks.columns)):  # on a diagonal, one step goes down and to the right
        steps[axis] += step
        step *= axis[1]
    return tuple(steps[axis] for axis in blocks.axes)
