"""`J.dask()`: a dask array whose blocks are computed when and where they are needed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond.fingerprint import fingerprint
from wrt._beyond.grid import grid_of
from wrt._beyond.needs import needs
from wrt._beyond.question import numpy_dtype
from wrt._beyond.solve import Region
from wrt._beyond.source import Live, Source, cannot_travel, source_of
from wrt._core.index import Shape
from wrt._notation.derivative import Derivative


def dask_array(derivative: Derivative, chunks: Any = "auto") -> Any:
    """A dask array of the derivative's shape; nothing is computed.

    The blocks of a `wrt.Model` are computed by any scheduler. Those of live tensors stay in this process: dask's threads
    may ask for them, one at a time, and a scheduler with processes is refused.
    """
    arrays = needs("dask.array", "J.dask()")
    if derivative._transposed:
        return _transposed(derivative, chunks)
    source = source_of(derivative)
    if isinstance(source, Live) and current_client() is not None:
        raise cannot_travel()
    with source.at_work():
        grid, dtype = grid_of(derivative, chunks), numpy_dtype(derivative)
    lazy = Blocks(source, grid.shape, dtype)
    name = f"wrt-{fingerprint(source.token, grid.chunks)}"
    meta = np.empty((0,) * len(grid.shape), dtype=dtype)
    return arrays.from_array(lazy, chunks=grid.chunks, name=name, asarray=False, meta=meta, getitem=computed)


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


def computed(blocks: Blocks, region: Region, *_: Any, **__: Any) -> npt.NDArray[Any]:
    """One block; what a worker runs. Not one of dask's own getters: those it may ask for less than a block."""
    return blocks[region]


def region_of(bounds: tuple[tuple[int, int], ...]) -> Region:
    return tuple(slice(*pair) for pair in bounds)


def bounds_of(region: Region) -> tuple[tuple[int, int], ...]:
    return tuple((one.start, one.stop) for one in region)


def _transposed(derivative: Derivative, chunks: Any) -> Any:
    """x's axes first: the blocks of the map itself, turned."""
    y, x = len(derivative.rows.shape), len(derivative.shape) - len(derivative.rows.shape)
    if isinstance(chunks, tuple) and len(chunks) == x + y:
        chunks = chunks[x:] + chunks[:x]
    return dask_array(derivative.T, chunks).transpose((*range(y, y + x), *range(y)))


def current_client() -> Any:
    """The dask.distributed client of this program, if it has one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None
