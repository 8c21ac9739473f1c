"""What a page asks, read with suspicion: names are looked up, indices are checked, nothing is evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wrt._microscope.naming import Names
from wrt._notation.trace import Handle
from wrt.errors import WrongIndex, WrongQuery

Index = tuple[int | slice, ...]
LONGEST_NAME = 1000
MOST_AXES = 32


@dataclass(frozen=True, slots=True)
class Side:
    """A value by its name, and the part of it that is meant (None: all of it)."""

    name: str
    index: Index | None
    handle: Handle
    text: str

    @property
    def selected(self) -> Handle:
        return self.handle if self.index is None else self.handle[self.index]

    @property
    def element(self) -> bool:
        """Whether one single element is meant."""
        if self.index is None:
            return not self.handle.shape
        return len(self.index) == len(self.handle.shape) and all(isinstance(item, int) for item in self.index)

    @property
    def whole(self) -> bool:
        return self.index is None

    def python(self) -> str:
        """As a user would write it."""
        return f"d({self.text})" + (f"[{spelled(self.index)}]" if self.index else "")

    def asked(self) -> dict[str, Any]:
        """The question again, in one spelling."""
        return {"name": self.name, "index": None if self.index is None else self.covers()}

    def covers(self) -> list[int | list[int]]:
        """Which part of the value it is, axis by axis."""
        index = self.index or ()
        rest = [[0, length] for length in self.handle.shape[len(index) :]]
        return [item if isinstance(item, int) else [item.start, item.stop] for item in index] + rest


def side(names: Names, asked: Any) -> Side:
    """One side of a question: `{"name": "conv1", "index": [0, [2, 5], null]}`."""
    if not isinstance(asked, dict):
        raise malformed("a side of a question is not an object", '{"name": "x", "index": null}')
    name = name_in(asked)
    handle = names.handle(name)
    return Side(name, index(asked.get("index"), handle.shape), handle, names.python(name))


def name_in(asked: Any) -> str:
    name = asked.get("name") if isinstance(asked, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise malformed("a name is not a text of sensible length", '{"name": "x"}')
    return name


def index(asked: Any, shape: tuple[int, ...]) -> Index | None:
    """Integers, `[from, to]` and null for everything, one for each axis at most."""
    if asked is None:
        return None
    if not isinstance(asked, list) or len(asked) > MOST_AXES:
        raise malformed("an index is not a list", "[0, [2, 5], null]")
    if len(asked) > len(shape):
        raise WrongIndex(
            f"{len(asked)} indices for {len(shape)} axes", f"the shape here is {shape}", f"give at most {len(shape)}"
        )
    items: list[int | slice] = []
    for axis, (item, length) in enumerate(zip(asked, shape)):
        if item is None:
            items.append(slice(0, length))
        elif isinstance(item, list) and len(item) == 2 and all(_whole(one) for one in item):
            items.append(_span(item[0], item[1], axis, length, shape))
        elif _whole(item):
            items.append(_position(item, axis, length, shape))
        else:
            raise malformed("an index is made of integers, [from, to] and null", "[0, [2, 5], null]")
    return tuple(items)


def _whole(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and abs(item) < 2**53


def _position(item: int, axis: int, length: int, shape: tuple[int, ...]) -> int:
    if not 0 <= item < length:
        raise WrongIndex(
            f"index {item} is out of bounds for axis {axis} with size {length}",
            f"the shape here is {shape}",
            f"valid indices of axis {axis}: 0 to {length - 1}",
        )
    return item


def _span(start: int, stop: int, axis: int, length: int, shape: tuple[int, ...]) -> slice:
    if not 0 <= start < stop <= length:
        raise WrongIndex(
            f"from {start} to {stop} is no part of axis {axis} with size {length}",
            f"the shape here is {shape}",
            f"write [from, to] with 0 <= from < to <= {length}",
        )
    return slice(start, stop)


def spelled(chosen: Index) -> str:
    """An index as Python writes it.

    >>> spelled((0, slice(2, 5), slice(0, 7)))
    '0, 2:5, 0:7'
    """
    return ", ".join(str(item) if isinstance(item, int) else f"{item.start}:{item.stop}" for item in chosen)


def malformed(what: str, write: str) -> WrongQuery:
    return WrongQuery(what, "the page asks in JSON, as the protocol says", f"write {write}")
