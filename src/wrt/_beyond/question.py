"""A question as plain data: which elements of what, with respect to which elements of what, found again in another run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from wrt._core.index import Elements, Positions, Shape
from wrt._core.value import Part, Side, Value
from wrt._notation.derivative import Derivative
from wrt._run.options import Options, current
from wrt.errors import CannotTravel, WrongShape


@dataclass(frozen=True, slots=True)
class Address:
    """The `number`-th tensor of the output or the inputs, or the `number`-th time that a name was bound."""

    kind: Literal["output", "input", "name"]
    number: int = 0
    name: str = ""

    def __str__(self) -> str:
        if self.kind == "name":
            return self.name if not self.number else f"{self.name}#{self.number}"
        return f"{self.kind}[{self.number}]" if self.number else self.kind


def address_of(recording: Any, value: Value) -> Address:
    """Where a Value of this run stands."""
    found = known_address(recording, value)
    if found is None:
        raise CannotTravel(
            "a tensor of this question has no name in its run",
            "another process finds it again as an output, an input or by a name",
            'bind it to a variable inside the model, or write wrt.tap("name", tensor) there',
        )
    return found


def known_address(recording: Any, value: Value) -> Address | None:
    """The same; None where it stands nowhere."""
    for kind, tree in (("output", recording.output), ("input", (recording.inputs, recording.keywords))):
        for number, one in enumerate(_values(recording, tree)):
            if recording.same(one, value):
                return Address(kind, number)  # type: ignore[arg-type]
    for name in dict.fromkeys([value.name, *recording.names]):
        for bound, address in named(recording, name):
            if bound.shape == value.shape and recording.same(bound, value):
                return address
    return None


def named(recording: Any, name: str) -> Iterator[tuple[Value, Address]]:
    """Every Value that was bound to a name, and where it stands."""
    for number, binding in enumerate(recording.names.all(name) if name else ()):
        yield recording.bound(binding), Address("name", number, name)


def value_at(recording: Any, address: Address) -> Value:
    """The Value that stands there in this run."""
    if address.kind == "name":
        found: Value = recording.bound(recording.names[address.name, address.number])
        return found
    tree = recording.output if address.kind == "output" else (recording.inputs, recording.keywords)
    values = _values(recording, tree)
    if address.number >= len(values):
        raise CannotTravel(
            f"the model built here has no {address}",
            f"it has {len(values)} tensors there",
            "let the builder make the same model in every process",
        )
    return values[address.number]


def _values(recording: Any, tree: Any) -> list[Value]:
    found: list[Value] = []
    recording.map_tree(tree, found.append)  # a framework with containers of its own knows how to look into them
    return found


@dataclass(frozen=True, slots=True)
class Question:
    """`d(y)[rows] / d(x)[columns]` in every run of one model; `further` denominators make it a higher derivative."""

    y: Address
    rows: Elements
    x: Address
    columns: Elements
    options: Options
    further: tuple[tuple[Address, Elements], ...] = ()

    @classmethod
    def of(cls, derivative: Derivative) -> Question:
        """The question that a Derivative of a recorded run asks."""
        if without_entries(derivative)._transposed:
            raise WrongShape(
                "a transposed derivative is not asked in blocks or samples",
                f"its shape is {derivative.shape}, x's axes first",
                "ask for d(y) / d(x), and transpose what comes back",
            )
        recording = derivative._y.record
        first, *further = (_standing(recording, side) for side in derivative._sides)
        return cls(address_of(recording, derivative._y), derivative.rows, *first, current(), tuple(further))

    def in_run(self, recording: Any) -> Derivative:
        """The same question in another run."""
        y = _same_shape(value_at(recording, self.y), self.rows, "y")
        sides = [
            recording.side(_same_shape(value_at(recording, address), elements, "x"), elements)
            for address, elements in ((self.x, self.columns), *self.further)
        ]
        return Derivative(y, self.rows, tuple(sides))

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells two questions of one model apart; Elements compare without their listed positions."""
        further = tuple((address, _key(elements)) for address, elements in self.further)
        return self.y, _key(self.rows), self.x, _key(self.columns), further

    def __str__(self) -> str:
        return " / ".join(f"d({one})" for one in (self.y, self.x, *(address for address, _ in self.further)))


def _same_shape(value: Value, elements: Elements, letter: str) -> Value:
    if value.shape == elements.of:
        return value
    raise CannotTravel(
        f"{letter} has shape {value.shape} in the run that was recorded here",
        f"the question was asked of shape {elements.of}",
        "let the builder make the same model in every process, and give it the same inputs",
    )


def _standing(recording: Any, side: Side) -> tuple[Address, Elements]:
    """Where a denominator stands in its run. A tensor that was filled in place stands under its name: the run itself
    tells which moment wrote which element, and has to tell the same here."""
    part = side.parts[0]
    simple = len(side.parts) == 1 and part.into is None and not part.component
    standing = known_address(recording, part.value) if simple else None
    if standing is not None:
        return standing, part.elements
    for value, address in named(recording, part.value.name):
        for elements in _candidates(side, value):
            if _alike(recording.side(value, elements), side):
                return address, elements
    if simple:
        return address_of(recording, part.value), part.elements  # which says what is missing
    raise CannotTravel(
        "this question is about a tensor that was filled in place",
        f"its elements were written at {len(side.parts)} moments of the run, which have no address",
        "ask for one of them with .at(k), or take J.value here",
    )


def _candidates(side: Side, value: Value) -> Iterator[Elements]:
    """Elements of a Value that a side may mean: those of its parts where they count in its shape, or all of a view."""
    if all(part.value.shape == value.shape and not part.component for part in side.parts):
        yield _join(side, value)
    elif side.shape == value.shape:
        yield Elements.all(value.shape)


def _join(side: Side, value: Value) -> Elements:
    """The elements of all parts, in the order of the selection."""
    positions = np.zeros(side.size, dtype=np.int64)
    for part in side.parts:
        positions[slice(None) if part.into is None else part.into] = part.elements.positions.reshape(-1)
    return Elements.at(value.shape, positions.reshape(side.shape))


def _alike(one: Side, other: Side) -> bool:
    """Whether two sides are the same elements at the same moments."""
    return len(one.parts) == len(other.parts) and all(map(_alike_parts, one.parts, other.parts))


def _alike_parts(one: Part, other: Part) -> bool:
    here, there = ((_places(part), part.elements.positions.reshape(-1)) for part in (one, other))
    same = np.array_equal(here[0], there[0]) and np.array_equal(here[1], there[1])
    return same and bool(one.value.record.same(one.value, other.value))


def _places(part: Part) -> Positions:
    return np.arange(part.elements.size) if part.into is None else part.into


def _key(elements: Elements) -> tuple[Any, ...]:
    listed = None if elements.listed is None else elements.listed.tobytes()
    return elements.of, elements.shape, elements.offset, elements.strides, listed


def without_entries(derivative: Derivative) -> Derivative:
    """A derivative whose shape is y's and then x's; scattered entries are refused, with the way out."""
    if derivative._entries is not None:
        raise WrongShape(
            "scattered entries do not go to blocks",
            f"these have shape {derivative.shape}",
            "take .value, or ask for d(y)[rows] / d(x)[columns]",
        )
    return derivative


def numpy_dtype(derivative: Derivative) -> np.dtype[Any]:
    """The dtype of the answer once it is NumPy's."""
    arrays = derivative._y.record.backend.arrays
    real = arrays.numpy(arrays.zeros((0,), derivative._sides[-1].values[0])).dtype
    if arrays.is_complex(derivative._y) and real.kind == "f":  # a complex y over a real x
        return np.result_type(real, np.complex64)
    return np.dtype(real)


def halves(derivative: Derivative) -> tuple[Shape, Shape]:
    """(the shape of what is differentiated last, the shape of what it is differentiated by)."""
    first = sum((side.shape for side in derivative._sides[:-1]), derivative.rows.shape)
    return first, derivative._sides[-1].shape
