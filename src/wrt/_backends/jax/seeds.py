"""Seeds that are a one at one place each: known by their places, and written out inside `jit` where they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from wrt._core.index import Positions, Shape


@dataclass(frozen=True, slots=True)
class OneHot:
    """(k, *inner) with a one at each of k flat positions."""

    positions: Positions
    inner: Shape
    dtype: Any

    @property
    def shape(self) -> Shape:
        return (len(self.positions), *self.inner)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        whole = np.zeros((len(self.positions), int(np.prod(self.inner))), self.dtype if dtype is None else dtype)
        whole[np.arange(len(self.positions)), self.positions] = 1
        return whole.reshape(self.shape)


def written_out(position: Any, inner: Shape, dtype: Any) -> Any:
    """One seed, inside a traced function."""
    return (jnp.arange(int(np.prod(inner))) == position).astype(dtype).reshape(inner)


def native(seeds: Any) -> Any:
    """Seeds as an array that `jit` takes."""
    return np.asarray(seeds) if isinstance(seeds, OneHot) else seeds


def on_cpu() -> bool:
    """Whether arrays of JAX lie in the memory NumPy sees, where looking at them costs nothing."""
    return jax.default_backend() == "cpu"
