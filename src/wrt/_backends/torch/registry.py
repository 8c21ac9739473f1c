"""Which recordings there are: the running one of a thread, and those whose tensors the user still holds."""

from __future__ import annotations

import threading
import weakref
from types import FrameType

import torch
from torch import Tensor

from wrt._backends.torch.recording import TorchRecording
from wrt._core.value import Value

RECORDINGS: weakref.WeakValueDictionary[int, TorchRecording] = weakref.WeakValueDictionary()
"""By the number of their start, the earliest first."""


def _alive() -> list[TorchRecording]:
    """Those that are still there, the latest first; other threads may begin and drop some meanwhile."""
    return [recording for one in reversed(RECORDINGS.valuerefs()) if (recording := one()) is not None]


def known(tensor: Tensor) -> Value | None:
    """The Value of a tensor in the latest recording that made it; of one that none did, in the latest that saw it."""
    seen = None
    for recording in _alive():
        entry = recording.known(tensor)
        if entry is not None and entry.operation is not None:
            return recording.of_entry(entry)
        seen = seen or (None if entry is None else (recording, entry))
    return None if seen is None else seen[0].of_entry(seen[1])


_KEPT: dict[int, tuple[TorchRecording, int]] = {}


def keep_while_used(record: TorchRecording) -> None:
    """`with wrt.record():` without a name: the recording lives as long as a tensor that it saw made and named."""
    key = id(record)

    def gone(_: object, kept: dict[int, tuple[TorchRecording, int]] = _KEPT) -> None:  # globals die before tensors do
        held, left = kept.pop(key)
        if left > 1:
            kept[key] = (held, left - 1)

    made = [entry for entry in record.bound_names.objects() if entry.operation is not None]
    watched = [tensor for entry in made if (tensor := entry()) is not None]
    record.alive = [weakref.ref(tensor, gone) for tensor in watched]
    if watched:
        _KEPT[key] = (record, len(watched))


def tap(name: str, tensor: Tensor, frame: FrameType | None) -> None:
    """Name a tensor in every recording of this thread that is running."""
    for recording in _alive():
        if recording.running and recording.thread == threading.get_ident():
            with torch._C.DisableTorchFunction():
                recording.name(name, tensor, frame)


def running() -> TorchRecording | None:
    """The recording that this thread is in."""
    return next((r for r in _alive() if r.running and r.thread == threading.get_ident()), None)
