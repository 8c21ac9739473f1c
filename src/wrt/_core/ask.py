"""A question: which elements of which Value, with respect to which elements of which Value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from wrt._core.index import Elements, Shape
from wrt._core.value import Side, Value


class _Names(dict[Any, str]):
    """The names of the frameworks' dtypes, asked for once."""

    def __missing__(self, dtype: Any) -> str:
        found = self[dtype] = str(dtype)
        return found


_NAMES = _Names()


@dataclass(slots=True, eq=False)  # not frozen: a frozen one takes three times as long to make
class Ask:
    """`d(y)[rows] / d(x)[columns]`: the block of the Jacobian between `rows` of y and the elements of `x`."""

    y: Value
    rows: Elements
    x: Side
    m: int = field(init=False)
    """How many rows there are."""
    n: int = field(init=False)
    """How many columns."""
    complex_y: bool = field(init=False)
    complex_x: bool = field(init=False)
    """Whether x is asked about as a complex number, not by its real and imaginary parts."""

    def __post_init__(self) -> None:
        part = self.x.parts[0]
        self.m, self.n = math.prod(self.rows.shape), math.prod(self.x.shape)
        self.complex_y = "complex" in _NAMES[self.y.dtype]
        self.complex_x = "complex" in _NAMES[part.value.dtype] and not part.component

    @property
    def accelerated(self) -> bool:
        """Whether sweeps run on a device that wants large batches."""
        return self.y.record.backend.arrays.accelerated(self.y)

    @property
    def one_tensor(self) -> bool:
        """Whether x is elements of one Value, in order: no buffer that was filled in steps, no parts of complex numbers."""
        part = self.x.parts[0]
        return len(self.x.parts) == 1 and part.into is None and not part.component

    @property
    def whole(self) -> bool:
        """Whether all of one y is asked by all of one x."""
        return self.one_tensor and self.rows.everything and self.x.parts[0].elements.everything

    @property
    def shape(self) -> Shape:
        return self.rows.shape + self.x.shape
