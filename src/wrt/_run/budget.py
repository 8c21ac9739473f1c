"""What an answer takes, and what there is to take it from."""

from __future__ import annotations

from wrt._core import room
from wrt._core.ask import Ask
from wrt._core.value import Value

SMALL = 64 * 2**20  # below this nobody is asked how much memory is free
LARGE = 16 * 2**20  # from here on a question is worth a look at the tensors on its way
KEEP_FREE = 0.1


def answer_bytes(ask: Ask) -> int:
    """Bytes of the dense answer."""
    return ask.m * ask.n * ask.y.record.backend.arrays.itemsize(ask.x.values[0])


def free(like: Value) -> int:
    """Bytes that may be taken where a Value lives: what the machine has, within the limits set for this process."""
    arrays = like.record.backend.arrays
    found = arrays.free_memory(like)
    accelerated = getattr(arrays, "accelerated", None)
    if accelerated is None or not accelerated(like):
        found = int(min(found, room.allowed()))
    return int(found * (1 - KEEP_FREE))


def free_for(ask: Ask, *, anew: bool = False) -> int:
    """Bytes that may be taken for a question, as of when it was first looked at: its own answer is not subtracted."""
    if ask.free is None or anew:
        ask.free = free(ask.x.values[0])
    return ask.free


def left_beside(ask: Ask) -> int:
    """Bytes that are free once the dense answer stands; of an answer that does not fit, all that is free."""
    there, needed = free_for(ask), answer_bytes(ask)
    return there - needed if needed < there else there


def adopts(ask: Ask) -> bool:
    """Whether the framework takes over an answer that was written in NumPy's memory; else pieces are joined."""
    can = getattr(ask.y.record.backend.arrays, "can_adopt", None)
    return can is not None and bool(can())
