"""Calls that only library code makes and a recording lets pass: they read no number that goes on."""

from __future__ import annotations

from types import FrameType

from wrt._backends.torch.kinds import STORAGE
from wrt._core.where import user_files

ABOUT_GRAD = frozenset(["grad", "grad="])
_WRITERS = frozenset(["_reduce_ex_internal", "reduce_tensor", "reduce_storage"])


def passes_by(name: str, frame: FrameType) -> bool:
    """Whether nothing is to be noted: an optimizer at work, whose steps are events, or a look at whose memory it is."""
    if user_files[frame.f_code.co_filename]:
        return False
    return name in ABOUT_GRAD or (name in STORAGE and not _written_out(frame))


def _written_out(frame: FrameType) -> bool:
    """Whether the memory is asked for by pickle, copy.copy or torch.save: they take all numbers along."""
    asks: FrameType | None = frame.f_back if frame.f_code.co_name == "_typed_storage" else frame
    return asks is not None and asks.f_code.co_name in _WRITERS
