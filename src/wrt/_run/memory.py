"""Will it fit? An answer that does not is refused before anything is allocated, with the ways out."""

from __future__ import annotations

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
    needed = answer_bytes(ask)
    limit = current().memory
    if limit is None:
        if needed < SMALL:
            return
        limit = int(ask.y.record.backend.arrays.free_memory(ask.x.values[0]) * (1 - KEEP_FREE))
    if needed > limit:
        raise TooLarge(
            f"the Jacobian has {ask.m} x {ask.n} entries: {words(needed)}",
            f"{words(limit)} are free for it",
            "ask for rows J[i], products J @ v or u @ J, a region J[a:b, c:d], or J.sparse() if most of it is zero",
        )


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
