"""Will it fit? An answer that does not is refused before anything is allocated, with the ways out."""

from __future__ import annotations

from typing import Any

from wrt._core.ask import Ask
from wrt._run.options import current
from wrt.errors import TooLarge

SMALL = 64 * 2**20  # below this nobody is asked how much memory is free
KEEP_FREE = 0.1


def answer_bytes(ask: Ask) -> int:
    """Bytes of the dense answer."""
    return ask.m * ask.n * ask.y.record.backend.arrays.itemsize(ask.x.values[0])


def refuse_too_large(ask: Ask) -> None:
    """Raise `TooLarge` when the dense answer cannot fit."""
    refuse_bytes(
        answer_bytes(ask),
        ask.x.values[0],
        f"the Jacobian has {ask.m} x {ask.n} entries",
        "ask for rows J[i], products J @ v or u @ J, a region J[a:b, c:d], or J.sparse() if most of it is zero",
    )


def refuse_bytes(needed: int, like: Any, what: str, write: str) -> None:
    """Raise `TooLarge` when so many bytes cannot fit where a Value lives."""
    limit = current().memory
    if limit is None:
        if needed < SMALL:
            return
        limit = free(like)
    if needed > limit:
        raise TooLarge(f"{what}: {words(needed)}", f"{words(limit)} are free for it", write)


def free(like: Any) -> int:
    """Bytes that may be taken where a Value lives."""
    return int(like.record.backend.arrays.free_memory(like) * (1 - KEEP_FREE))


def fits(ask: Ask, lines: int) -> bool:
    """Whether so many rows (or columns) can all be held at once."""
    needed = answer_bytes(ask) * lines // max(1, min(ask.m, ask.n))
    limit = current().memory
    if limit is None and needed < SMALL:
        return True
    return needed <= (free(ask.x.values[0]) if limit is None else limit)


def words(count: int) -> str:
    """Bytes for people.

    >>> words(3 * 2**30)
    '3.0 GiB'
    """
    number = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{int(number)} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
