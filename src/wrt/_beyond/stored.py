"""An answer on disk, and how it came there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond.crew import Note
from wrt._core.index import Shape
from wrt._run.memory import words


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
        return "\n".join(lines + [f"  {_said(name, note)}" for name, note in sorted(self.workers.items())])


def _said(name: str, note: Note) -> str:
    return f"peak memory of {name}: {words(note.peak)}" + (f", computing on {note.device}" if note.device else "")
