"""Forms in which a Jacobian is handed out: a dense array, a sparse matrix, a product of factors. Each can be proven."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wrt._core.ask import Ask
from wrt._core.protocol import Array, Numbers

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Form(Protocol):
    """All of an (m, n) Jacobian."""

    def weighted_columns(self, weights: Numbers) -> tuple[Numbers, Numbers]:
        """weights @ J and the 2-norm of each column, in double precision: what a proof compares."""

    def dense(self) -> Array:
        """(m, n), an array of the framework."""

    def csr(self) -> csr_array:
        """The nonzeros, in SciPy's hands."""

    def diagonal(self) -> Array:
        """dy_i/dx_i, flat."""


class Dense:
    """An (m, n) array of the framework."""

    __slots__ = ("array", "ask", "norms")

    def __init__(self, ask: Ask, array: Array, norms: Numbers | None = None) -> None:
        """`norms`: the sizes of the columns where the passes told them; they are no evidence, only what it is held to."""
        self.ask = ask
        self.array = array
        self.norms = norms

    def weighted_columns(self, weights: Numbers) -> tuple[Numbers, Numbers]:
        with np.errstate(all="ignore"):
            return self.ask.y.record.backend.arrays.weighted_columns(weights, self.array, self.norms)

    def dense(self) -> Array:
        return self.array

    def csr(self) -> csr_array:
        from scipy.sparse import csr_array

        return csr_array(self.ask.y.record.backend.arrays.numpy(self.array))

    def diagonal(self) -> Array:
        arrays = self.ask.y.record.backend.arrays
        return arrays.take(arrays.reshape(self.array, (-1,)), np.arange(self.ask.m) * (self.ask.n + 1), 0)


class Sparse:
    """The nonzeros of a Jacobian as a scipy matrix; the dense one is never formed unless somebody asks for it."""

    __slots__ = ("ask", "matrix", "norms")

    def __init__(self, ask: Ask, matrix: csr_array, norms: Numbers | None = None) -> None:
        self.ask = ask
        self.matrix = matrix
        self.norms = norms

    def weighted_columns(self, weights: Numbers) -> tuple[Numbers, Numbers]:
        from scipy.sparse import csr_array

        matrix = self.matrix
        data = matrix.data.astype(np.float64, copy=False)
        wide = csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
        with np.errstate(all="ignore"):
            sums = wide.T @ weights
            if self.norms is not None:
                return sums, self.norms
            wide.data = data * data
            return sums, np.sqrt(wide.T @ np.ones(self.ask.m))

    def dense(self) -> Array:
        return self.ask.y.record.backend.arrays.from_numpy(self.matrix.toarray(), self.ask.x.values[0])

    def csr(self) -> csr_array:
        return self.matrix

    def diagonal(self) -> Array:
        return self.ask.y.record.backend.arrays.from_numpy(self.matrix.diagonal(), self.ask.x.values[0])


class Factored:
    """J = last @ first, (m, w) @ (w, n) with a small w; the product is never formed unless somebody asks for it."""

    __slots__ = ("ask", "first", "last")

    def __init__(self, ask: Ask, last: Array, first: Array) -> None:
        self.ask = ask
        self.last = last
        self.first = first

    def weighted_columns(self, weights: Numbers) -> tuple[Numbers, Numbers]:
        """The norm of column j of L F is the root of f_j' (L'L) f_j: the product is not needed for it."""
        arrays = self.ask.y.record.backend.arrays
        last, first = (arrays.numpy(one).astype(np.float64) for one in (self.last, self.first))
        squares = np.einsum("kn,kn->n", first, (last.T @ last) @ first)
        return weights @ last @ first, np.sqrt(np.maximum(squares, 0.0))

    def dense(self) -> Array:
        return self.ask.y.record.backend.arrays.matmul(self.last, self.first)

    def csr(self) -> csr_array:
        return Dense(self.ask, self.dense()).csr()

    def diagonal(self) -> Array:
        arrays: Any = self.ask.y.record.backend.arrays
        return arrays.total(self.last * arrays.transpose(self.first), 1)
