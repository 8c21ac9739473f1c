"""Pull and push from a Jacobian made of differences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tests.finite.reference.differences import jacobian
from wrt._core.index import Positions
from wrt._core.protocol import Marks, Swept
from wrt._core.value import Value

if TYPE_CHECKING:
    from tests.finite.reference.record import FiniteRecord, Point

Array = npt.NDArray[Any]
DIFFERENCES = "central differences"


class FiniteEngine:
    """The derivative of y with respect to several inputs, element by element."""

    can_pull = True
    can_push = True
    push_cost = 1.0

    def __init__(self, record: FiniteRecord, y: Value, xs: Sequence[Value], point: Point | None = None) -> None:
        self.record, self.y, self.xs = record, y, xs
        self.point = record.point if point is None else point

    @cached_property
    def blocks(self) -> list[tuple[Array, Array | None]]:
        """For each x the derivative along its real elements, and along its imaginary ones if it has them."""
        found = []
        for x in self.xs:
            here = self.point[x.key.number]

            def y(moved: Array, number: int = x.key.number) -> Array:
                return np.asarray(self.y.key(self.point[:number] + (moved,) + self.point[number + 1 :]))

            imaginary = jacobian(y, here, 1j) if np.iscomplexobj(here) else None
            found.append((jacobian(y, here), imaginary))
        return found

    def plain(self, seed: Array, *, then_push: bool = False) -> list[Array | None]:
        flat = np.conj(seed.reshape(len(seed), -1))
        pulled: list[Array | None] = []
        for x, (real, imaginary) in zip(self.xs, self.blocks, strict=True):
            rows = _product(flat, real).real
            if imaginary is not None:
                rows = rows + 1j * _product(flat, imaginary).real
            pulled.append(rows.astype(x.dtype).reshape(len(seed), *x.shape))
        return pulled

    def pull(self, seeds: Array, *, batched: bool = True) -> Swept:
        return Swept(self.plain(seeds), DIFFERENCES)  # a matrix product: one row is as plain as many

    def push(self, tangents: Sequence[Array | None], *, batched: bool = True) -> Swept:
        pushed: Any = 0.0
        count = 0
        for tangent, (real, imaginary) in zip(tangents, self.blocks, strict=True):
            if tangent is None:
                continue
            count = len(tangent)
            flat = tangent.reshape(count, -1)
            pushed = pushed + _product(flat.real, real.T)
            if imaginary is not None:
                pushed = pushed + _product(flat.imag, imaginary.T)
        columns = np.asarray(pushed).astype(self.y.dtype).reshape(count, *self.y.shape) if count else None
        return Swept([columns], DIFFERENCES)

    def pull_traceable(self, seeds: Array, by: Sequence[Value]) -> list[Value | None]:
        """The pull as a function of the inputs, to be differenced again."""
        found: list[Value | None] = []
        for k, x in enumerate(self.xs):

            def gradient(point: Point, k: int = k) -> Array:
                pulled = FiniteEngine(self.record, self.y, self.xs, point).plain(seeds)[k]
                assert pulled is not None
                return pulled

            found.append(Value(self.record, gradient, (len(seeds), *x.shape), x.dtype))
        return found

    def reach(self, rows: Positions, *, certain: bool = False) -> Marks | None:
        return None


def _product(rows: Array, matrix: Array) -> Array:
    """rows @ matrix, in which a zero of a row leaves out its line of the matrix, whatever stands there."""
    if np.isfinite(matrix).all():
        return np.asarray(rows @ matrix)
    return np.stack([row[row != 0] @ matrix[row != 0] for row in rows])
