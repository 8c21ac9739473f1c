"""Answers as a table in parquet: a folder with one file for each batch, written whole or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond.needs import needs
from wrt._beyond.store import another_question

ABOUT = "_wrt.json"


@dataclass(frozen=True, slots=True)
class Parts:
    """The folder; `columns` names the numbers of one sample, or () for one column of lists."""

    path: Path
    columns: tuple[str, ...]

    def prepared(self, token: str, size: int) -> int:
        """The folder for these answers; gives the batch size it was begun with."""
        needs("pyarrow.parquet", "a parquet file", "parquet")
        about = self.path / ABOUT
        if about.exists():
            held = json.loads(about.read_text())
            if held["token"] != token:
                raise another_question(self.path, held)
            return int(held["batch"])
        self.path.mkdir(parents=True, exist_ok=True)
        written_whole(about, json.dumps({"token": token, "batch": size, "question": "wrt.map"}).encode())
        return size

    def there(self) -> set[int]:
        """First samples of the batches that are there."""
        return {int(one.stem.split("-")[1]) for one in self.path.glob("part-*.parquet")}

    def write(self, start: int, stop: int, numbers: npt.NDArray[Any]) -> None:
        pyarrow, parquet = needs("pyarrow", "a parquet file", "parquet"), needs("pyarrow.parquet", "a parquet file", "parquet")
        flat = numbers.reshape(stop - start, -1)
        table: dict[str, Any] = {"sample": np.arange(start, stop)}
        if self.columns:
            table |= {name: flat[:, k] for k, name in enumerate(self.columns)}
        else:
            table["value"] = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat.reshape(-1)), flat.shape[1])
        buffer = pyarrow.BufferOutputStream()
        parquet.write_table(pyarrow.table(table), buffer)
        written_whole(self.path / f"part-{start:012d}.parquet", buffer.getvalue().to_pybytes())


def written_whole(path: Path, content: bytes) -> None:
    """A file that is there is complete, whenever the writer was killed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)
