"""A question: which elements of which Value, with respect to which elements of which Value."""

from __future__ import annotations

from dataclasses import dataclass, field

from wrt._core.index import Elements, Shape
from wrt._core.value import Side, Value


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
        part, is_complex = self.x.parts[0], self.y.record.backend.arrays.is_complex
        self.m, self.n = self.rows.size, self.x.size
        self.complex_y = is_complex(self.y)
        self.complex_x = is_complex(part.value) and not part.component

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
