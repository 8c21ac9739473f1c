"""`Function.apply` bypasses function modes, so a recording stands in its way while it lasts.

Many keep it under a name of their own, `swish = Swish.apply`, from before the recording: what stands in the way is not that
method but the next one, which it calls in turn.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from wrt._backends.torch import compat
from wrt._backends.torch.kinds import TRAITS, Traits
from wrt._backends.torch.standing import Undo, here, stands_in

OURS = ("wrt._backends.torch.twins", "torch.utils.checkpoint")
"""Functions that belong to a mechanism, not to the user's computation."""


@stands_in
def applied() -> Undo:
    """Note every custom Function that a recording thread applies, as one operation of its class's name."""
    below: Any = compat.BELOW_FUNCTION

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = super(below, cls).apply
        recording = here()
        if recording is None or not torch._C._len_torch_function_stack() or cls.__module__ in OURS:
            return run(*args, **kwargs)

        def call(*given: Any, **named: Any) -> Any:
            return run(*given, **named)

        call.__name__ = cls.__name__
        listener = recording.listener
        with torch._C.DisableTorchFunction():  # neither what is inside it nor our own work is another operation
            boxed = listener.saved.boxed(args), listener.saved.boxed(kwargs)
            result = listener.perform(call, Traits(cls.__name__), args, kwargs, sys._getframe(2))
        listener.kept[len(listener.operations) - 1] = (cls, *boxed)  # to run it again beside its own backward
        return result

    def undo() -> None:
        del below.apply

    below.apply = classmethod(apply)
    return undo


@stands_in
def rebound() -> Undo:
    """Note `tensor.set_(other)`, which no function mode sees either.

    Of tensors with numbers: those without, by which torch plans its work on sharded models, are set all the time.
    """

    def set_(self: Any, *args: Any, **kwargs: Any) -> Any:
        run, recording = super(torch.Tensor, self).set_, here()
        if recording is None or self.is_meta or not torch._C._len_torch_function_stack():
            return run(*args, **kwargs)

        def call(tensor: Any, *given: Any, **named: Any) -> Any:
            return run(*given, **named)

        with torch._C.DisableTorchFunction():
            return recording.listener.perform(call, TRAITS[torch._C.TensorBase.set_], (self, *args), kwargs, sys._getframe(1))

    def undo() -> None:
        del torch.Tensor.set_

    torch.Tensor.set_ = set_
    return undo
