"""`Function.apply` bypasses function modes, so a recording stands in its way while it lasts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from wrt._backends.torch.kinds import Traits
from wrt._backends.torch.listen import Listener

OURS = ("wrt._backends.torch.twins", "torch.utils.checkpoint")
"""Functions that belong to a mechanism, not to the user's computation."""


@contextmanager
def followed(listener: Listener) -> Iterator[None]:
    """Note every custom Function that this thread applies, as one operation of its class's name."""
    original = torch.autograd.Function.__dict__["apply"]
    thread = threading.get_ident()

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = original.__get__(None, cls)
        inside = not torch._C._len_torch_function_stack()
        if threading.get_ident() != thread or inside or cls.__module__ in OURS:
            return run(*args, **kwargs)

        def call(*given: Any, **named: Any) -> Any:
            return run(*given, **named)

        call.__name__ = cls.__name__
        with torch._C.DisableTorchFunction():  # neither what is inside it nor our own work is another operation
            boxed = listener.saved.boxed(args), listener.saved.boxed(kwargs)
            result = listener.perform(call, Traits(cls.__name__), args, kwargs, sys._getframe(1))
        listener.kept[len(listener.operations) - 1] = (cls, *boxed)  # to run it again beside its own backward
        return result

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original
