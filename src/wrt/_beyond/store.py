"""Answers on disk: in a zarr array, block by block, or as a parquet table, batch by batch.

Both remember whose answer they hold and which parts of it are there. A part is written whole or not at all; a block of
zarr that was never written reads as NaN, never as a zero.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond import needs
from wrt._beyond.dask_array import Grid
from wrt._beyond.solve import Region
from wrt._beyond.workers import Note
from wrt._core.index import Shape
from wrt._run.memory import words
from wrt.errors import WrongQuery, WrongShape


@dataclass(frozen=True, slots=True, repr=False)
class Stored:
    """`array` is the zarr array (for nonzeros the group); the rest tells what was computed now, and by whom."""

    path: Any
    array: Any
    shape: Shape
    blocks: int
    computed: int
    seconds: float
    workers: dict[str, Note] = field(default_factory=dict)

    @property
    def found(self) -> int:
        """Blocks that were there already."""
        return self.blocks - self.computed

    @property
    def how(self) -> str:
        """In which way blocks were computed; empty where none was."""
        return next((note.how for note in self.workers.values() if note.how), "")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.array[...], dtype=dtype)

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape)) or "one number"
        lines = [
            f"Stored  {size} in {self.blocks} blocks at {self.path}",
            f"  {self.computed} computed in {self.seconds:.1f} s, {self.found} were there already",
        ]
        lines += [f"  {self.how}"] if self.how else []
        for name, note in sorted(self.workers.items()):
            device = f", computing on {note.device}" if note.device else ""
            lines.append(f"  peak memory of {name}: {words(note.peak)}{device}")
        return "\n".join(lines)


CONFIG = {"write_empty_chunks": True}  # a block of zeros is an answer too


@dataclass(frozen=True, slots=True)
class Store:
    """Where an answer is kept: a folder, or anything zarr takes as a store."""

    place: Any

    @classmethod
    def at(cls, path: Any) -> Store:
        return cls(str(path) if isinstance(path, Path) else path)

    def open(self) -> Any:
        """The zarr array, to be read and written."""
        return needs("zarr", "an answer on disk").open_array(self.place, mode="r+", config=CONFIG)

    def known(self) -> Any | None:
        """The array that is there already; None where there is none."""
        zarr = needs("zarr", "an answer on disk")
        try:
            return zarr.open_array(self.place, mode="r+", config=CONFIG)
        except (FileNotFoundError, zarr.errors.NodeNotFoundError):
            return None

    def prepare(self, token: str, grid: Grid, dtype: np.dtype[Any], about: dict[str, Any]) -> Any:
        """The array for this question: the one that is there, or a new one whose blocks are all missing."""
        known = self.known()
        if known is None:
            return self._create(token, grid, dtype, about)
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

    def _create(self, token: str, grid: Grid, dtype: np.dtype[Any], about: dict[str, Any]) -> Any:
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
            config=CONFIG,
            attributes={"wrt": {"token": token, **about}},
        )

    def present(self, array: Any) -> set[Shape]:
        """Places of the blocks that are there."""
        from zarr.core.sync import sync  # zarr's stores are asynchronous, also for its own synchronous arrays

        at = array.store_path

        async def keys() -> list[str]:
            return [key async for key in at.store.list_prefix(at.path)]

        parts = [key.removeprefix(f"{at.path}/" if at.path else "").split("/") for key in sync(keys())]
        whole = (one[1:] for one in parts if one[0] == "c" and all(part.isdigit() for part in one[1:]))  # none half-written
        return {tuple(map(int, one)) for one in whole}


def another_question(place: Any, held: dict[str, Any]) -> WrongQuery:
    """What is there must not be mixed with another answer."""
    about = held.get("question")
    return WrongQuery(
        f"{place} holds the answer to another question",
        f"it was written for {about}, for another model, state or input" if about else "wrt did not write it",
        "give another path, or remove it",
    )


def write(array: Any, region: Region, numbers: npt.NDArray[Any]) -> None:
    """One block, whole."""
    array[region if region else ...] = numbers


@dataclass(frozen=True, slots=True)
class Parts:
    """A folder of parquet files, one for each batch; `columns` names the numbers of one sample, or () for one of lists."""

    path: Path
    columns: tuple[str, ...]

    def prepare(self, token: str, size: int) -> int:
        """The folder for these answers; gives the batch size it was begun with."""
        needs("pyarrow.parquet", "a parquet file", "parquet")
        about = self.path / "_wrt.json"
        if about.exists():
            held = json.loads(about.read_text())
            if held["token"] != token:
                raise another_question(self.path, held)
            return int(held["batch"])
        self.path.mkdir(parents=True, exist_ok=True)
        _write_whole(about, json.dumps({"token": token, "batch": size, "question": "wrt.map"}).encode())
        return size

    def there(self) -> set[int]:
        """First samples of the batches that are there."""
        return {int(one.stem.split("-")[1]) for one in self.path.glob("part-*.parquet")}

    def write(self, start: int, stop: int, numbers: npt.NDArray[Any]) -> None:
        pyarrow, parquet = (needs(one, "a parquet file", "parquet") for one in ("pyarrow", "pyarrow.parquet"))
        flat = numbers.reshape(stop - start, -1)
        table: dict[str, Any] = {"sample": np.arange(start, stop)}
        if self.columns:
            table |= {name: flat[:, k] for k, name in enumerate(self.columns)}
        else:
            table["value"] = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat.reshape(-1)), flat.shape[1])
        buffer = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table(table), buffer)
        _write_whole(self.path / f"part-{start:012d}.parquet", buffer.getvalue().to_pybytes())


def _write_whole(path: Path, content: bytes) -> None:
    """A file that is there is complete, whenever the writer was killed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)
