"""JᵀJ and JJᵀ: lazy, like J itself, and for no more passes than the shorter side of J has lines.

Sums of outer products need one line of J at a time, products of all pairs of lines need all of them. Where those do not
fit in memory, each line is sent there and back instead: twice the passes, one chunk of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Shape
from wrt._core.protocol import Array, CannotSweep
from wrt._core.report import Certificate, Report
from wrt._operators.vectors import columns_of
from wrt._run.compact import form_of, row_blocks
from wrt._run.forms import Dense, Factored, Form, Sparse
from wrt._run.linear_map import LinearMap
from wrt._run.memory import fits, lines_per_call, refuse_bytes

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

    def _form(self) -> Form | None:
        """All of J where it is known or fits; None where it has to be swept some lines at a time."""
        lines = self._known()
        return form_of(self._ask, self.report) if lines is None else Dense(self._ask, lines)

    def _computed(self) -> Array:
        form = self._form()
        if isinstance(form, Sparse):
            return self._arrays.from_numpy(_product(form.matrix, self._over).toarray(), self._ask.x.values[0])
        if isinstance(form, Factored):
            return self._arrays.matmul(*self._halves(form))
        return self._swept() if form is None else self._of_rows(form.dense())

    def _of_rows(self, rows: Array) -> Array:
        """From all of J, (m, n)."""
        arrays, flat = self._arrays, self._arrays.reshape(rows, (self._ask.m, self._ask.n))
        turned = arrays.transpose(_conjugate(self._ask, flat))
        return arrays.matmul(turned, flat) if self._over == "x" else arrays.matmul(flat, turned)

    def _halves(self, found: Factored) -> tuple[Array, Array]:
        """J = L F: (Fᵀ LᵀL) and F, or (L FFᵀ) and Lᵀ. The narrow Gram product of one factor stands in the middle."""
        arrays, last, first = self._arrays, found.last, found.first
        if self._over == "x":
            inner = arrays.matmul(arrays.transpose(last), last)
            return arrays.matmul(arrays.transpose(first), inner), first
        inner = arrays.matmul(first, arrays.transpose(first))
        return arrays.matmul(last, inner), arrays.transpose(last)

    def _swept(self) -> Array:
        """Some lines at a time along the shorter side of J, where all of J does not fit."""
        lines = self._ask.n if self._by_columns else self._ask.m
        if self._by_columns == (self._over == "y"):
            return self._sum_of_products()
        if not fits(self._ask, lines):
            return self._there_and_back(lines)
        blocks = [block for _, block in self._line_blocks()]
        whole = self._arrays.concat(blocks, 0)
        turned = _conjugate(self._ask, whole)
        if self._over == "x":  # columns as lines: conj(c_i) . c_j
            return self._arrays.matmul(turned, self._arrays.transpose(whole))
        return self._arrays.matmul(whole, self._arrays.transpose(turned))

    @property
    def _by_columns(self) -> bool:
        return self._ask.m > self._ask.n + 2 and self._linear.pushes

    def _line_blocks(self) -> Iterator[tuple[int, Array]]:
        """Rows (k, n), or columns as (k, m), some at a time, and where each block begins."""
        if self._by_columns:
            try:
                for start, _, block in self._linear.column_blocks():
                    yield start, block
                return
            except CannotSweep:
                self.report.notes.append("no push holds here: swept by rows")
                raise
        for rows, block in row_blocks(self._ask, self.report):
            yield int(rows[0]), block

    def _sum_of_products(self) -> Array:
        """The sum over lines of their outer products: each line is used once and dropped."""
        arrays, total = self._arrays, None
        for _, block in self._line_blocks():
            piece = arrays.matmul(arrays.transpose(_conjugate(self._ask, block)), block)
            piece = arrays.transpose(piece) if self._over == "y" else piece
            total = piece if total is None else total + piece
        return arrays.zeros((self.size, self.size), self._ask.x.values[0]) if total is None else total

    def _there_and_back(self, count: int) -> Array:
        """Every line through J and back: G e for each unit vector e, some at a time."""
        arrays, pieces = self._arrays, []
        like = self._ask.x.values[0] if self._over == "x" else self._ask.y
        size = lines_per_call(self._ask, count)
        for start in range(0, count, size):
            pieces.append(self._times(self._linear.units(start, min(start + size, count), count, like)))
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
        form = self._form()
        axis = 0 if self._over == "x" else 1
        if isinstance(form, Sparse):
            lengths = np.asarray((abs(form.matrix) ** 2).sum(axis=axis)).reshape(-1)
            return arrays.reshape(arrays.from_numpy(lengths, self._ask.x.values[0]), self._side)
        if isinstance(form, Factored):
            left, right = self._halves(form)
            return arrays.reshape(arrays.total(left * arrays.transpose(right), 1), self._side)
        if form is None:
            return arrays.reshape(self._lengths(), self._side)
        squares = _squared(arrays, arrays.reshape(form.dense(), (self._ask.m, self._ask.n)))
        return arrays.reshape(arrays.total(squares, axis), self._side)

    def _lengths(self) -> Array:
        """Squares summed along each line, or over the lines."""
        arrays, kept = self._arrays, list[Array]()
        along = self._by_columns == (self._over == "x")
        for _, block in self._line_blocks():
            summed = arrays.total(_squared(arrays, block), 1 if along else 0)
            kept = [*kept, summed] if along or not kept else [kept[0] + summed]
        return arrays.concat(kept, 0) if kept else arrays.zeros((self.size,), self._ask.x.values[0])

    def trace(self) -> float:
        """The sum of all squared entries of J: the square of its Frobenius norm."""
        return float(self._arrays.numpy(self.diagonal()).astype(np.float64).sum())

    def sparse(self) -> Any:
        """As a scipy sparse matrix; where J is sparse, no dense matrix is formed."""
        from scipy.sparse import csr_array

        form = form_of(self._ask, self.report, sifted=True)
        if isinstance(form, Sparse):
            return csr_array(_product(form.matrix, self._over))
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
