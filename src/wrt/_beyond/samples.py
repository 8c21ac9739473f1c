"""A data set as batches: arrays with an axis of samples, columns of them, or a sequence of single samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt import _backends
from wrt._beyond.fingerprint import fingerprint
from wrt._beyond.pack import pack, travel
from wrt.errors import NotATensor

Batch = tuple[Any, ...]


class Samples:
    """`some(a, b)`: samples a to b as the arguments of the model, each with an axis of samples in front."""

    def __init__(self, dataset: Any, framework: str | None) -> None:
        self.dataset = dataset
        self.framework = framework
        self.columns = _columns(dataset)
        self.count = int(self.columns[0].shape[0]) if self.columns is not None else len(dataset)

    def __len__(self) -> int:
        return self.count

    @property
    def openable(self) -> bool:
        """Whether a worker can read it by itself: arrays of zarr."""
        return self.columns is not None and all(type(one).__module__.startswith("zarr.") for one in self.columns)

    def some(self, start: int, stop: int) -> Batch:
        if self.columns is not None:
            found = tuple(column[start:stop] for column in self.columns)
        else:
            picked = [self.dataset[k] for k in range(start, stop)]
            rows = [one if isinstance(one, tuple) else (one,) for one in picked]
            found = tuple(np.stack([_numbers(one) for one in each]) for each in zip(*rows, strict=True))
        return tuple(native(one, self.framework) for one in found)

    def identity(self) -> str:
        """By its length and three of its samples: reading all of it could take longer than the work itself."""
        last = self.count - 1
        some = [pack(self.some(k, k + 1)) for k in dict.fromkeys((0, last // 2, last))]
        return fingerprint(self.count, some)


def _columns(dataset: Any) -> tuple[Any, ...] | None:
    """Arrays with an axis of samples; None for a sequence of single samples."""
    columns = dataset if isinstance(dataset, tuple) else (dataset,)
    if all(hasattr(one, "shape") and len(one.shape) for one in columns):
        lengths = {int(one.shape[0]) for one in columns}
        if len(lengths) > 1:
            raise NotATensor(
                f"the columns of the data set have {sorted(lengths)} samples",
                "all of them need one entry for each sample",
                "give arrays of one length: wrt.map(question, (xs, labels), model=model)",
            )
        return columns
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and not isinstance(dataset, tuple):
        return None
    raise NotATensor(
        f"a {type(dataset).__name__} is not a data set",
        "samples are found again by their number, also after a restart",
        "give an array, a tuple of arrays, or anything with len() and [k]",
    )


def _numbers(one: Any) -> npt.NDArray[Any]:
    for backend in _backends.loaded():
        if backend.name != "finite" and backend.owns(one):
            return backend.arrays.numpy(one)
    return np.asarray(one)


def native(array: Any, framework: str | None) -> Any:
    """NumPy's arrays as tensors of the model's framework; anything else stays."""
    if framework is None or not isinstance(array, np.ndarray):
        return array
    return travel(framework).from_numpy(array)


def spans(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Batches by their first sample and the one after their last."""
    for start in range(0, count, size):
        yield start, min(start + size, count)
