"""Will it fit? An answer that does not is refused before anything is allocated, with the ways out."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from wrt._core.ask import Ask
from wrt._core.value import Value
from wrt._planner import warm
from wrt._run.budget import SMALL, answer_bytes, free, free_for
from wrt._run.options import current
from wrt._run.peak import may_exceed, peak_bytes
from wrt.errors import TooLarge, WrtError

__all__ = ["SMALL", "Growing", "answer_bytes", "fits", "free", "peak_bytes", "refuse_bytes", "refuse_too_large",
           "system_refusals", "words"]  # fmt: skip

_ENOUGH: dict[Hashable, int] = {}
"""Free bytes that were found to be enough for a question whose plan is remembered: looking takes longer than some answers."""

WAYS_OUT = "ask for rows J[i], products J @ v or u @ J, J.sparse() if most of it is zero, or send it to disk with J.to_zarr(path)"


def refuse_too_large(ask: Ask) -> None:
    """Raise `TooLarge` when the dense answer, or the way to it, cannot fit."""
    what = f"the Jacobian has {ask.m} x {ask.n} entries"
    needed = answer_bytes(ask)
    if current().memory is not None or needed < SMALL:
        return refuse_bytes(needed, ask.x.values[0], what, WAYS_OUT)
    limit = free_for(ask, anew=True)
    _hold_to(limit, needed, what, WAYS_OUT)
    key = warm.key_of(ask)
    if warm.recall(key) is not None and limit >= _ENOUGH.get(key, math.inf):
        return
    peak = peak_bytes(ask) if may_exceed(ask, limit) else 0
    if peak > limit:
        where = f"about {words(peak)} at the peak of computing it, {words(limit)} are free"
        raise TooLarge(f"{what}: {words(needed)}", where, WAYS_OUT)
    if len(_ENOUGH) >= warm.MOST:
        _ENOUGH.clear()
    _ENOUGH[key] = limit


def refuse_bytes(needed: int, like: Value, what: str, write: str) -> None:
    """Raise `TooLarge` when so many bytes cannot fit where a Value lives."""
    limit = current().memory
    if limit is None:
        if needed < SMALL:
            return
        limit = free(like)
    _hold_to(limit, needed, what, write)


def _hold_to(limit: int, needed: int, what: str, write: str) -> None:
    if needed > limit:
        raise TooLarge(f"{what}: {words(needed)}", f"{words(limit)} are free for it", write)


def fits(ask: Ask, lines: int) -> bool:
    """Whether so many rows (or columns) can all be held at once."""
    needed = answer_bytes(ask) * lines // max(1, min(ask.m, ask.n))
    limit = current().memory
    if limit is None and needed < SMALL:
        return True
    return needed <= (free(ask.x.values[0]) if limit is None else limit)


class Growing:
    """Pieces that are collected without knowing how many bytes there will be: refused as soon as that shows."""

    def __init__(self, ask: Ask, what: str) -> None:
        self.what = what
        chosen = current().memory
        self.limit = free(ask.x.values[0]) if chosen is None else chosen
        self.taken = 0

    def add(self, count: int, done: int, total: int) -> None:
        """`count` more bytes, after `done` of `total` lines."""
        self.taken += count
        expected = self.taken * total // max(1, done)
        if expected > self.limit:
            raise TooLarge(
                f"{self.what}: about {words(expected)} of nonzeros",
                f"{done} of {total} rows take {words(self.taken)}; {words(self.limit)} were free",
                "ask for rows J[i], products J @ v or u @ J, or a region J[a:b, c:d]",
            )


@contextmanager
def system_refusals(ask: Ask) -> Iterator[None]:
    """An allocation that the system refuses after all, in the words of `TooLarge`."""
    try:
        yield
    except WrtError:
        raise
    except Exception as error:
        if not _no_memory(error):
            raise
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise TooLarge(
            f"the Jacobian has {ask.m} x {ask.n} entries: {words(answer_bytes(ask))}",
            f"the system refused memory on the way to it: {first[0][:120]}",
            WAYS_OUT,
        ) from error


def _no_memory(error: Exception) -> bool:
    said = f"{type(error).__name__} {error}".lower()
    told = ("can't allocate memory", "out of memory", "resource_exhausted", "resourceexhausted", "bad_alloc", "outofmemory")
    return isinstance(error, MemoryError) or any(words in said for words in told)


def words(count: float) -> str:
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
