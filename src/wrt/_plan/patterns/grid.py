"""A pattern that is a product of axes as tables of a few hundred numbers, however many entries it has."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape, row_major
from wrt._core.pattern import NOBODY, Compression, Masks, Tables, Way
from wrt._plan.patterns.links import Link
from wrt._plan.patterns.structure import Structure

Number = TypeVar("Number", np.int64, np.bool_)


def gridded(structure: Structure, way: Way) -> Compression | None:
    """The compression of a product of windows; None where an axis is followed twice, so that it is no product."""
    links = structure.links
    if len({link.y for link in links}) < len(links):
        return None
    swept, read = (structure.y, structure.x) if way == "pull" else (structure.x, structure.y)
    partner = {(link.y if way == "pull" else link.x): link for link in links}
    periods = structure.periods(way)
    rank = len(swept) + len(read)
    owners: list[Positions] = []
    owned: list[npt.NDArray[np.bool_]] = []
    for axis, (step, repeat) in enumerate(zip(row_major(swept), periods, strict=True)):
        if axis not in partner:
            owners.append(_laid(np.arange(repeat) * step, rank, axis))
            continue
        link = partner[axis]
        other = link.x if way == "pull" else link.y
        found = _owners(link, repeat, structure.y[link.y], structure.x[link.x], way)
        if found is None:
            return None
        line, held = found  # (repeat, length of the other axis)
        spread = [1] * rank
        spread[axis], spread[len(swept) + other] = line.shape
        owners.append((line * step).reshape(spread))
        if not held.all():
            owned.append(held.reshape(spread))
    owned.extend(_kept(structure, way, rank))
    passes = prod(periods)
    return Compression(
        way, (prod(structure.y), prod(structure.x)), passes, swept, (*periods, *read),
        _colors(swept, periods), tuple(owners), tuple(owned),
    )  # fmt: skip


def _kept(structure: Structure, way: Way, rank: int) -> Masks:
    """Indices of x's other axes that no row touches."""
    found: list[npt.NDArray[np.bool_]] = []
    for axis, kept in structure.kept.items():
        if len(kept) < structure.x[axis]:
            touched = np.zeros(structure.x[axis], dtype=bool)
            touched[kept] = True
            found.append(_laid(touched, rank, axis + (len(structure.y) if way == "pull" else 0)))
    return tuple(found)


def _laid(vector: npt.NDArray[Number], rank: int, axis: int) -> npt.NDArray[Number]:
    """A vector along one axis of many."""
    return vector.reshape((1,) * axis + (-1,) + (1,) * (rank - axis - 1))


def _in_turn(repeat: int, length: int) -> Positions:
    """0, 1, ... up to the period, again and again: sooner there than `arange(length) % repeat`."""
    turns = np.empty((-(-length // repeat), repeat), dtype=np.int64)
    turns[:] = np.arange(repeat)
    return turns.reshape(-1)[:length]


def _colors(lines: Shape, periods: list[int]) -> Tables:
    steps = row_major(tuple(periods))
    return tuple(
        _laid(_in_turn(repeat, length) * step, len(lines), axis)
        for axis, (length, repeat, step) in enumerate(zip(lines, periods, steps, strict=True))
    )


def _owners(
    link: Link, repeat: int, of_y: int, of_x: int, way: Way
) -> tuple[Positions, npt.NDArray[np.bool_]] | None:
    """(line, whether it has an entry there) by (color, index of the other axis); None where two lines would meet."""
    lines, across = (of_y, of_x) if way == "pull" else (of_x, of_y)
    owner = np.full(repeat * across, NOBODY, dtype=np.int64)
    color = _in_turn(repeat, lines) * across
    found: list[tuple[Positions, Positions]] = []
    every = np.arange(of_y)
    for some, columns in _touched(link, every, of_x):
        rows = every[some]
        line, spots = (rows, color[some] + columns) if way == "pull" else (columns, color[columns] + rows)
        owner[spots] = line
        found.append((spots, line))
    held = owner != NOBODY
    twice = np.count_nonzero(held) < sum(len(spots) for spots, _ in found)  # by one line, perhaps
    if twice and any(np.any(owner[spots] != line) for spots, line in found):
        return None
    shape = (repeat, across)
    nobodys = np.arange(repeat)[:, None]  # a line of this color where nobody has an entry
    return np.where(held.reshape(shape), owner.reshape(shape), nobodys), held.reshape(shape)


def _touched(link: Link, rows: Positions, of_x: int) -> Iterator[tuple[slice, Positions]]:
    """For each offset, the rows that touch something within x, and what they touch."""
    base = link.base(rows)
    for offset in link.offsets:
        if link.wrap:
            yield slice(None), (base + offset) % of_x
        else:
            some = link.inside(offset, len(rows), of_x)
            yield some, base[some] + offset
