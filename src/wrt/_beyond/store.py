"""A zarr array that remembers whose answer it holds and which of its blocks are there.

A block is written whole or not at all, with a checksum; one that was never written reads as NaN, never as a zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond.grid import Grid
from wrt._beyond.needs import needs
from wrt._beyond.solve import Region
from wrt._core.index import Shape
from wrt.errors import WrongQuery, WrongShape

WRITTEN_WHOLE = {"write_empty_chunks": True}  # a block of zeros is an answer too


@dataclass(frozen=True, slots=True)
class Store:
    """Where an answer is kept: a folder, or anything zarr takes as a store."""

    place: Any

    @classmethod
    def at(cls, path: Any) -> Store:
        return cls(str(path) if isinstance(path, Path) else path)

    def opened(self) -> Any:
        """The zarr array, to be read and written."""
        return needs("zarr", "an answer on disk").open_array(self.place, mode="r+", config=WRITTEN_WHOLE)

    def known(self) -> Any | None:
        """The array that is there already; None where there is none."""
        zarr = needs("zarr", "an answer on disk")
        try:
            return zarr.open_array(self.place, mode="r+", config=WRITTEN_WHOLE)
        except (FileNotFoundError, zarr.errors.NodeNotFoundError):
            return None

    def prepared(self, token: str, grid: Grid, dtype: np.dtype[Any], about: dict[str, Any]) -> Any:
        """The array for this question: the one that is there, or a new one whose blocks are all missing."""
        known = self.known()
        if known is None:
            return self._created(token, grid, dtype, about)
        held = known.attrs.get("wrt", {})
        if held.get("token") != token or known.shape != grid.shape:
            raise another_question(self.place, held)
        if tuple(known.chunks) != grid.largest:
            raise WrongShape(
                f"{self.place} was begun in blocks of {tuple(known.chunks)}",
                f"now blocks of {grid.largest} are asked for",
                'write chunks="auto" to go on with its blocks, or give another path',
            )
        return known

    def _created(self, token: str, grid: Grid, dtype: np.dtype[Any], about: dict[str, Any]) -> Any:
        zarr = needs("zarr", "an answer on disk")
        if not grid.regular:
            raise WrongShape(
                "zarr keeps blocks of one size", f"chunks={grid.chunks} are not", "give one size for each axis"
            )
        return zarr.create_array(
            self.place,
            shape=grid.shape,
            chunks=tuple(max(1, size) for size in grid.largest),
            dtype=dtype,
            compressors=[zarr.codecs.Crc32cCodec()],  # derivatives hardly compress; a damaged block must be noticed
            fill_value=math.nan if dtype.kind in "fc" else 0,
            config=WRITTEN_WHOLE,
            attributes={"wrt": {"token": token, **about}},
        )

    def present(self, array: Any) -> set[Shape]:
        """Places of the blocks that are there."""
        from zarr.core.sync import sync  # zarr's stores are asynchronous, also for its own synchronous arrays

        async def listed() -> list[str]:
            return [key async for key in array.store_path.store.list_prefix(array.store_path.path)]

        prefix = f"{array.store_path.path}/" if array.store_path.path else ""
        found = set()
        for key in sync(listed()):
            parts = key.removeprefix(prefix).split("/")
            if parts[0] == "c" and all(part.isdigit() for part in parts[1:]):  # not a half-written one
                found.add(tuple(map(int, parts[1:])))
        return found


def another_question(place: Any, held: dict[str, Any]) -> WrongQuery:
    """What is there must not be mixed with another answer."""
    about = held.get("question")
    return WrongQuery(
        f"{place} holds the answer to another question",
        f"it was written for {about}, for another model, state or input" if about else "wrt did not write it",
        "give another path, or remove it",
    )


def written(array: Any, region: Region, numbers: npt.NDArray[Any]) -> None:
    """One block, whole."""
    array[region if region else ...] = numbers
