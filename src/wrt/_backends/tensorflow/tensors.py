"""The key of a TensorFlow Value: a tensor never changes, a variable is known by its handle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from wrt._backends.tensorflow import compat


@dataclass(slots=True, eq=False)  # not frozen: a frozen one takes three times as long to make
class TensorKey:
    """`number` is the tensor's own in this process; `variable` is set where the Value is a variable.

    A recording keeps these, and never a Value: that one holds the recording, and neither would go before the other.
    """

    number: int
    tensor: Any
    variable: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple((self.tensor if self.variable is None else self.variable).shape)

    @property
    def dtype(self) -> Any:
        return (self.tensor if self.variable is None else self.variable).dtype


class Keys:
    """The keys of one run by their numbers."""

    def __init__(self) -> None:
        self._known: dict[int, TensorKey] = {}

    def of(self, obj: Any) -> TensorKey:
        """The one key of a tensor or variable."""
        plain = compat.plain_variable(obj)
        taped = taped_as(plain)
        number = compat.number(taped)
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = TensorKey(number, taped, plain if isinstance(plain, tf.Variable) else None)
        return found

    def variables(self) -> list[TensorKey]:
        return [key for key in self._known.values() if key.variable is not None]

    def inside(self, tree: Any) -> Any:
        """The user's own containers with a key in the place of every tensor."""
        if type(tree) is compat.EagerTensor:  # looking into containers takes longer than all else here
            return self.of(tree)
        return tf.nest.map_structure(lambda leaf: self.of(leaf) if is_tensor(leaf) else leaf, tree)


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, (compat.EagerTensor, tf.Variable, compat.keras_class("Variable")))


def taped_as(obj: Any) -> Any:
    """What the tape knows a tensor or a variable by."""
    plain = compat.plain_variable(obj)
    return compat.handle(plain) if isinstance(plain, tf.Variable) else plain


def dense(gradient: Any) -> Any:
    """The gradient of a gather comes as slices: which rows, and what to add there."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
