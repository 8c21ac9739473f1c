"""A question as plain data: which elements of what, with respect to which elements of what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._beyond.address import Address, address_of, value_at
from wrt._core.index import Elements, Shape
from wrt._notation.derivative import Derivative
from wrt._run.options import Options, current
from wrt.errors import CannotTravel, WrongShape


@dataclass(frozen=True, slots=True)
class Question:
    """`d(y)[rows] / d(x)[columns]` in every run of one model."""

    y: Address
    rows: Elements
    x: Address
    columns: Elements
    options: Options

    @classmethod
    def of(cls, derivative: Derivative) -> Question:
        """The question that a Derivative of a recorded run asks."""
        ask = plain(derivative).ask
        if derivative._transposed:
            raise WrongShape(
                "a transposed derivative is not asked in blocks or samples",
                f"its shape is {derivative.shape}, x's axes first",
                "ask for d(y) / d(x), and transpose what comes back",
            )
        part = ask.x.parts[0]
        if len(ask.x.parts) != 1 or part.into is not None or part.component:
            raise CannotTravel(
                "this question is about a tensor that was filled in place",
                f"its elements were written at {len(ask.x.parts)} moments of the run, which have no address",
                "ask for one of them with .at(k), or take J.value here",
            )
        recording = ask.y.record
        y, x = address_of(recording, ask.y), address_of(recording, part.value)
        return cls(y, ask.rows, x, part.elements, current())

    def asked(self, recording: Any) -> Derivative:
        """The same question in another run."""
        y, x = value_at(recording, self.y), value_at(recording, self.x)
        for value, elements, letter in ((y, self.rows, "y"), (x, self.columns, "x")):
            if value.shape != elements.of:
                raise CannotTravel(
                    f"{letter} has shape {value.shape} in the run that was recorded here",
                    f"the question was asked of shape {elements.of}",
                    "let the builder make the same model in every process, and give it the same inputs",
                )
        return Derivative(y, self.rows, (recording.side(x, self.columns),))

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells two questions of one model apart; Elements compare without their listed positions."""
        return self.y, _told(self.rows), self.x, _told(self.columns), self.options

    def __str__(self) -> str:
        return f"d({self.y}) / d({self.x})"


def _told(elements: Elements) -> tuple[Any, ...]:
    listed = None if elements.listed is None else elements.listed.tobytes()
    return elements.of, elements.shape, elements.offset, elements.strides, listed


def plain(derivative: Derivative) -> Derivative:
    """A first derivative as it stands; anything else is refused, with the way out."""
    if derivative.order > 1 or derivative._entries is not None:
        what = "of scattered entries" if derivative.order == 1 else f"of order {derivative.order}"
        raise WrongShape(
            "only a first derivative goes to blocks",
            f"this one is {what}, shape {derivative.shape}",
            "take .value, or ask for d(y)[rows] / d(x)[columns]",
        )
    return derivative


def numpy_dtype(derivative: Derivative) -> np.dtype[Any]:
    """The dtype of the answer once it is NumPy's."""
    arrays = derivative._y.record.backend.arrays
    ask = derivative.ask
    real = arrays.numpy(arrays.zeros((0,), ask.x.values[0])).dtype
    if arrays.is_complex(ask.y) and real.kind == "f":  # a complex y over a real x
        return np.result_type(real, np.complex64)
    return np.dtype(real)


def halves(derivative: Derivative) -> tuple[Shape, Shape]:
    """(y's shape, x's shape)."""
    return derivative.rows.shape, derivative.ask.x.shape
