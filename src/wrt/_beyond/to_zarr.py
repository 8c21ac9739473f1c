"""`J.to_zarr(path)`: an answer larger than memory, block by block to disk, by this process or by a cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal

from wrt._beyond.crew import Note, noted, perform, refuse_unfinished
from wrt._beyond.dask_array import bounds_of, region_of
from wrt._beyond.grid import TARGET, Grid, grid_of
from wrt._beyond.question import numpy_dtype
from wrt._beyond.source import Source, source_of
from wrt._beyond.sparse_store import write_csr
from wrt._beyond.store import Store, written
from wrt._beyond.stored import Stored
from wrt._notation.derivative import Derivative
from wrt.errors import WrongQuery

Layout = Literal["dense", "csr"]
COPIES = 5  # of a block that are alive at once: swept, checked, encoded, on its way to the disk


def to_zarr(
    derivative: Derivative, path: Any, *, chunks: Any = "auto", memory: int | None = None, layout: Layout = "dense",
    client: Any = "auto",
) -> Stored:  # fmt: skip
    """Write the Jacobian to a zarr array; asked again, only the blocks that are not there are computed."""
    if layout not in ("dense", "csr"):
        raise WrongQuery(f"layout={layout!r}", "a Jacobian is stored dense or by its nonzeros", 'write "dense" or "csr"')
    if derivative._transposed:
        raise WrongQuery(
            "J.T.to_zarr(...)", "blocks are written in the order y, then x", "write J.to_zarr(path), and read it transposed"
        )
    source, store = source_of(derivative), Store.at(path)
    if layout == "csr":
        return write_csr(derivative, source, store)
    begun = time.perf_counter()
    with source.at_work():
        grid, dtype = _grid(derivative, store, chunks, memory), numpy_dtype(derivative)
    about = {"question": str(source), "y": list(derivative.rows.shape), "x": list(derivative.ask.x.shape)}
    array = store.prepared(source.identity, grid, dtype, about)
    there = store.present(array)
    missing = [bounds_of(region) for place, region in grid.regions() if place not in there]
    size = " x ".join(map(str, grid.shape))
    jobs = [(store, bounds) for bounds in missing]
    done = perform(write_block, source, jobs, what=f"{len(jobs)} blocks of a {size} Jacobian", client=client)
    left = 0 if done.finished == len(jobs) else len(grid) - len(store.present(array))
    refuse_unfinished(done, left, len(grid), path, lambda number: f"block {_named(missing[number])}")
    return Stored(path, array, grid.shape, len(grid), len(jobs), time.perf_counter() - begun, done.workers)


def write_block(source: Source, store: Store, bounds: tuple[tuple[int, int], ...]) -> Note:
    """Compute one block and write it; what a worker runs."""
    numbers = source.block(region_of(bounds))
    written(store.opened(), region_of(bounds), numbers)
    return replace(noted(), bytes=numbers.nbytes)


def _grid(derivative: Derivative, store: Store, chunks: Any, memory: int | None) -> Grid:
    """The blocks of the array that is there already, or else the ones asked for."""
    known = store.known() if isinstance(chunks, str) else None
    if known is not None and known.shape == derivative.shape:
        chunks = tuple(known.chunks)
    return grid_of(derivative, chunks, TARGET if memory is None else max(1, memory // COPIES))


def _named(bounds: tuple[tuple[int, int], ...]) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in bounds) + "]"
