"""Will it fit, and how much goes in one call? An answer that does not fit is refused at once, with the ways out."""

from __future__ import annotations

import math

from wrt._core import room
from wrt._core.ask import Ask
from wrt._core.value import Value
from wrt._run import thresholds
from wrt._run.options import CURRENT, current
from wrt.errors import TooLarge

WAYS_OUT = "ask for rows J[i], products J @ v or u @ J, J.sparse() if most of it is zero, or send it to disk with J.to_zarr(path)"


def answer_bytes(ask: Ask) -> int:
    """Bytes of the dense answer."""
    return ask.m * ask.n * ask.y.record.backend.arrays.itemsize(ask.x.parts[0].value)


def is_small(ask: Ask) -> bool:
    """Whether nobody has to be asked how much memory is free for the dense answer."""
    return answer_bytes(ask) < thresholds.CHECKED_BYTES and current().memory is None


def free(like: Value) -> int:
    """Bytes that may be taken where a Value lives: what the machine has, within the limits set for this process."""
    arrays = like.record.backend.arrays
    found: float = arrays.free_memory(like)
    if not arrays.accelerated(like):
        found = min(found, room.allowed())
    return int(found * thresholds.FREE_SHARE)


# ---------------------------------------------------------------- calls of the engine


def lines_per_call(ask: Ask, count: int) -> int:
    """How many of so many rows or columns are swept in one call: by their size, and less only where memory is short."""
    arrays, y = ask.y.record.backend.arrays, ask.y
    ends = max(math.prod(y.shape), math.prod(ask.x.parts[0].value.shape))
    if count * ends <= thresholds.FEW_NUMBERS and len(ask.x.parts) == 1:
        return max(1, count)  # however wide the tensors between may be
    per_line = _widest(ask) * arrays.itemsize(y)
    if arrays.accelerated(y):
        wanted = max(1, min(count, thresholds.CALL_BYTES_DEVICE // max(1, per_line)))
    else:
        fewest, most = thresholds.CALL_LINES_CPU
        if count <= most and count * per_line <= thresholds.WHOLE_CALL_BYTES_CPU:
            return max(1, count)
        wanted = max(1, min(count, most, max(fewest, thresholds.CALL_BYTES_CPU // max(1, per_line))))
    if wanted * per_line * thresholds.LIVE_TENSORS + answer_bytes(ask) < thresholds.CHECKED_BYTES:
        return wanted
    beside = free(ask.x.values[0]) - answer_bytes(ask)
    return max(1, min(wanted, int(thresholds.CALL_MEMORY_SHARE * max(0, beside) / (per_line * thresholds.LIVE_TENSORS))))


def call_bytes(ask: Ask) -> int:
    """What one call of the engine takes beside the answer."""
    lines = lines_per_call(ask, max(1, min(ask.m, ask.n)))
    return int(lines * thresholds.LIVE_TENSORS * _widest(ask) * ask.y.record.backend.arrays.itemsize(ask.y))


def _widest(ask: Ask) -> int:
    """Numbers in the widest tensor of a pass, as far as a glance tells."""
    return max(1, ask.y.size, ask.y.record.widest(ask.y), *[part.value.size for part in ask.x.parts])


# ---------------------------------------------------------------- refusals


def refuse_too_large(ask: Ask) -> None:
    """Raise `TooLarge` when the dense answer, or one call on the way to it, cannot fit."""
    needed = answer_bytes(ask)
    if needed < thresholds.CHECKED_BYTES and CURRENT.get().memory is None:
        return
    what = f"the Jacobian has {ask.m} x {ask.n} entries"
    refuse_bytes(needed, ask.x.values[0], what, WAYS_OUT)
    if current().memory is not None:
        return
    limit, peak = free(ask.x.values[0]), needed + call_bytes(ask)
    if peak > limit:
        where = f"about {words(peak)} at the peak of computing it, {words(limit)} are free"
        raise TooLarge(f"{what}: {words(needed)}", where, WAYS_OUT)


def refuse_bytes(needed: int, like: Value, what: str, write: str) -> None:
    """Raise `TooLarge` when so many bytes cannot fit where a Value lives."""
    limit = current().memory
    if limit is None:
        if needed < thresholds.CHECKED_BYTES:
            return
        limit = free(like)
    if needed > limit:
        raise TooLarge(f"{what}: {words(needed)}", f"{words(limit)} are free for it", write)


def fits(ask: Ask, lines: int) -> bool:
    """Whether so many rows (or columns) can all be held at once."""
    needed = answer_bytes(ask) * lines // max(1, min(ask.m, ask.n))
    limit = current().memory
    if limit is None and needed < thresholds.CHECKED_BYTES:
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


def refuse_if_no_memory(error: Exception, ask: Ask) -> None:
    """Memory that the system refused on the way is told like an answer that does not fit."""
    if _no_memory(error):
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise TooLarge(
            f"the Jacobian has {ask.m} x {ask.n} entries: {words(answer_bytes(ask))}",
            f"the system refused memory on the way to it: {first[0][:120]}",
            WAYS_OUT,
        ) from error


def smaller_call(error: Exception, size: int) -> int:
    """How many lines to try after the system refused memory for so many; any other error is raised again."""
    if size == 1 or not _no_memory(error):
        raise error
    return max(1, size // 4)


def _no_memory(error: Exception) -> bool:
    said = f"{type(error).__name__} {error}".lower()
    known = ("can't allocate memory", "out of memory", "resource_exhausted", "resourceexhausted", "bad_alloc", "outofmemory")
    return isinstance(error, MemoryError) or any(phrase in said for phrase in known)


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
