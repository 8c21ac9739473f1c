"""One tensor at one moment, and the elements of it that a question is about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from wrt._core.index import Elements, Positions, Shape
from wrt.errors import CannotTravel

if TYPE_CHECKING:
    from wrt._core.protocol import Record


@dataclass(slots=True, eq=False, weakref_slot=True)  # not frozen: a frozen one takes three times as long to make
class Value:
    """One tensor at one moment of one run; an in-place write makes another Value of the same buffer.

    `key` belongs to the backend that made it: a GradientEdge, a jaxpr variable, a watched tensor.
    """

    record: Record
    key: Any
    shape: Shape
    dtype: Any
    name: str = ""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> Value:
        return self  # what it stands for cannot be copied, and does not change

    def __reduce__(self) -> NoReturn:
        raise stays_here("a question")


def stays_here(what: str) -> CannotTravel:
    """The refusal to pickle what hangs on a run."""
    return CannotTravel(
        f"{what} of live tensors cannot be pickled",
        "it hangs on the graph of a run in this process",
        "pickle the answer J.value, the graph as t.save(path), or ask through a wrt.Model, which travels",
    )


@dataclass(slots=True, eq=False)  # not frozen: a frozen one takes three times as long to make
class Part:
    """Elements of one Value, and where they stand in the flattened selection (`into` None: all of it, in order).

    `component` tells which real numbers of a complex Value are meant: "" the value itself, "pairs" its real and imaginary
    parts as a trailing axis of two, to which `elements` then refers.
    """

    value: Value
    elements: Elements
    into: Positions | None = None
    component: str = ""


@dataclass(slots=True, eq=False)  # not frozen: a frozen one takes three times as long to make
class Side:
    """What the question is about on one side: a shape, and the parts that fill it.

    Usually one part. A buffer filled in place has one part for each write that still owns elements. `otherwise` is asked
    when no gradient path leads to the parts: a view taken afterwards means the elements of its base.
    """

    shape: Shape
    parts: tuple[Part, ...]
    otherwise: Side | None = None
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple([part.value for part in self.parts])

    @property
    def name(self) -> str:
        return self.parts[0].value.name if self.parts else ""


def last_written(elements: Elements, regions: Sequence[Positions], versions: Sequence[Value], *, unwritten: int = 0) -> Side:
    """Each element as the Value that was last written there: write k filled `regions[k]` and made `versions[k + 1]`.

    Elements that nobody wrote mean the version `unwritten`.
    """
    owner = np.full(math.prod(elements.of), unwritten, dtype=np.int64)
    times = np.zeros_like(owner)
    for k, region in enumerate(regions, 1):
        owner[region] = k
        times[region] += 1
    positions = elements.positions
    wanted = owner[positions]
    used = np.unique(wanted)
    if len(used) > 1:
        places = {k: np.flatnonzero(wanted == k) for k in used}
        parts = tuple(Part(versions[k], Elements.at(elements.of, positions[into]), into) for k, into in places.items())
    else:
        parts = (Part(versions[used[0] if len(used) else -1], elements),)
    several = int((times[positions] > 1).sum())
    if not several:
        return Side(elements.shape, parts)
    words = "of the elements asked for were written more than once: this is about the last write"
    return Side(elements.shape, parts, notes=(f"{several} {words}; .at(k) asks about an earlier one",))
