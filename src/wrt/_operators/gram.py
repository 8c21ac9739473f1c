"""JᵀJ and JJᵀ: lazy, like J itself, and for no more passes than the shorter side of J has lines.

Sums of outer products need one line of J at a time, products of all pairs of lines need all of them. Where those do not
fit in memory, each line is sent there and back instead: twice the passes, one chunk of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Shape
from wrt._core.protocol import Array, CannotBatch
from wrt._core.report import Certificate, Report
from wrt._operators.linear_map import Fold, LinearMap
from wrt._operators.vectors import columns_of
from wrt._run import blocks
from wrt._run.compressed import Passes
from wrt._run.factored import Factors
from wrt._run.memory import fits, refuse_bytes
from wrt._run.products import in_fewer_passes, small_block

Over = Literal["x", "y"]


class Gram:
    """`J.gram()` is JᵀJ, of shape x.shape + x.shape; `J.T.gram()` is JJᵀ, of shape y.shape + y.shape.

    Nothing is computed before it is asked for: `G.value`, `G @ v` (one push, one pull), `G.diagonal()`, `G.trace()`,
    `G.sparse()`. For complex J the first factor is conjugated.
    """

    __slots__ = ("_ask", "_known", "_map", "_over", "_value", "report")

    def __init__(self, ask: Ask, over: Over, known: Callable[[], Array | None]) -> None:
        self._ask = ask
        self._over = over
        self._known = known
        self._value: Array | None = None
        self.report = Report()
        self._map: LinearMap | None = None

    # ---------------------------------------------------------------- what it is

    @property
    def _side(self) -> Shape:
        return self._ask.x.shape if self._over == "x" else self._ask.rows.shape

    @property
    def shape(self) -> Shape:
        return self._side + self._side

    @property
    def size(self) -> int:
        """How many rows it has, and columns."""
        return self._ask.n if self._over == "x" else self._ask.m

    @property
    def passes(self) -> int:
        """Sweeps of the engine so far, proofs included."""
        return self.report.passes

    @property
    def certificate(self) -> Certificate | None:
        return self.report.certificate

    @property
    def _linear(self) -> LinearMap:
        if self._map is None:
            self._map = LinearMap(self._ask, self.report)
        return self._map

    @property
    def _arrays(self) -> Any:
        return self._ask.y.record.backend.arrays

    def __repr__(self) -> str:
        letters = "JᵀJ" if self._over == "x" else "JJᵀ"
        state = f"{self.passes} passes" if self._value is not None else "not computed"
        return f"Gram  {letters} of {self.size} x {self.size}   {state}"

    # ---------------------------------------------------------------- all of it

    @property
    def value(self) -> Array:
        """All of it, as a tensor of the framework."""
        if self._value is None:
            like = self._ask.x.values[0]
            refuse_bytes(
                self.size**2 * self._arrays.itemsize(like),
                like,
                f"the Gram product has {self.size} x {self.size} entries",
                "ask for products G @ v, for G.diagonal(), or for G.sparse() if most of it is zero",
            )
            self._value = self._computed()
        return self._arrays.reshape(self._value, self.shape)

    def numpy(self) -> npt.NDArray[Any]:
        """All of it, as a NumPy array."""
        found: npt.NDArray[Any] = self._arrays.numpy(self.value)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.numpy(), dtype=dtype)

    def _computed(self) -> Array:
        lines = self._known()
        if lines is not None:
            return self._of_rows(lines)
        found = in_fewer_passes(self._ask, self.report)
        if isinstance(found, Passes):
            return self._of_passes(found)
        if isinstance(found, Factors):
            return self._of_factors(found)
        whole = small_block(self._ask, self.report)
        return self._swept() if whole is None else self._of_rows(whole)

    def _of_rows(self, rows: Array) -> Array:
        """From all of J, (m, n)."""
        arrays, flat = self._arrays, self._arrays.reshape(rows, (self._ask.m, self._ask.n))
        turned = arrays.transpose(_conjugate(self._ask, flat))
        return arrays.matmul(turned, flat) if self._over == "x" else arrays.matmul(flat, turned)

    def _of_passes(self, found: Passes) -> Array:
        """Blocks are multiplied as blocks, everything else as a sparse matrix."""
        compression = found.plan.compression
        plain = found.extras is None and found.plan.columns is None and hasattr(self._arrays, "contract")
        if plain and blocks.layout(compression) is not None:
            whole = blocks.from_passes(self._ask, compression, found.array)
            return blocks.dense(self._arrays, blocks.with_itself(self._arrays, whole, self._over))
        return self._arrays.from_numpy(_product(found.sparse(), self._over).toarray(), self._ask.x.values[0])

    def _of_factors(self, found: Factors) -> Array:
        return self._arrays.matmul(*self._halves(found))

    def _halves(self, found: Factors) -> tuple[Array, Array]:
        """J = L F: (Fᵀ LᵀL) and F, or (L FFᵀ) and Lᵀ. The narrow Gram product of one factor stands in the middle."""
        arrays, last, first = self._arrays, found.last, found.first
        if self._over == "x":
            inner = arrays.matmul(arrays.transpose(last), last)
            return arrays.matmul(arrays.transpose(first), inner), first
        inner = arrays.matmul(first, arrays.transpose(first))
        return arrays.matmul(last, inner), arrays.transpose(last)

    def _swept(self) -> Array:
        """Line by line along the shorter side of J."""
        by_rows = self._ask.m <= self._ask.n + 2
        if not by_rows:
            try:
                return self._by_columns()
            except CannotBatch:
                self.report.notes.append("no push holds here: swept by rows")
        return self._by_rows()

    def _by_rows(self) -> Array:
        if self._over == "x":
            return self._summed(self._linear.fold_rows)
        if not fits(self._ask, self._ask.m):
            return self._there_and_back(self._ask.m)
        return self._of_pairs(self._linear.fold_rows)

    def _by_columns(self) -> Array:
        if self._over == "y":
            return self._summed(self._linear.fold_columns)
        if not fits(self._ask, self._ask.n):
            return self._there_and_back(self._ask.n)
        return self._of_pairs(self._linear.fold_columns)

    def _summed(self, fold: Callable[[Callable[[], Fold]], None]) -> Array:
        """The sum over lines of their outer products: each line is used once and dropped."""
        arrays, kept = self._arrays, dict[str, Array]()

        def start_over() -> Fold:
            kept.clear()

            def add(start: int, stop: int, block: Array) -> None:
                first = _conjugate(self._ask, block)
                piece = arrays.matmul(arrays.transpose(first), block)
                if self._over == "y":
                    piece = arrays.transpose(piece)
                kept["sum"] = piece if "sum" not in kept else kept["sum"] + piece

            return add

        fold(start_over)
        return kept["sum"] if kept else arrays.zeros((self.size, self.size), self._ask.x.values[0])

    def _of_pairs(self, fold: Callable[[Callable[[], Fold]], None]) -> Array:
        """All lines first, then every pair of them."""
        arrays, kept = self._arrays, list[Array]()

        def start_over() -> Fold:
            kept.clear()
            return lambda start, stop, block: kept.append(block)

        fold(start_over)
        if not kept:
            return arrays.zeros((self.size, self.size), self._ask.x.values[0])
        lines = arrays.concat(kept, 0)
        turned = _conjugate(self._ask, lines)
        if self._over == "x":  # columns as lines: conj(c_i) . c_j
            return arrays.matmul(turned, arrays.transpose(lines))
        return arrays.matmul(lines, arrays.transpose(turned))

    def _there_and_back(self, count: int) -> Array:
        """Every line through J and back: G e for each unit vector e, a chunk at a time."""
        arrays, pieces = self._arrays, []
        like = self._ask.x.values[0] if self._over == "x" else self._ask.y
        for start, stop in self._linear.chunks(count):
            pieces.append(self._times(self._linear.units(start, stop, count, like)))
        self.report.notes.append("all lines together do not fit: each was sent there and back")
        return arrays.transpose(arrays.concat(pieces, 0))

    # ---------------------------------------------------------------- less than all of it

    def __matmul__(self, v: Any) -> Array:
        """G v: one push and one pull. v has the shape of one side (or one more axis at the end)."""
        arrays = self._arrays
        like = self._ask.x.values[0] if self._over == "x" else self._ask.y
        batch, vectors = columns_of(arrays, arrays.native(v, like), self._side, "G @ v")
        product = self._times(vectors)
        return arrays.reshape(arrays.transpose(product), (*self._side, *batch))

    def _times(self, vectors: Array) -> Array:
        """(k, size) -> (k, size)"""
        ask, linear = self._ask, self._linear
        if self._over == "x":
            image = linear.push(vectors)
            return _conjugate(ask, linear.pull(_conjugate(ask, image)))
        back = _conjugate(ask, linear.pull(_conjugate(ask, vectors)))
        return linear.push(back)

    def diagonal(self) -> Array:
        """The squared lengths of J's columns (or rows), in the shape of that side; G itself is never formed."""
        arrays = self._arrays
        if self._value is not None:
            flat = arrays.reshape(self._value, (-1,))
            return arrays.reshape(arrays.take(flat, np.arange(self.size) * (self.size + 1), 0), self._side)
        lines = self._known()
        found = None if lines is not None else in_fewer_passes(self._ask, self.report)
        if isinstance(found, Passes):
            matrix = found.sparse()
            lengths = np.asarray((abs(matrix) ** 2).sum(axis=0 if self._over == "x" else 1)).reshape(-1)
            return arrays.reshape(arrays.from_numpy(lengths, self._ask.x.values[0]), self._side)
        if isinstance(found, Factors):
            left, right = self._halves(found)
            return arrays.reshape(arrays.total(left * arrays.transpose(right), 1), self._side)
        if lines is None:
            lines = small_block(self._ask, self.report)
        if lines is None:
            return arrays.reshape(self._lengths(), self._side)
        squares = _squared(arrays, arrays.reshape(lines, (self._ask.m, self._ask.n)))
        return arrays.reshape(arrays.total(squares, 0 if self._over == "x" else 1), self._side)

    def _lengths(self) -> Array:
        if self._ask.m > self._ask.n + 2:
            try:
                return self._folded_lengths(self._linear.fold_columns, along=self._over == "x")
            except CannotBatch:
                self.report.notes.append("no push holds here: swept by rows")
        return self._folded_lengths(self._linear.fold_rows, along=self._over == "y")

    def _folded_lengths(self, fold: Callable[[Callable[[], Fold]], None], *, along: bool) -> Array:
        """Squares summed along each line, or over the lines."""
        arrays, kept = self._arrays, list[Array]()

        def start_over() -> Fold:
            kept.clear()

            def add(start: int, stop: int, block: Array) -> None:
                summed = arrays.total(_squared(arrays, block), 1 if along else 0)
                kept[:] = [*kept, summed] if along or not kept else [kept[0] + summed]

            return add

        fold(start_over)
        return arrays.concat(kept, 0) if kept else arrays.zeros((self.size,), self._ask.x.values[0])

    def trace(self) -> float:
        """The sum of all squared entries of J: the square of its Frobenius norm."""
        return float(self._arrays.numpy(self.diagonal()).astype(np.float64).sum())

    def sparse(self) -> Any:
        """As a scipy sparse matrix; where J is sparse, no dense matrix is formed."""
        from scipy.sparse import csr_array

        found = in_fewer_passes(self._ask, self.report)
        if isinstance(found, Passes):
            return csr_array(_product(found.sparse(), self._over))
        return csr_array(self.numpy().reshape(self.size, self.size))


def _product(matrix: Any, over: Over) -> Any:
    return matrix.T.conj() @ matrix if over == "x" else matrix @ matrix.T.conj()


def _conjugate(ask: Ask, array: Array) -> Array:
    """J is complex where y is; elsewhere nothing is copied."""
    arrays = ask.y.record.backend.arrays
    return arrays.conjugate(array) if arrays.is_complex(ask.y) else array


def _squared(arrays: Any, block: Array) -> Array:
    size = arrays.abs(block)
    return size * size
