"""`J.dask()`: a dask array whose blocks are computed when and where they are needed, and how a Jacobian is cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond import needs
from wrt._beyond.pack import fingerprint
from wrt._beyond.question import halves, numpy_dtype
from wrt._beyond.solve import Region
from wrt._beyond.source import Live, Source, cannot_travel, source_of
from wrt._beyond.workers import client_of
from wrt._core.index import Shape
from wrt._core.thresholds import BLOCK_BYTES
from wrt._notation.derivative import Derivative
from wrt.errors import WrongShape


def dask_array(derivative: Derivative, chunks: Any = "auto") -> Any:
    """A dask array of the derivative's shape; nothing is computed.

    The blocks of a `wrt.Model` are computed by any scheduler. Those of live tensors stay in this process: dask's threads
    may ask for them, one at a time, and a scheduler with processes is refused.
    """
    arrays = needs("dask.array", "J.dask()")
    if derivative._transposed:
        return _transposed(derivative, chunks)
    source = source_of(derivative)
    if isinstance(source, Live) and client_of("auto") is not None:
        raise cannot_travel()
    with source.at_work():
        grid, dtype = grid_of(derivative, chunks), numpy_dtype(derivative)
    lazy = Blocks(source, grid.shape, dtype)
    name = f"wrt-{fingerprint(source.token, grid.chunks)}"
    meta = np.empty((0,) * len(grid.shape), dtype=dtype)
    return arrays.from_array(lazy, chunks=grid.chunks, name=name, asarray=False, meta=meta, getitem=_compute)


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """What dask takes for an array: a shape, and a source that is one key of the graph, sent to each worker once."""

    source: Source
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, region: Region) -> npt.NDArray[Any]:
        return self.source.block(region)


def _compute(blocks: Blocks, region: Region, *_: Any, **__: Any) -> npt.NDArray[Any]:
    """One block; what a worker runs. Not one of dask's own getters: those it may ask for less than a block."""
    return blocks[region]


def _transposed(derivative: Derivative, chunks: Any) -> Any:
    """x's axes first: the blocks of the map itself, turned."""
    y, x = len(derivative.rows.shape), len(derivative.shape) - len(derivative.rows.shape)
    if isinstance(chunks, tuple) and len(chunks) == x + y:
        chunks = chunks[x:] + chunks[:x]
    return dask_array(derivative.T, chunks).transpose((*range(y, y + x), *range(y)))


Chunks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """The blocks of a shape: their sizes along every axis, as dask writes them."""

    shape: Shape
    chunks: Chunks

    @property
    def counts(self) -> Shape:
        return tuple(len(sizes) for sizes in self.chunks)

    def __len__(self) -> int:
        return math.prod(self.counts)

    @property
    def largest(self) -> Shape:
        """The shape of a full block."""
        return tuple(max(sizes, default=0) for sizes in self.chunks)

    def regions(self) -> Iterator[tuple[Shape, Region]]:
        """Every block: its place in the grid, and the slices it is."""
        edges = [[0, *accumulate(sizes)] for sizes in self.chunks]
        for place in product(*(range(count) for count in self.counts)):
            yield place, tuple(slice(edges[k][i], edges[k][i + 1]) for k, i in enumerate(place))

    @property
    def regular(self) -> bool:
        """Whether all blocks but the last of every axis have one size, as zarr wants it."""
        return all(len(set(sizes[:-1])) <= 1 and (len(sizes) < 2 or sizes[-1] <= sizes[0]) for sizes in self.chunks)


def grid_of(derivative: Derivative, chunks: Any = "auto", target: int = BLOCK_BYTES) -> Grid:
    """The blocks that were asked for; "auto" keeps the side whole along which a sweep returns everything at once."""
    normalize = needs("dask.array.core", "J.dask() and J.to_zarr()").normalize_chunks
    shape, dtype = derivative.shape, numpy_dtype(derivative)
    if isinstance(chunks, str) and chunks == "auto":
        chunks = _automatic(derivative, target, dtype.itemsize)
    try:
        found = normalize(chunks, shape=shape, limit=target, dtype=dtype)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise WrongShape(
            f"chunks={chunks!r} do not fit a derivative of shape {shape}",
            str(error).splitlines()[0],
            f'give one size for each of its {len(shape)} axes, -1 for a whole axis, or "auto"',
        ) from None
    return Grid(shape, tuple(tuple(int(size) for size in sizes) for sizes in found))


def _automatic(derivative: Derivative, target: int, item: int) -> tuple[int, ...]:
    """Bands of rows where there are fewer of them than columns, else bands of columns; cut across where one is too long."""
    y, x = halves(derivative)
    m, n = math.prod(y), math.prod(x)
    if m <= n or not _pushes(derivative):
        rows = _band(y, target // max(1, n * item))
        return rows + _band(x, target // max(1, math.prod(rows) * item))
    columns = _band(x, target // max(1, m * item))
    return _band(y, target // max(1, math.prod(columns) * item)) + columns


def _pushes(derivative: Derivative) -> bool:
    """Whether columns can be swept at all: otherwise every band of them would cost all rows."""
    ask = derivative.ask
    record = ask.y.record
    if derivative.order > 1:
        return False  # of a gradient that is there on the workers alone
    if not all(map(record.has_history, (ask.y, *ask.x.values))):
        return False
    return record.engine(ask.y, ask.x.values).can_push


def _band(shape: Shape, cells: int) -> tuple[int, ...]:
    """The largest band of consecutive elements with at most so many of them: inner axes whole, outer ones cut.

    >>> _band((10, 4, 5), 45)
    (2, 4, 5)
    """
    sizes: list[int] = []
    left = max(1, cells)
    for length in reversed(shape):
        size = max(1, min(length, left))
        sizes.append(size)
        left //= size
    return tuple(reversed(sizes))
