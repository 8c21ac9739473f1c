"""How many rows or columns are swept in one call of the engine, and what such a call takes."""

from __future__ import annotations

from wrt._core.ask import Ask
from wrt._run.budget import LARGE, SMALL, answer_bytes, left_beside

TARGET = 2 * 2**20  # chunk x larger end of the map; measured best between 0.5 and 5 MB on CPU
AT_ONCE = 5 * 2**20  # no chunks at all below this: a second call costs more than a fuller cache
FEWEST, MOST = 64, 256
MOST_AT_ONCE = 1024
MOST_BYTES = 2**30
LIVE = 4.5  # tensors of the widest kind that are alive at once in a batched pass, as measured
SHARE = 0.25  # of the memory that the answer leaves, for one call
IDLE = 64  # that part of what is free on a GPU is never missed
BESIDE = 0.4  # of a large answer's own bytes, for one call: structure may make most of a call unnecessary


def chunk_size(ask: Ask) -> int:
    """Rows (or columns) per call."""
    per_row = _ends(ask) * ask.y.record.backend.arrays.itemsize(ask.y)
    wanted = _wanted(ask, per_row)
    if wanted * per_row < LARGE and answer_bytes(ask) < LARGE:
        return wanted  # nobody has to be asked how much memory is free
    left = left_beside(ask)
    idle = left / IDLE if ask.accelerated else 0  # a GPU is fast only in large batches
    room = min(max(BESIDE * answer_bytes(ask), SMALL, idle), SHARE * left)
    return max(1, min(wanted, int(room / line_bytes(ask))))


def _wanted(ask: Ask, per_row: int) -> int:
    """As many as are swept fastest, whatever memory there is."""
    lines = max(ask.m, 1)
    if ask.accelerated:  # many small calls leave a GPU idle: as much as comfortably fits
        return max(1, min(max(lines, ask.n), MOST_BYTES // per_row))
    if goes_whole(ask):
        return lines
    wanted = min(max(TARGET // per_row, FEWEST), MOST)
    return max(1, min(wanted, MOST_BYTES // per_row))


def goes_whole(ask: Ask) -> bool:
    """Whether all rows go in one call on a CPU: nobody has to be asked how much memory is free."""
    lines, y = max(ask.m, 1), ask.y
    return lines <= MOST_AT_ONCE and lines * _ends(ask) * y.record.backend.arrays.itemsize(y) <= AT_ONCE


def chunk_bytes(ask: Ask) -> int:
    """What one call of the engine takes beside the answer."""
    lines = min(chunk_size(ask), max(ask.m, ask.n, 1))
    return int(lines * line_bytes(ask))


def line_bytes(ask: Ask) -> float:
    """Bytes that one row or column of a batch takes at its peak."""
    return LIVE * _widest(ask) * ask.y.record.backend.arrays.itemsize(ask.y)


def _ends(ask: Ask) -> int:
    return max([1, ask.y.size, *[part.value.size for part in ask.x.parts]])


def _widest(ask: Ask) -> int:
    """Elements of the largest tensor on the way from x to y, where the graph tells; else of the two ends."""
    record = ask.y.record
    find = getattr(record, "flow", None)
    if find is None or answer_bytes(ask) < LARGE or not all(map(record.has_history, (ask.y, *ask.x.values))):
        return _ends(ask)
    flow = find(ask.y, ask.x.values)
    return _ends(ask) if flow is None else max(_ends(ask), flow.largest)
