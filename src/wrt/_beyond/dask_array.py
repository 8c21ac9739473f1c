"""`J.dask()`: a dask array whose blocks are computed when and where they are needed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond.grid import grid_of
from wrt._beyond.needs import needs
from wrt._beyond.question import numpy_dtype
from wrt._beyond.solve import Region
from wrt._beyond.source import Live, Source, cannot_travel, source_of
from wrt._notation.derivative import Derivative


def dask_array(derivative: Derivative, chunks: Any = "auto") -> Any:
    """A dask array of the derivative's shape; nothing is computed.

    The blocks of a `wrt.Model` are computed by any scheduler. Those of live tensors stay in this process: dask's threads
    may ask for them, one at a time, and a scheduler with processes is refused.
    """
    arrays = needs("dask.array", "J.dask()")
    graphs = needs("dask.highlevelgraph", "J.dask()")
    if derivative._transposed:
        return _transposed(derivative, chunks)
    source = source_of(derivative)
    if isinstance(source, Live) and current_client() is not None:
        raise cannot_travel()
    with source.at_work():
        grid, dtype = grid_of(derivative, chunks), numpy_dtype(derivative)
    origin, name = f"wrt-model-{source.token}", f"wrt-{source.token}-{'x'.join(map(str, grid.largest))}"
    layer: dict[Any, Any] = {(name, *place): (computed, origin, bounds_of(region)) for place, region in grid.regions()}
    layer[origin] = source
    graph = graphs.HighLevelGraph.from_collections(name, layer)
    return arrays.Array(graph, name, grid.chunks, meta=np.empty((0,) * len(grid.shape), dtype=dtype))


def computed(source: Source, bounds: tuple[tuple[int, int], ...]) -> npt.NDArray[Any]:
    """One block; what a worker runs."""
    return source.block(region_of(bounds))


def region_of(bounds: tuple[tuple[int, int], ...]) -> Region:
    return tuple(slice(*pair) for pair in bounds)


def bounds_of(region: Region) -> tuple[tuple[int, int], ...]:
    return tuple((one.start, one.stop) for one in region)


def _transposed(derivative: Derivative, chunks: Any) -> Any:
    """x's axes first: the blocks of the map itself, turned."""
    y, x = len(derivative.rows.shape), len(derivative.ask.x.shape)
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
