"""Activation checkpoints are run without dropping anything while a recording lasts.

A checkpoint recomputes its block in every backward, from the tensors it was given, and insists that the recomputation
saves just what the first run saved. The first run of a recording is on twins, the recomputation would not be; and it
would run the user's code once more for every question.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


@contextmanager
def kept_open() -> Iterator[None]:
    """Let non-reentrant checkpoints of this thread keep their graph."""
    module: Any = sys.modules.get("torch.utils.checkpoint")
    original = getattr(module, "_checkpoint_hook", None)
    if original is None:
        yield
        return
    thread = threading.get_ident()

    def hook(*args: Any, **kwargs: Any) -> Any:
        return nullcontext() if threading.get_ident() == thread else original(*args, **kwargs)

    module._checkpoint_hook = hook
    try:
        yield
    finally:
        module._checkpoint_hook = original
