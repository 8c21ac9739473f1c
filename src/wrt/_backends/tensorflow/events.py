"""What `why` needs to know beside the operations: custom gradients, calls of Python with arrays, tapes of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from wrt._backends.tensorflow import compat, noticed
from wrt._backends.tensorflow.tapes import UserTape, tapes_followed
from wrt._core.where import Spot, spot


class Custom(NamedTuple):
    """A gradient that somebody wrote by hand: from these tensors to those, after so many operations."""

    name: str
    at: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    backward: Callable[..., Any]
    spot: Spot | None


class Host(NamedTuple):
    """A Python function that TensorFlow called with arrays, and what it gave back."""

    at: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    spot: Spot | None


@dataclass
class Notes:
    """What a recording notes for `why`."""

    hosts: list[Host] = field(default_factory=list)
    customs: list[Custom] = field(default_factory=list)
    tapes: list[UserTape] = field(default_factory=list)


@contextmanager
def followed(notes: Notes, count: Callable[[], int], number: Callable[[Any], int]) -> Iterator[None]:
    """Stand in front of GradientTape and of Python functions that are called with arrays."""
    with tapes_followed(notes.tapes, count, number), noticed.host_functions(_host(notes, count)):
        yield


def custom(op: Any, at: int, inputs: Any, outputs: Any, backward: Any) -> Custom:
    """To be called by what TensorFlow calls to record a gradient."""
    kept = tuple(t for t in inputs if isinstance(t, compat.EagerTensor))
    return Custom(str(op), at, kept, tuple(outputs), backward, spot(sys._getframe(3)))


def _host(notes: Notes, count: Callable[[], int]) -> Callable[..., None]:
    def note(inputs: Any, outputs: Any) -> None:
        read = (t.handle if isinstance(t, tf.Variable) else t for t in tf.nest.flatten(inputs))
        given = tuple(t for t in read if isinstance(t, compat.EagerTensor))
        made = tuple(t for t in tf.nest.flatten(outputs) if isinstance(t, compat.EagerTensor))
        notes.hosts.append(Host(count(), given, made, spot(sys._getframe(2))))

    return note
