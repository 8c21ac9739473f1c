"""How many rows or columns are swept in one call of the engine."""

from __future__ import annotations

from wrt._core.ask import Ask

TARGET = 2 * 2**20  # chunk x largest tensor on the way; measured best between 0.5 and 5 MB on CPU
AT_ONCE = 5 * 2**20  # no chunks at all below this: a second call costs more than a fuller cache
FEWEST, MOST = 64, 256
MOST_AT_ONCE = 1024
MOST_BYTES = 2**30


def chunk_size(ask: Ask) -> int:
    """Rows (or columns) per call."""
    per_row = max(ask.y.size, *(value.size for value in ask.x.values), 1) * ask.y.record.backend.arrays.itemsize(ask.y)
    lines = max(ask.m, 1)
    accelerated = getattr(ask.y.record.backend.arrays, "accelerated", None)
    if accelerated is not None and accelerated(ask.y):  # many small calls leave a GPU idle: as much as comfortably fits
        return max(1, min(max(lines, ask.n), MOST_BYTES // per_row))
    if lines * per_row <= AT_ONCE and lines <= MOST_AT_ONCE:
        return lines
    wanted = min(max(TARGET // per_row, FEWEST), MOST)
    return max(1, min(wanted, MOST_BYTES // per_row))


def chunk_bytes(ask: Ask) -> int:
    """What one call of the engine returns beside the answer."""
    lines = min(chunk_size(ask), max(ask.m, 1))
    return lines * max(ask.y.size, *(value.size for value in ask.x.values)) * ask.y.record.backend.arrays.itemsize(ask.y)
