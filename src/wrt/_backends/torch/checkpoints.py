"""Activation checkpoints are run without dropping anything while a recording lasts.

A checkpoint recomputes its block in every backward, from the tensors it was given, and insists that the recomputation
saves just what the first run saved. The first run of a recording is on twins, the recomputation would not be; and it
would run the user's code once more for every question.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

from wrt._backends.torch.standing import Undo, here, stands_in


@stands_in
def kept_open() -> Undo:
    """Let non-reentrant checkpoints of recording threads keep their graph."""
    module: Any = sys.modules.get("torch.utils.checkpoint")
    original = getattr(module, "_checkpoint_hook", None)
    if original is None:
        return lambda: None

    def hook(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if here() is None else nullcontext()

    def undo() -> None:
        module._checkpoint_hook = original

    module._checkpoint_hook = hook
    return undo
