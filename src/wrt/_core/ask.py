"""A question: which elements of which Value, with respect to which elements of which Value."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from wrt._core.index import Elements, Shape
from wrt._core.value import Side, Value


@dataclass(slots=True, eq=False)  # not frozen: a frozen one takes three times as long to make
class Ask:
    """`d(y)[rows] / d(x)[columns]`: the block of the Jacobian between `rows` of y and the elements of `x`."""

    y: Value
    rows: Elements
    x: Side
    free: int | None = field(default=None, init=False)
    """Bytes that were free for the answer when somebody looked: asking a GPU takes as long as starting ten operations."""
    key: Hashable = field(default=None, init=False)
    """What its plan is remembered by, once somebody needed it."""
    _accelerated: bool | None = field(default=None, init=False)
    m: int = field(init=False)
    """How many rows there are."""
    n: int = field(init=False)
    """How many columns."""

    def __post_init__(self) -> None:
        self.m, self.n = self.rows.size, self.x.size  # read at every step of an answer

    @property
    def accelerated(self) -> bool:
        """Whether sweeps run on a device that wants large batches, told what to do by a host that does not wait for it."""
        if self._accelerated is None:
            known = getattr(self.y.record.backend.arrays, "accelerated", None)
            self._accelerated = known is not None and bool(known(self.y))
        return self._accelerated

    @property
    def shape(self) -> Shape:
        return self.rows.shape + self.x.shape
