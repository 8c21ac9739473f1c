"""NumPy functions by central differences: the reference backend, asked for by name and never chosen for the user."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tests.finite.reference.arrays import NumpyArrays
from tests.finite.reference.record import CAPABILITIES, FiniteRecord
from wrt._backends import not_a_tensor
from wrt._core.protocol import Arrays, Backend, Capability, Recording
from wrt._core.value import Value
from wrt.errors import EngineRefused


class FiniteBackend:
    name = "finite"
    arrays: Arrays = NumpyArrays()
    takes_numbers = False
    writes_in_place = True

    def owns(self, obj: Any) -> bool:
        return isinstance(obj, np.ndarray)

    def lift(self, obj: Any) -> Value:
        raise not_a_tensor(obj)

    def recorded(self, obj: Any) -> Value | None:
        return None

    def tree(self, obj: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
        return None

    def trace(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, values: bool = False
    ) -> Recording:
        return FiniteRecord(self, f, args, kwargs)

    def record(self, **options: Any) -> AbstractContextManager[Recording]:
        raise EngineRefused("`with wrt.record():` cannot see NumPy", CAPABILITIES["record"], "write a function")

    def tap(self, name: str, tensor: Any, frame: Any) -> None:
        """Nothing is recorded between the ends."""

    def capabilities(self) -> dict[Capability, str]:
        return dict(CAPABILITIES)


BACKEND: Backend = FiniteBackend()
