"""The few array operations the layers above need, on torch tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from wrt._backends.torch import compat
from wrt._backends.torch.contract import contract
from wrt._backends.torch.pages import NUMPY, product, zeros
from wrt._backends.torch.transfers import in_numpy, sent
from wrt._core import room
from wrt._core.index import Positions, Shape
from wrt._core.numbers import TF32_ROUNDING
from wrt._core.pattern import Compression
from wrt._core.value import Value

Tensor: TypeAlias = torch.Tensor
SUMMED_AT_ONCE = 2**16
"""Numbers of an answer up to which NumPy sums them in double precision before torch has begun."""
SUMMED_ROWS = 64
"""Single-precision rows that are summed before the sums are added in double precision: three roundings at most."""


CACHED = ((1, "reserved_bytes"), (-1, "allocated_bytes"))
"""What torch keeps of a device's memory without using it."""

HALF = (torch.bfloat16, torch.float16)
"""Types in which few bits are left to see a fault in: half of what the last of them is worth counts as a rounding."""


def _weighted_sums(weights: Tensor, array: Tensor) -> Tensor:
    """weights @ array, (n,) in double precision: short sums in single precision, and the sums of those in double."""
    m, n = array.shape
    whole = m - m % SUMMED_ROWS
    pieces = torch.bmm(weights[:whole].view(-1, 1, SUMMED_ROWS), array[:whole].reshape(-1, SUMMED_ROWS, n))  # (pieces, 1, n)
    return pieces.sum((0, 1), dtype=torch.float64) + (weights[whole:] @ array[whole:]).double()


class TorchSheet:
    """An answer that is written in place."""

    __slots__ = ("_array",)

    def __init__(self, shape: Shape, like: Value) -> None:
        self._array = zeros(shape, like.dtype, like.key.device)

    def write(self, start: int, block: Tensor, *, columns: bool) -> None:
        if self._array.dtype != block.dtype and block.is_complex():
            self._array = self._array.to(block.dtype)
        if columns:
            self._array[:, start : start + len(block)] = block.mT
        else:
            self._array[start : start + len(block)] = block

    def array(self) -> Tensor:
        return self._array


class TorchArrays:
    """Stateless; every tensor is made on the device and in the dtype of the Value it is for."""

    def zeros(self, shape: Shape, like: Value) -> Tensor:
        return torch.zeros(shape, dtype=like.dtype, device=like.key.device)

    def one_hot(self, value: Value, positions: Positions) -> Tensor:
        count, device = len(positions), value.key.device
        if count == 1 and value.dtype in NUMPY and device.type == "cpu":
            seed = np.zeros((1, *value.shape), NUMPY[value.dtype])
            seed.reshape(-1)[positions[0]] = 1
            return torch.from_numpy(seed)
        seeds = torch.zeros(count, value.size, dtype=value.dtype, device=value.key.device)
        if int(positions[-1]) - int(positions[0]) == count - 1 and bool(np.all(np.diff(positions) == 1)):
            seeds.diagonal(int(positions[0])).fill_(1)  # consecutive positions: no index has to travel to the device
        else:
            seeds.scatter_(1, self._index(positions, value)[:, None], 1)
        return seeds.view(count, *value.shape)

    def spread(self, value: Value, positions: Positions, weights: Tensor) -> Tensor:
        count = weights.shape[0]
        seeds = torch.zeros(count, value.size, dtype=value.dtype, device=value.key.device)
        seeds.index_add_(1, self._index(positions, value), weights.to(value.dtype))  # a position may come twice
        return seeds.view(count, *value.shape)

    def spread_pairs(self, value: Value, positions: Positions, weights: Tensor) -> Tensor:
        count = weights.shape[0]
        real = value.dtype.to_real()
        seeds = torch.zeros(count, 2 * value.size, dtype=real, device=value.key.device)
        seeds.index_add_(1, self._index(positions, value), weights.to(real))
        return torch.view_as_complex(seeds.view(count, *value.shape, 2))

    @staticmethod
    def _index(positions: Positions, value: Value) -> Tensor:
        return sent(positions, value.key.device)

    def from_numpy(self, array: npt.NDArray[Any], like: Value) -> Tensor:
        if like.dtype in NUMPY and like.key.device.type == "cpu":
            return torch.from_numpy(np.array(array, NUMPY[like.dtype]))
        return sent(array, like.key.device).to(like.dtype)

    def native(self, given: Any, like: Value) -> Tensor:
        made = given.detach() if isinstance(given, torch.Tensor) else torch.as_tensor(np.asarray(given))
        wider = like.dtype.is_complex or not made.dtype.is_complex
        return made.to(device=like.key.device, dtype=like.dtype if wider else made.dtype)

    def numpy(self, array: Tensor) -> npt.NDArray[Any]:
        if array.is_cpu and array.dtype in NUMPY and not array.requires_grad and not array.is_neg():
            return array.numpy()
        return in_numpy(array.detach().resolve_conj().resolve_neg())

    def shape(self, array: Tensor) -> Shape:
        return tuple(array.shape)

    def reshape(self, array: Tensor, shape: Shape) -> Tensor:
        return array.reshape(shape)

    def transpose(self, array: Tensor) -> Tensor:
        return array.mT

    def take(self, array: Tensor, positions: Positions, axis: int) -> Tensor:
        if len(positions) == 1:
            return array.narrow(axis, int(positions[0]), 1)
        return array.index_select(axis, sent(positions, array.device))

    def concat(self, arrays: Sequence[Tensor], axis: int) -> Tensor:
        return arrays[0] if len(arrays) == 1 else torch.cat(list(arrays), axis)

    def place_passes(self, shape: Shape, compression: Compression, values: Tensor, like: Value) -> Tensor | None:
        device = like.key.device
        if device.type == "cpu":
            return None
        nowhere = math.prod(shape)  # one place more than there are, for slots that nobody owns
        places = torch.zeros((1,) * len(compression.box), dtype=torch.int64, device=device)
        for table in compression.places:
            places = places + sent(table, device)
        for owned in compression.owned:
            places = torch.where(sent(owned, device), places, nowhere)
        made = zeros((nowhere + 1,), like.dtype, device)
        return made.scatter_(0, places.expand(compression.box).reshape(-1), values.to(like.dtype))[:-1].view(shape)

    def scatter(self, shape: Shape, positions: Positions, values: Tensor, like: Value) -> Tensor:
        made = zeros((math.prod(shape),), like.dtype, like.key.device)
        index = torch.from_numpy(positions) if made.is_cpu else sent(positions, made.device)
        return made.scatter_(0, index, values.to(like.dtype)).view(shape)

    def strided(self, shape: Shape, values: Tensor, start: int, strides: Shape) -> Tensor:
        made = zeros(shape, values.dtype, values.device)
        made.as_strided(values.shape, strides, start).copy_(values)
        return made

    def sheet(self, shape: Shape, like: Value) -> TorchSheet:
        return TorchSheet(shape, like)

    def total(self, array: Tensor, axis: int) -> Tensor:
        return array.sum(axis)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return product(a, b)

    def add_to_diagonal(self, array: Tensor, number: float) -> Tensor:
        """A number more on the diagonal of a matrix that nobody else has."""
        array.diagonal().add_(number)
        return array

    def permute(self, array: Tensor, order: Sequence[int]) -> Tensor:
        return array.permute(*order)

    def contract(self, equation: str, a: Tensor, b: Tensor) -> Tensor:
        """A product as einsum writes it."""
        return contract(equation, a, b)

    def abs(self, array: Tensor) -> Tensor:
        return array.abs()

    def largest(self, array: Tensor) -> float:
        return float(array.max()) if array.numel() else 0.0

    def weighted_columns(
        self, weights: npt.NDArray[Any], array: Tensor, norms: npt.NDArray[Any] | None = None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        if array.is_complex() or (array.dtype == torch.float64 and not array.is_cpu):
            wide = array.to(torch.complex128 if array.is_complex() else torch.float64)
            sums = sent(weights, array.device).to(wide.dtype) @ wide
            if norms is not None:
                return self.numpy(sums), norms
            both = self.numpy(torch.stack([sums, torch.linalg.vector_norm(wide, dim=0).to(wide.dtype)]))  # one transfer
            return both[0], both[1].real
        if array.is_cpu and (array.dtype == torch.float64 or array.numel() <= SUMMED_AT_ONCE):
            numbers = self.numpy(array).astype(np.float64, copy=False)
            return weights @ numbers, np.sqrt(np.einsum("mn,mn->n", numbers, numbers)) if norms is None else norms
        narrow = array.float()  # exact for half precision
        sums = _weighted_sums(sent(weights, array.device).float(), narrow)
        if norms is not None:
            return self.numpy(sums), norms
        if narrow.is_cpu:  # torch's own norm along the first axis takes forty times as long
            numbers = narrow.detach().numpy()
            size = np.sqrt(np.einsum("mn,mn->n", numbers, numbers)).astype(np.float64)
            return self.numpy(sums), size if np.isfinite(size).all() else np.linalg.norm(numbers.astype(np.float64), axis=0)
        both = self.numpy(torch.stack([sums, torch.linalg.vector_norm(narrow, dim=0).double()]))
        return both[0], both[1]

    def nonzero(self, array: Tensor, rounding: float) -> npt.NDArray[np.bool_]:
        if not rounding:
            return self.numpy(array != 0) if array.numel() > SUMMED_AT_ONCE or not array.is_cpu else self.numpy(array) != 0
        size = array.abs()
        found: npt.NDArray[np.bool_] = (~(size <= rounding * size.amax(1, keepdim=True))).cpu().numpy()
        return found

    def all_finite(self, array: Tensor) -> bool:
        # one reduction; a finite array whose sum overflows is looked at again, element by element
        if array.is_cpu and array.dtype in NUMPY and array.is_contiguous():
            numbers = array.detach().numpy() if array.requires_grad else array.numpy()
            if math.isfinite(np.vdot(numbers, numbers)):
                return True
        total = array.sum().item()
        finite = math.isfinite(total) if isinstance(total, (int, float)) else math.isfinite(abs(total))
        return finite or bool(torch.isfinite(array).all())

    def place(self, target: Tensor, at: tuple[Any, ...], source: Tensor) -> Tensor:
        index = tuple(sent(i, target.device) if isinstance(i, np.ndarray) else i for i in at)
        target[index] = source
        return target

    def pairs(self, array: Tensor) -> Tensor:
        return torch.view_as_real(array.resolve_conj())

    def conjugate(self, array: Tensor) -> Tensor:
        return array.conj().resolve_conj()

    def times_i(self, array: Tensor) -> Tensor:
        return array * 1j

    def complex(self, real: Tensor, imaginary: Tensor) -> Tensor:
        return torch.complex(real, imaginary)

    def cast(self, array: Tensor, like: Value) -> Tensor:
        return array.to(like.dtype)

    def cast_like(self, array: Tensor, like: Tensor) -> Tensor:
        return array.to(like.dtype)

    def isfinite(self, array: Tensor) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = torch.isfinite(array).cpu().numpy()
        return result

    def itemsize(self, value: Value) -> int:
        size: int = value.dtype.itemsize
        return size

    def precision(self, value: Value) -> float:
        if value.dtype == torch.float32 and value.key.device.type == "cuda" and compat.multiplies_in_tf32(value.key.edge):
            return TF32_ROUNDING
        eps = float(torch.finfo(value.dtype).eps)
        return eps / 2 if value.dtype in HALF else eps

    def is_complex(self, value: Value) -> bool:
        return bool(value.dtype.is_complex)

    def accelerated(self, value: Value) -> bool:
        """Whether sweeps run on a device that wants large batches."""
        return bool(value.key.device.type != "cpu")

    def free_memory(self, value: Value) -> int:
        if value.key.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(value.key.device)
            if free > total // 2:
                return int(free)  # what torch keeps beside that is not missed
            # `memory_reserved` and `memory_allocated` each write out all statistics first: 0.4 ms
            held = torch.cuda.memory.memory_stats_as_nested_dict(value.key.device)
            return int(free + sum(sign * held[kind]["all"]["current"] for sign, kind in CACHED))
        return room.available()
