"""The largest singular values, by a block Krylov space: batches of pushes and pulls, and bounds that cost nothing.

The space is spanned by Q, JᵀJ Q, (JᵀJ)² Q ... for a random block Q, kept orthonormal. J is known on all of it, and so
is Jᵀ on the image: the residual ‖Jᵀu - s v‖ of every value needs no further pass, and a singular value lies that near.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._operators.thresholds import ENGINE_ROUNDINGS, SPACE_BLOCKS, SPARE_VECTORS
from wrt._operators.vectors import refuse_not_finite

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """The k largest singular values, largest first; true when all are within `tolerance` of the largest one.

    A singular value of J lies within `errors[i]` of `values[i]`. `left` (m, k) and `right` (n, k) are their vectors.
    """

    values: Numbers
    errors: Numbers
    left: Numbers
    right: Numbers
    tolerance: float
    passes: int

    def __bool__(self) -> bool:
        return bool(np.all(self.errors <= self.tolerance * max(self.values.max(initial=0.0), 1e-300)))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __iter__(self) -> Iterator[float]:
        return iter(self.values.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Numbers:
        return np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        shown = ", ".join(f"{value:.6g}" for value in self.values)
        worst = self.errors.max(initial=0.0)
        state = "" if self else "   NOT converged"
        return f"Spectrum  {shown}   each within {worst:.1e}, {self.passes} passes{state}"


def spectrum(matrix: Any, k: int, tolerance: float, most: int) -> Spectrum:
    """Of anything with `@` and `.T`-products by blocks; at most `most` products with J and as many with its adjoint."""
    m, n = matrix.shape
    k = min(k, m, n)
    if k == 0:
        none = np.zeros(0)
        return Spectrum(none, none, np.zeros((m, 0)), np.zeros((n, 0)), tolerance, 0)
    if isinstance(matrix, np.ndarray):
        return _of_whole(matrix, k, tolerance)
    width = min(k + SPARE_VECTORS, m, n)
    space = _Space(matrix, width)
    block = np.random.default_rng(31).standard_normal((n, width)).astype(space.dtype)
    while True:
        fresh = space.independent(block)
        if fresh.shape[1]:
            space.grow(fresh)
        found = space.best(k)
        done = not fresh.shape[1] or space.size >= min(m, n)
        if done or found.converged(tolerance) or space.products + width > most:
            return found.told(space, tolerance)
        if space.size + width > SPACE_BLOCKS * width:
            space.gather(2 * width)
        block = found.next_block(width)


def _of_whole(matrix: Numbers, k: int, tolerance: float) -> Spectrum:
    refuse_not_finite(matrix, "singular values")
    u, s, v = np.linalg.svd(matrix.astype(np.result_type(matrix.dtype, np.float64)), full_matrices=False)
    return Spectrum(s[:k], np.full(k, np.finfo(matrix.dtype).eps * s[0]), u[:, :k], v[:k].conj().T, tolerance, 0)


class _Space:
    """Orthonormal `basis` (n, r), its image J basis (m, r), and Jᵀ of that image (n, r)."""

    def __init__(self, matrix: Any, width: int) -> None:
        self.matrix = matrix
        self.adjoint = matrix.conj().T if hasattr(matrix, "conj") else matrix.H
        self.dtype = np.result_type(matrix.dtype, np.float64)
        m, n = matrix.shape
        self.basis, self.image, self.back = (np.zeros((size, 0), self.dtype) for size in (n, m, n))
        self.products = 0
        self.scale = 0.0  # the largest value so far: a residual below its roundoff shows no new direction

    @property
    def size(self) -> int:
        return int(self.basis.shape[1])

    def independent(self, block: Numbers) -> Numbers:
        """What the block adds to the space, orthonormal; directions that are only roundoff are left out."""
        from scipy.linalg import qr

        block = block - self.basis @ (self.basis.conj().T @ block)
        block = block - self.basis @ (self.basis.conj().T @ block)
        q, r, _ = qr(block, mode="economic", pivoting=True)
        sizes = np.abs(np.diag(r))
        q = q[:, sizes > ENGINE_ROUNDINGS * np.finfo(np.float64).eps * max(sizes.max(initial=0.0), self.scale)]
        q = q - self.basis @ (self.basis.conj().T @ q)  # what was small before is not quite orthogonal now
        return np.asarray(np.linalg.qr(q)[0])

    def grow(self, fresh: Numbers) -> None:
        fresh = fresh[:, : max(1, min(self.matrix.shape) - self.size)]
        image = np.asarray(self.matrix @ fresh)
        back = np.asarray(self.adjoint @ image)
        refuse_not_finite(back, "singular values")
        self.basis = np.hstack([self.basis, fresh])
        self.image = np.hstack([self.image, image])
        self.back = np.hstack([self.back, back])
        self.products += fresh.shape[1]

    def gather(self, keep: int) -> None:
        """The best vectors found so far span the space from here on."""
        turn = np.linalg.svd(self.image, full_matrices=False)[2].conj().T[:, :keep]
        self.basis, self.image, self.back = self.basis @ turn, self.image @ turn, self.back @ turn

    def best(self, k: int) -> _Best:
        u, s, turn = np.linalg.svd(self.image, full_matrices=False)
        self.scale = float(s[0])
        turned = turn.conj().T
        safe = np.where(s > 0, s, 1.0)
        residual = (self.back @ turned) / safe - (self.basis @ turned) * s  # Jᵀu - s v
        return _Best(u, s, turned, residual, k)


@dataclass(slots=True)
class _Best:
    u: Numbers
    s: Numbers
    turned: Numbers
    residual: Numbers
    k: int

    def errors(self) -> Numbers:
        return np.asarray(np.linalg.norm(self.residual[:, : self.k], axis=0))

    def converged(self, tolerance: float) -> bool:
        return len(self.s) >= self.k and bool(np.all(self.errors() <= tolerance * max(self.s[0], 1e-300)))

    def next_block(self, width: int) -> Numbers:
        return self.residual[:, :width]

    def told(self, space: _Space, tolerance: float) -> Spectrum:
        k = self.k
        right = space.basis @ self.turned[:, :k]
        return Spectrum(self.s[:k], self.errors(), self.u[:, :k], right, tolerance, 2 * space.products)
