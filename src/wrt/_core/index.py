"""Which elements of a tensor: NumPy's indexing, resolved to flat positions, lazily.

A basic index (integers, slices, `...`, `None`) stays a strided view of the positions and costs nothing, however large
the tensor. Anything else is handed to NumPy, one axis at a time, so that NumPy itself defines what an index means.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt.errors import WrongIndex

Positions = npt.NDArray[np.int64]
Shape = tuple[int, ...]


@dataclass(slots=True, unsafe_hash=True)  # never changed, but not frozen: a frozen one takes three times as long to make
class Elements:
    """A selection from a tensor: its shape, and where its elements lie in the flattened tensor.

    >>> Elements.all((3, 4)).pick((1, slice(None, None, 2))).positions.tolist()
    [4, 6]
    """

    of: Shape
    shape: Shape
    offset: int = 0
    strides: Shape = ()
    listed: Positions | None = field(default=None, compare=False)

    @classmethod
    @lru_cache(maxsize=4096)
    def all(cls, shape: Shape) -> Elements:
        return cls(shape, shape, 0, row_major(shape))

    @classmethod
    def at(cls, of: Shape, positions: Positions) -> Elements:
        """The elements at these flat positions, in the positions' own shape."""
        return cls(of, positions.shape, 0, (), np.ascontiguousarray(positions.reshape(-1), dtype=np.int64))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def everything(self) -> bool:
        """Every element, in order: nothing has to be picked out."""
        if self.listed is not None or self.offset or self.size != math.prod(self.of):
            return False
        return self.shape == self.of or self._steps_like_the_whole()

    def _steps_like_the_whole(self) -> bool:
        wanted = row_major(self.shape)
        return all(a == b for a, b, n in zip(self.strides, wanted, self.shape, strict=True) if n != 1)

    @property
    def first(self) -> int:
        """The flat position of the first element."""
        return self.offset if self.listed is None else int(self.listed[0])

    @property
    def positions(self) -> Positions:
        """Flat positions, one after another."""
        if self.listed is not None:
            return self.listed
        found: Positions = np.array([self.offset], dtype=np.int64)
        for length, stride in zip(self.shape, self.strides, strict=True):
            if length != 1:
                found = np.add.outer(found, np.arange(length, dtype=np.int64) * stride)
        return found.reshape(-1)

    def _steps(self, axis: int) -> Positions:
        along = [1] * len(self.shape)
        along[axis] = self.shape[axis]
        return (np.arange(self.shape[axis], dtype=np.int64) * self.strides[axis]).reshape(along)

    def pick(self, index: Any) -> Elements:
        """Narrow the selection as NumPy would."""
        items = index if type(index) is tuple else (index,)
        if self.listed is None and len(items) == len(self.shape):  # a single element, of which most are asked one by one
            offset = self.offset
            for item, length, stride in zip(items, self.shape, self.strides, strict=True):
                if type(item) is not int or not -length <= item < length:
                    break
                offset += (item if item >= 0 else item + length) * stride
            else:
                return Elements(self.of, (), offset)
        if self.listed is None and all(_is_basic(item) for item in items):
            return self._pick_basic(items)
        return self._pick_any(tuple(native_index(item) for item in items))

    def _pick_basic(self, items: tuple[Any, ...]) -> Elements:
        offset = self.offset
        shape: list[int] = []
        strides: list[int] = []
        axis = 0
        for item in expand(items, len(self.shape), self.shape):
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            length, stride = self.shape[axis], self.strides[axis]
            if isinstance(item, slice):
                start, stop, step = _slice_bounds(item, length, self.shape)
                count = len(range(start, stop, step))
                shape.append(count)
                strides.append(stride * step)
                offset += start * stride if count else 0
            else:
                offset += _checked(operator.index(item), axis, length, self.shape) * stride
            axis += 1
        return Elements(self.of, tuple(shape), offset, tuple(strides))

    def _pick_any(self, items: tuple[Any, ...]) -> Elements:
        index = items if len(items) != 1 else items[0]
        try:
            if self.listed is not None:
                picked = self.listed.reshape(self.shape)[index]
            else:
                picked = np.int64(self.offset)
                for axis in range(len(self.shape)):
                    picked = picked + np.broadcast_to(self._steps(axis), self.shape)[index]
                if not self.shape:  # a 0-d tensor has no axis to ask; NumPy still decides what the index means
                    picked = np.full((), self.offset, dtype=np.int64)[index]
        except (IndexError, ValueError, TypeError) as error:
            raise _refused(str(error), self.shape) from None
        return Elements.at(self.of, np.asarray(picked, dtype=np.int64))


def row_major(shape: Shape) -> Shape:
    """How far apart neighbors along each axis lie in the flattened tensor."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def native_index(item: Any) -> Any:
    """An index of any framework as NumPy understands it; lists and Python numbers stay as they are."""
    if item is None or item is Ellipsis or isinstance(item, (bool, int, slice, list, np.ndarray, np.generic)):
        return np.asarray(item) if isinstance(item, list) and item else item
    if hasattr(item, "detach"):  # a torch tensor, perhaps on a device
        item = item.detach().cpu()
    if hasattr(item, "__array__"):
        return np.asarray(item)
    return item


def split(index: Any, left: Shape, right: Shape) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """An index of a matrix-like shape `left + right` as one index of each side; None where the two are entangled."""
    items = tuple(native_index(item) for item in (index if type(index) is tuple else (index,)))
    full = expand(items, len(left) + len(right), left + right)
    sides: tuple[list[Any], list[Any]] = ([], [])
    axis = 0
    for item in full:
        width = _axes(item)
        if axis < len(left) < axis + width:
            return None
        sides[axis >= len(left) and (width > 0 or axis > len(left) or bool(sides[1]))].append(item)
        axis += width
    on_left, on_right = (any(not _is_basic(item) for item in side) for side in sides)
    # NumPy moves the axes of separated fancy indices to the front of the whole: then the sides are not independent
    together = not (on_left or on_right) or _adjacent(items)
    if (on_left and on_right) or (on_right and not together) or (on_left and together != _adjacent(sides[0])):
        return None
    return tuple(sides[0]), tuple(sides[1])


def _adjacent(items: Sequence[Any]) -> bool:
    """Whether the fancy indices (and the integers NumPy counts among them) stand next to each other."""
    counted = [not _is_basic(item) or _is_integer(item) for item in items]
    first = counted.index(True)
    last = len(counted) - 1 - counted[::-1].index(True)
    return all(counted[first : last + 1])


def expand(items: tuple[Any, ...], rank: int, shape: Shape) -> tuple[Any, ...]:
    """Replace `...` (or its absence) by the slices it stands for."""
    dots = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise _refused("an index can only have a single ellipsis ('...')", shape)
    used = sum(_axes(item) for item in items)
    if used > rank:
        raise WrongIndex(
            f"too many indices: {used} for {rank} {'axis' if rank == 1 else 'axes'}",
            f"the shape here is {shape}",
            f"give at most {rank}",
        )
    rest = (slice(None),) * (rank - used)
    if dots:
        return items[: dots[0]] + rest + items[dots[0] + 1 :]
    return items + rest


def _axes(item: Any) -> int:
    """How many axes an index item consumes."""
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, (bool, np.bool_)):
        return 0
    if isinstance(item, np.ndarray) and item.dtype == bool:
        return item.ndim
    return 1


def _is_basic(item: Any) -> bool:
    return item is None or item is Ellipsis or isinstance(item, slice) or _is_integer(item)


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


def _slice_bounds(item: slice, length: int, shape: Shape) -> tuple[int, int, int]:
    try:
        return item.indices(length)
    except (TypeError, ValueError) as error:
        raise _refused(str(error), shape) from None


def _checked(index: int, axis: int, length: int, shape: Shape) -> int:
    if -length <= index < length:
        return index % length
    fits = f"{-length} to {length - 1}" if length else "none"
    raise WrongIndex(
        f"index {index} is out of bounds for axis {axis} with size {length}",
        f"the shape here is {shape}",
        f"valid indices of axis {axis}: {fits}",
    )


def _refused(words: str, shape: Shape) -> WrongIndex:
    return WrongIndex(
        words, f"the shape here is {shape}", "use integers, slices, '...', None, boolean masks or integer arrays"
    )


def region_words(positions: Positions, shape: Shape) -> str:
    """Flat positions as an index where they are one: `[3]`, `[0:4, 2]`, `[...]` for all, or how many they are.

    >>> region_words(np.array([0, 1, 4, 5]), (3, 4)), region_words(np.array([0, 5]), (3, 4))
    ('[0:2, 0:2]', '2 of 12 elements')
    """
    if len(positions) == math.prod(shape):
        return "[...]"
    axes = [np.unique(axis) for axis in np.unravel_index(positions, shape)]
    if not len(positions) or math.prod(map(len, axes)) != len(positions):
        return f"{len(positions)} of {math.prod(shape)} elements"
    return f"[{', '.join(_axis_words(axis, length) for axis, length in zip(axes, shape, strict=True))}]"


def _axis_words(used: Positions, length: int) -> str:
    if len(used) == length:
        return ":"
    if len(used) == 1:
        return str(used[0])
    steps = np.diff(used)
    if np.any(steps != steps[0]):
        return str(used.tolist()).replace(" ", "")
    return f"{used[0]}:{used[-1] + 1}" + (f":{steps[0]}" if steps[0] != 1 else "")
