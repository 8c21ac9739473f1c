"""`J.to_zarr(path)`: an answer larger than memory, block by block to disk, by this process or by a cluster."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from wrt._beyond import needs
from wrt._beyond.dask_array import Grid, grid_of
from wrt._beyond.pack import fingerprint
from wrt._beyond.question import numpy_dtype
from wrt._beyond.solve import Region
from wrt._beyond.source import Source, source_of
from wrt._beyond.store import Store, Stored, about, another_question, write
from wrt._beyond.thresholds import KEPT_BYTES
from wrt._beyond.workers import Note, note, perform
from wrt._core.files import foreign, sync
from wrt._core.thresholds import BLOCK_BYTES
from wrt._notation.derivative import Derivative
from wrt._run.memory import call_bytes
from wrt.errors import WrongQuery

Layout = Literal["dense", "csr"]
NAMES = ("data", "indices", "indptr")


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
    words = {"question": str(source), **shapes, "budget": _budget(known, memory)}
    array = store.prepare(source.identity, grid, dtype, words)
    there = store.present(array)
    jobs = [(store, region) for place, region in grid.regions() if place not in there]
    size = " x ".join(map(str, grid.shape))
    done = perform(write_block, source, jobs, what=f"{len(jobs)} blocks of a {size} Jacobian", client=client)
    left = 0 if done.finished == len(jobs) else len(grid) - len(store.present(array))
    done.refuse_missing(left, len(grid), path, lambda number: f"block {_words(jobs[number][1])}")
    return Stored(path, array, grid.shape, len(grid), len(jobs), time.perf_counter() - begun, done.workers)


def write_block(source: Source, store: Store, region: Region) -> Note:
    """Compute one block and write it; what a worker runs."""
    numbers = source.block(region)
    write(store.open(), region, numbers)
    with source.at_work():
        return note(source.device, bytes=numbers.nbytes, how=source.solver().how)


def _budget(known: Any, memory: int | None) -> int:
    """What was kept in memory when the answer was begun; otherwise half of what may be used."""
    held = None if known is None else about(known).get("budget")
    return held if isinstance(held, int) else KEPT_BYTES if memory is None else min(KEPT_BYTES, memory // 2)


def _grid(derivative: Derivative, known: Any, chunks: Any, memory: int | None) -> Grid:
    """The blocks of the array that is there already, or else the ones asked for."""
    if isinstance(chunks, str) and known is not None and known.shape == derivative.shape:
        chunks = tuple(known.chunks)
    return grid_of(derivative, chunks, BLOCK_BYTES if memory is None else _window(memory // 2, call_bytes(derivative.ask)))


def _window(memory: int, call: int) -> int:
    """Bytes of a block, so that its copies and one call of the engine fit.

    Three copies of a block are alive at once: swept, encoded, on its way to the disk. A call takes up to 2.5 times what is
    expected of it; a block that is computed in one call takes 14 times its bytes, all in all (both measured).

    >>> _window(70 * 2**20, 10 * 2**20) // 2**20, _window(14 * 2**20, 10 * 2**20) // 2**20
    (15, 1)
    """
    left = memory - int(2.5 * call)
    return max(1, left // 3 if left > memory // 4 else memory // 14)


def _words(region: Region) -> str:
    return "[" + ", ".join(f"{one.start}:{one.stop}" for one in region) + "]"


def write_csr(derivative: Derivative, source: Source, store: Store) -> Stored:
    """The nonzeros, swept together where a structure shows: `data`, `indices` and `indptr` of compressed rows.

    The names and attributes are those that anndata uses for its sparse matrices, so other programs can read them. In a
    folder all of it appears at once, when it is complete; in any other store the note about it is written last.
    """
    zarr = needs("zarr", "an answer on disk")
    begun = time.perf_counter()
    group: Any = store.known("group")
    held = {} if group is None else about(group)
    if held and held["token"] != source.identity:
        raise another_question(store.place, held)
    try:
        fits = group is None or held["seal"] == fingerprint(held["token"], *(group[name][:] for name in NAMES))
    except Exception:  # an array is gone, or cannot be read
        fits = False
    if not fits:
        raise foreign(store.place, "its numbers are not those that wrt wrote")
    if not held:
        with source.at_work():
            matrix = derivative.sparse()
        with _appears(store) as place:
            group = zarr.open_group(place, mode="a")
            for name in NAMES:
                _write(zarr, group, name, getattr(matrix, name))
            sealed = fingerprint(source.identity, *(getattr(matrix, name) for name in NAMES))
            words = {"token": source.identity, "question": str(source), "seal": sealed}
            shape = list(matrix.shape)
            group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape, "wrt": words})
        group = zarr.open_group(store.place, mode="r+")
    here = note(source.device)
    seconds = time.perf_counter() - begun
    return Stored(store.place, group, tuple(group.attrs["shape"]), 1, 0 if held else 1, seconds, {here.worker: here})



@contextmanager
def _appears(store: Store) -> Iterator[Any]:
    """Where to write: for a folder another one beside it, which takes its place at the end, on the disk by then."""
    if store.folder is None:
        yield store.place
        return
    beside = store.folder.with_name(f".{store.folder.name}.{uuid.uuid4().hex}.partial")
    try:
        yield str(beside)
        sync(*beside.rglob("*"), beside)
        beside.rename(store.folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    sync(store.folder.parent)


def _write(zarr: Any, group: Any, name: str, numbers: Any) -> None:
    pieces = (max(1, min(2**20, len(numbers))),)
    codecs = [zarr.codecs.ZstdCodec(level=1)] if name != "data" else None
    made = group.create_array(
        name, shape=numbers.shape, chunks=pieces, dtype=numbers.dtype, compressors=codecs, overwrite=True
    )
    made[...] = numbers
