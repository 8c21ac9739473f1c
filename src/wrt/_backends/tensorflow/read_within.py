"""A gradient of the user's own may compute with NumPy. It cannot be differentiated again: a tape would find zeros there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from wrt._backends.tensorflow import compat, noticed
from wrt._backends.tensorflow.numpy_within import functions_run, read_by_numpy
from wrt._backends.tensorflow.refusals import read_in_gradient
from wrt._core.where import Spot, place, spot, user_files

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

LOOKED_AT = frozenset({"__repr__", "__str__", "__format__", "__bool__"})
"""Ways in which numbers are only shown, or decide which way to go."""


@contextmanager
def nothing_read(recording: TensorFlowRecording) -> Iterator[None]:
    """Refuse a pull, meant to be differentiated again, in which a custom gradient reads numbers out of TensorFlow."""
    if not recording.notes_for_why.customs:
        yield
        return
    read: list[Spot] = []

    def note(tensor: Any) -> None:
        if compat.kind(tensor) in compat.FLOATS and not _is_looked_at(sys._getframe(1)):
            where = spot(sys._getframe(1))
            read.extend([where] if where is not None else [])

    def note_function(frame: FrameType) -> None:
        where = read_by_numpy(frame)
        read.extend([where] if where is not None else [])

    with noticed.reads(note), functions_run(note_function):
        yield
    if read:
        raise read_in_gradient(place(*read[0]))


def _is_looked_at(frame: FrameType | None) -> bool:
    while frame is not None and not user_files[frame.f_code.co_filename]:
        if frame.f_code.co_name in LOOKED_AT:
            return True
        frame = frame.f_back
    return False
