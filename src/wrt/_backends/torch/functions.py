"""`Function.apply` bypasses function modes, so a recording stands in its way while it lasts."""

from __future__ import annotations

import sys
from typing import Any

import torch

from wrt._backends.torch.kinds import Traits
from wrt._backends.torch.standing import Undo, here, stands_in

OURS = ("wrt._backends.torch.twins", "torch.utils.checkpoint")
"""Functions that belong to a mechanism, not to the user's computation."""


@stands_in
def applied() -> Undo:
    """Note every custom Function that a recording thread applies, as one operation of its class's name."""
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = original.__get__(None, cls)
        recording = here()
        if recording is None or not torch._C._len_torch_function_stack() or cls.__module__ in OURS:
            return run(*args, **kwargs)

        def call(*given: Any, **named: Any) -> Any:
            return run(*given, **named)

        call.__name__ = cls.__name__
        listener = recording.listener
        with torch._C.DisableTorchFunction():  # neither what is inside it nor our own work is another operation
            boxed = listener.saved.boxed(args), listener.saved.boxed(kwargs)
            result = listener.perform(call, Traits(cls.__name__), args, kwargs, sys._getframe(1))
        listener.kept[len(listener.operations) - 1] = (cls, *boxed)  # to run it again beside its own backward
        return result

    def undo() -> None:
        torch.autograd.Function.apply = original

    torch.autograd.Function.apply = classmethod(apply)
    return undo
