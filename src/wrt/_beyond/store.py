"""Answers on disk: in a zarr array, block by block, or as a parquet table, batch by batch.

Both remember whose answer they hold and which parts of it are there. A part is written whole or not at all, and is known
again by its seal, a digest of the question, the place and the numbers: what has another one was written by somebody else.
A block of zarr that was never written reads as NaN, never as a zero.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond import needs
from wrt._beyond.dask_array import Grid
from wrt._beyond.pack import fingerprint
from wrt._beyond.solve import Region
from wrt._beyond.workers import Note
from wrt._core.files import foreign, is_free, read_regular, sync, write_whole
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

    @property
    def folder(self) -> Path | None:
        """Where it is on this machine's disk; None for any other store."""
        return Path(self.place) if isinstance(self.place, str) and "://" not in self.place else None

    def known(self, kind: str = "array") -> Any | None:
        """The array (or group) of wrt that is there already; None where there is nothing."""
        zarr = needs("zarr", "an answer on disk")
        for one in self.folder.rglob("*") if self.folder is not None else ():
            if not (one.is_file() or one.is_dir()):  # a pipe would keep its reader waiting
                raise foreign(one, "it is no file that wrt writes")
        try:
            opened = getattr(zarr, f"open_{kind}")(self.place, mode="r+", **({"config": CONFIG} if kind == "array" else {}))
        except Exception as error:  # as many kinds of them as there are ways to be something else
            if self._empty():
                return None
            raise foreign(self.place, f"it holds no {kind} of wrt ({type(error).__name__})") from None
        if not about(opened) and (self.folder is not None or kind == "array" or len(list(opened.keys()))):
            raise foreign(self.place)
        return opened

    def _empty(self) -> bool:
        folder = self.folder
        if folder is None:
            with suppress(Exception):
                return needs("zarr", "an answer on disk").open(self.place, mode="r") is None
        return folder is None or is_free(folder)

    def prepare(self, token: str, grid: Grid, dtype: np.dtype[Any], words: dict[str, Any]) -> Any:
        """The array for this question: the one that is there, or a new one whose blocks are all missing."""
        known = self.known()
        if known is None:
            return self._create(token, grid, dtype, words)
        held = about(known)
        if held.get("token") != token or known.shape != grid.shape:
            raise another_question(self.place, held)
        if tuple(known.chunks) != grid.largest:
            raise WrongShape(
                f"{self.place} was begun in blocks of {tuple(known.chunks)}",
                f"now blocks of {grid.largest} are asked for",
                'write chunks="auto" to go on with its blocks, or give another path',
            )
        return known

    def _create(self, token: str, grid: Grid, dtype: np.dtype[Any], words: dict[str, Any]) -> Any:
        zarr = needs("zarr", "an answer on disk")
        if not grid.regular:
            raise WrongShape(
                "zarr keeps blocks of one size", f"chunks={grid.chunks} are not", "give one size for each axis"
            )
        made = zarr.create_array(
            self.place,
            shape=grid.shape,
            chunks=tuple(max(1, size) for size in grid.largest),
            dtype=dtype,
            compressors=[zarr.codecs.Crc32cCodec()],  # derivatives hardly compress; a damaged block must be noticed
            fill_value=math.nan if dtype.kind in "fc" else 0,
            config=CONFIG,
            attributes={"wrt": {"token": token, **words}},
        )
        _durable(made, "zarr.json")
        return made

    def present(self, array: Any) -> set[Shape]:
        """Places of the blocks that are there; each is read, and one that was not written for this answer refused."""
        keys = _sync(_keys(array))
        parts = (one.split("/")[1:] for one in keys if one.startswith("c/") or one == "c")
        found = {tuple(map(int, one)) for one in parts if all(re.fullmatch("[0-9]+", part) for part in one)}  # no partial
        for place in found:
            sizes = zip(place, array.chunks, array.shape, strict=True)
            region = tuple(slice(k * size, min((k + 1) * size, length)) for k, size, length in sizes)
            try:
                fits = _sync(_seal(array, place).get()).to_bytes() == seal(about(array)["token"], place, array[region or ...])
            except Exception:  # no seal, or a block that cannot be read
                fits = False
            if not fits:
                raise foreign(f"block {'/'.join(map(str, place))} of {self.place}", "its numbers are not those that wrt wrote")
        return found


async def _keys(array: Any) -> list[str]:
    at = array.store_path
    return [key.removeprefix(f"{at.path}/" if at.path else "") async for key in at.store.list_prefix(at.path)]


def _sync(waits: Any) -> Any:
    from zarr.core.sync import sync  # zarr's stores are asynchronous, also for its own synchronous arrays

    return sync(waits)


def about(node: Any) -> dict[str, Any]:
    """What wrt noted about an array or a group; empty where it did not write it."""
    held = node.attrs.get("wrt")
    return held if isinstance(held, dict) and isinstance(held.get("token"), str) else {}


def another_question(place: Any, held: dict[str, Any]) -> WrongQuery:
    """What is there must not be mixed with another answer."""
    return WrongQuery(
        f"{place} holds the answer to another question",
        f"it was written for {held.get('question')}, for another model, state or input",
        "give another path, or remove it",
    )


def seal(token: str, place: Any, numbers: npt.NDArray[Any]) -> bytes:
    return fingerprint(token, place, np.asarray(numbers)).encode()


def _seal(array: Any, place: Shape) -> Any:
    return array.store_path / "wrt" / ("-".join(map(str, place)) or "all")


def write(array: Any, region: Region, numbers: npt.NDArray[Any]) -> None:
    """One block, whole, and its seal before it: a block without one is somebody else's, never one that was cut short."""
    from zarr.core.buffer import default_buffer_prototype as prototype

    place = tuple(one.start // size for one, size in zip(region, array.chunks))
    place += (0,) * (len(array.chunks) - len(place))
    at = _seal(array, place)
    sealed = seal(about(array)["token"], place, np.asarray(numbers, array.dtype))
    _sync(at.set(prototype().buffer.from_bytes(sealed)))
    _durable(array, f"wrt/{at.path.rpartition('/')[2]}")
    array[region if region else ...] = numbers
    _durable(array, "/".join(("c", *map(str, place))))


def _durable(array: Any, key: str) -> None:
    """What was written under a key is on the disk, with every folder on the way to it."""
    root = getattr(array.store, "root", None)
    if isinstance(root, Path):
        path = root / array.store_path.path / key
        sync(path, *(one for one in path.parents if one.is_relative_to(root.parent)))


@dataclass(frozen=True, slots=True)
class Parts:
    """A folder of parquet files, one for each batch; `columns` names the numbers of one sample, or () for one of lists."""

    path: Path
    columns: tuple[str, ...]
    token: str

    def prepare(self, size: int) -> int:
        """The folder for these answers; gives the batch size it was begun with."""
        needs("pyarrow.parquet", "a parquet file", "parquet")
        note = self.path / "_wrt.json"
        if note.exists():
            try:
                held = json.loads(read_regular(note))
                token, size = str(held["token"]), int(held["batch"])
            except (OSError, ValueError, TypeError, KeyError):
                raise foreign(self.path, "its _wrt.json cannot be read") from None
            if token != self.token:
                raise another_question(self.path, held)
            return size
        if not is_free(self.path):
            raise foreign(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(note, json.dumps({"token": self.token, "batch": size, "question": "wrt.map"}).encode())
        sync(self.path.parent)
        return size

    def there(self) -> set[int]:
        """First samples of the batches that are there; a table that was not written for this answer is refused."""
        parquet, found = needs("pyarrow.parquet", "a parquet file", "parquet"), set()
        for one in self.path.glob("*.parquet"):
            named = re.fullmatch("part-([0-9]{12})", one.stem)
            try:
                read_regular(one, 0)
                with parquet.ParquetFile(one) as opened:
                    table = opened.read()
                if named is None or table.schema.metadata[b"wrt"] != seal(self.token, int(named[1]), _numbers(table)):
                    raise ValueError
            except Exception:  # of pyarrow, for what is no table
                raise foreign(one, "its numbers are not those that wrt wrote") from None
            found.add(int(named[1]))
        return found

    def write(self, start: int, stop: int, numbers: npt.NDArray[Any]) -> None:
        pyarrow, parquet = (needs(one, "a parquet file", "parquet") for one in ("pyarrow", "pyarrow.parquet"))
        flat = numbers.reshape(stop - start, -1)
        table: dict[str, Any] = {"sample": np.arange(start, stop)}
        if self.columns:
            table |= {name: flat[:, k] for k, name in enumerate(self.columns)}
        else:
            table["value"] = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat.reshape(-1)), flat.shape[1])
        made, buffer = pyarrow.table(table), pyarrow.BufferOutputStream()
        made = made.replace_schema_metadata({"wrt": seal(self.token, start, _numbers(made))})
        parquet.write_table(made, buffer)
        write_whole(self.path / f"part-{start:012d}.parquet", buffer.getvalue().to_pybytes())


def _numbers(table: Any) -> npt.NDArray[Any]:
    """All numbers of a table, column by column."""
    columns = (one.combine_chunks() for one in table.columns)
    return np.concatenate([np.asarray(getattr(one, "flatten", lambda one=one: one)()).astype("f8") for one in columns])
