"""Files that are there whole or not at all, and never in the place of somebody else's."""

from __future__ import annotations

import os
import stat
import uuid
from pathlib import Path

from wrt.errors import WrongQuery


class AlreadyThere(WrongQuery, FileExistsError):
    """Something stands in the place that was named, and stays."""


def write_whole(path: Path, content: bytes) -> None:
    """Complete and on the disk once this returns; before that, at any moment, what was there before."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(*paths: Path) -> None:
    """These files and folders are on the disk: what a folder holds is told by the folder itself."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def read_regular(path: Path, most: int = -1) -> bytes:
    """A file of the usual kind: a pipe would keep its reader waiting, a device would never end."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("it is not a regular file")
        return opened.read(most)


PAGE = b'<meta name="generator" content="wrt">'  # by which a page of wrt is known again


def refuse_foreign(path: Path | None, mark: bytes = PAGE) -> None:
    """Raise where something is there that does not begin like what wrt writes, with `mark` (b"": where anything is there)."""
    if path is None or not os.path.lexists(path):
        return
    try:
        known = bool(mark) and mark in read_regular(path, 300)
    except OSError:
        known = False
    if not known:
        raise foreign(path) if mark else AlreadyThere(f"{path} is there already", "nothing is overwritten", "give another name")


def is_free(folder: Path) -> bool:
    """Whether nothing is there, or only what a writer that was killed began."""
    if folder.is_dir():
        return all(one.name.endswith(".partial") for one in folder.iterdir())
    return not os.path.lexists(folder)


def foreign(place: object, stands: str = "wrt did not write it") -> AlreadyThere:
    words = f"{stands}: it is neither overwritten nor believed"
    return AlreadyThere(f"{place} is there already", words, "give another path, or remove it")
