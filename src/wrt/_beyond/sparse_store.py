"""The nonzeros of a Jacobian in zarr: `data`, `indices` and `indptr` of a compressed-rows matrix.

The names and attributes are those that anndata uses for its sparse matrices, so other programs can read them.
"""

from __future__ import annotations

import time
from typing import Any

from wrt._beyond.crew import noted
from wrt._beyond.needs import needs
from wrt._beyond.source import Source
from wrt._beyond.store import Store, another_question
from wrt._beyond.stored import Stored
from wrt._notation.derivative import Derivative

PIECE = 2**20  # nonzeros in one chunk on disk


def write_csr(derivative: Derivative, source: Source, store: Store) -> Stored:
    """The nonzeros, swept together where a structure shows; `complete` is written last."""
    zarr = needs("zarr", "an answer on disk")
    begun = time.perf_counter()
    group = zarr.open_group(store.place, mode="a")
    held = group.attrs.get("wrt", {})
    if held and held.get("token") != source.identity:
        raise another_question(store.place, held)
    there = bool(held.get("complete"))
    if not there:
        group.attrs["wrt"] = {"token": source.identity, "question": str(source), "complete": False}
        with source.at_work():
            matrix = derivative.sparse()
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(matrix.shape)})
        for name in ("data", "indices", "indptr"):
            _write(zarr, group, name, getattr(matrix, name))
        group.attrs["wrt"] = {**group.attrs["wrt"], "complete": True}
    here = noted(source.device)
    shape = tuple(group.attrs["shape"])
    return Stored(store.place, group, shape, 1, 0 if there else 1, time.perf_counter() - begun, {here.worker: here})


def _write(zarr: Any, group: Any, name: str, numbers: Any) -> None:
    pieces = (max(1, min(PIECE, len(numbers))),)
    codecs = [zarr.codecs.ZstdCodec(level=1)] if name != "data" else None
    made = group.create_array(
        name, shape=numbers.shape, chunks=pieces, dtype=numbers.dtype, compressors=codecs, overwrite=True
    )
    made[...] = numbers
