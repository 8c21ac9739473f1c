"""Functional updates as writes: `h = tf.tensor_scatter_nd_update(h, [[t]], [value])` fills h step by step.

TensorFlow's tensors never change; each update makes a new one. Seen from the user's code they are one tensor that is
filled, as long as the name stays the same. An element then means the value last written there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._core.index import Positions, row_major
from wrt._core.where import Spot

SCATTERS = frozenset({"TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"})
ROWS = frozenset({"InplaceUpdate", "InplaceAdd", "InplaceSub"})
SLICES = frozenset({"TensorStridedSliceUpdate"})
UPDATES = SCATTERS | ROWS | SLICES


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """One update: the tensor before, the tensor after, and what tells the region; read only when somebody asks."""

    index: int  # of the operation in the log
    op: str
    inputs: tuple[Any, ...]
    attributes: tuple[Any, ...]
    after: Any
    spot: Spot | None

    @property
    def before(self) -> Any:
        return self.inputs[0]

    @property
    def positions(self) -> Positions:
        """Flat positions of the elements it wrote."""
        shape = tuple(self.before.shape)
        if self.op in SCATTERS:
            return _scattered(shape, self.inputs[1].numpy())
        if self.op in ROWS:
            return _scattered(shape, self.inputs[1].numpy().reshape(-1, 1))
        return _sliced(shape, self.inputs[1:4], dict(zip(self.attributes[::2], self.attributes[1::2])))


def _scattered(shape: tuple[int, ...], indices: Positions) -> Positions:
    depth = indices.shape[-1]
    starts = indices.reshape(-1, depth) @ np.array(row_major(shape)[:depth], dtype=np.int64)
    width = int(np.prod(shape[depth:], dtype=np.int64))
    return np.unique((starts[:, None] + np.arange(width)).reshape(-1))


def _sliced(shape: tuple[int, ...], bounds: tuple[Any, ...], attributes: dict[str, Any]) -> Positions:
    """The positions of a strided slice: its masks are bits, one for each item of the index."""
    begin, end, strides = (bound.numpy().tolist() for bound in bounds)

    def bit(mask: str, item: int) -> bool:
        return bool(int(attributes.get(mask, 0)) >> item & 1)

    index: list[Any] = []
    for item, (first, last, step) in enumerate(zip(begin, end, strides)):
        if bit("ellipsis_mask", item):
            index.append(Ellipsis)
        elif bit("new_axis_mask", item):
            index.append(None)
        elif bit("shrink_axis_mask", item):
            index.append(first)
        else:
            start, stop = (None if bit("begin_mask", item) else first), (None if bit("end_mask", item) else last)
            index.append(slice(start, stop, step))
    grid = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    return np.unique(grid[tuple(index)])
