"""`J.to_zarr(path)`: an answer larger than memory, block by block to disk, by this process or by a cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal

from wrt._beyond.crew import Note, noted, perform, refuse_unfinished
from wrt._beyond.dask_array import bounds_of, region_of
from wrt._beyond.grid import TARGET, Grid, grid_of
from wrt._beyond.question import numpy_dtype
from wrt._beyond.source import BUDGET, Source, source_of
from wrt._beyond.sparse_store import write_csr
from wrt._beyond.store import Store, written
from wrt._beyond.stored import Stored
from wrt._notation.derivative import Derivative
from wrt._run.chunk import chunk_bytes
from wrt.errors import WrongQuery

Layout = Literal["dense", "csr"]
COPIES = 3  # of a block that are alive at once: swept, encoded, on its way to the disk
CALLS = 2.5  # times what one call of the engine is expected to take (measured)
ONE_CALL = 14  # times a block that is computed in one call, all in all


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
    store = Store.at(path)
    known = store.known() if layout == "dense" else None
    source = source_of(derivative, _budget(known, memory))
    if layout == "csr":
        return write_csr(derivative, source, store)
    begun = time.perf_counter()
    with source.at_work():
        grid, dtype = _grid(derivative, known, chunks, memory), numpy_dtype(derivative)
    y = derivative.rows.shape
    shapes = {"y": list(y), "x": list(derivative.shape[len(y) :])}
    about = {"question": str(source), **shapes, "budget": _budget(known, memory)}
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
    with source.at_work():
        return replace(noted(source.device), bytes=numbers.nbytes, how=source.solver().how)


def _budget(known: Any, memory: int | None) -> int:
    """What was kept in memory when the answer was begun; otherwise half of what may be used."""
    held: Any = {} if known is None else known.attrs.get("wrt", {})
    return int(held.get("budget", BUDGET if memory is None else min(BUDGET, memory // 2)))


def _grid(derivative: Derivative, known: Any, chunks: Any, memory: int | None) -> Grid:
    """The blocks of the array that is there already, or else the ones asked for."""
    if isinstance(chunks, str) and known is not None and known.shape == derivative.shape:
        chunks = tuple(known.chunks)
    return grid_of(derivative, chunks, TARGET if memory is None else _window(memory // 2, chunk_bytes(derivative.ask)))


def _window(memory: int, call: int) -> int:
    """Bytes of a block, so that its copies and one call of the engine fit.

    >>> _window(70 * 2**20, 10 * 2**20) // 2**20, _window(14 * 2**20, 10 * 2**20) // 2**20
    (15, 1)
    """
    left = memory - int(CALLS * call)
    return max(1, left // COPIES if left > memory // 4 else memory // ONE_CALL)


def _named(bounds: tuple[tuple[int, int], ...]) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in bounds) + "]"
