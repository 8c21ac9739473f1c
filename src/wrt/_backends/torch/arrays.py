"""The few array operations the layers above need, on torch tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from wrt._backends.torch.contract import contract
from wrt._backends.torch.pages import LARGE, NUMPY, product, zeros
from wrt._backends.torch.transfers import brought, in_numpy, sent
from wrt._core.index import Positions, Shape
from wrt._core.value import Value

Tensor: TypeAlias = torch.Tensor
CONVOLUTION = "ConvolutionBackward0"


def unit(value: Value, position: int) -> Tensor:
    """A one among zeros, in the shape of a Value: the seed of one row."""
    device = value.key.device
    if value.dtype in NUMPY and device.type == "cpu":
        seed = np.zeros(value.shape, NUMPY[value.dtype])
        seed.reshape(-1)[position] = 1
        return torch.from_numpy(seed)
    if value.size <= FEW:
        return identity(value)[position]  # a view: nothing has to be started on the device
    seeds = torch.zeros(value.size, dtype=value.dtype, device=device)
    seeds.narrow(0, position, 1).fill_(1)
    return seeds.view(value.shape)


_SEEDS: dict[tuple[Any, ...], tuple[Tensor, int]] = {}
KEPT = 2**22  # bytes of seeds that are worth keeping for the next question, all together,
SHARE = 512  # or that part of a GPU's memory
FEW = 512  # elements of a y whose seeds, one for each, are kept on a device
MANY_ROWS = 256  # of a block, from which on one more reduction takes less time than looking at the size of each row
FEW_COUNTS = 32  # of rows whose weights are kept
AT_HAND = 2**17  # numbers in a block up to which NumPy looks at it faster than torch, wherever they are


def _kept(key: tuple[Any, ...], make: Callable[[], Tensor]) -> Tensor:
    """Seeds that many questions share. One that a hook has written to is made anew."""
    found = _SEEDS.get(key)
    if found is not None and found[0]._version == found[1]:
        return found[0]
    with torch.inference_mode(False):  # what is kept must not remember in which mode it was made
        made = make()
    most = torch.cuda.get_device_properties(made.device).total_memory // SHARE if made.is_cuda else KEPT
    if made.nbytes <= most // 4:
        if sum(seeds.nbytes for seeds, _ in _SEEDS.values() if seeds.device == made.device) > most - made.nbytes:
            _SEEDS.clear()
        _SEEDS[key] = made, made._version
    return made


def identity(value: Value, last: npt.NDArray[Any] | None = None) -> Tensor:
    """A one at each position in turn, (size, *value.shape); and one more row, the same for all of that size."""
    size, device = value.size, value.key.device

    def make() -> Tensor:
        seeds = torch.zeros(size + (last is not None), size, dtype=value.dtype, device=device)
        seeds.diagonal().fill_(1)
        if last is not None:
            seeds[size] = sent(last, device).reshape(-1)
        return seeds.view(-1, *value.shape)

    return _kept((value.shape, last is not None, value.dtype, device), make)


def _wide(block: Tensor) -> torch.dtype:
    """Numbers in which the squares of these can be summed."""
    return torch.float64 if block.dtype == torch.float64 else torch.float32


def _fetched(block: Tensor, difference: Tensor) -> tuple[float, float]:
    """The sizes of a difference and of a block, in one transfer."""
    size, residual = torch.stack([torch.linalg.vector_norm(one, dtype=_wide(block)) for one in (block, difference)]).tolist()
    return residual, size


def _largest_and_size(norms: list[float]) -> tuple[float, float]:
    """The last of some sizes, and the size of all the others together."""
    return norms[-1], math.hypot(*norms[:-1])


CACHED = ((1, "reserved_bytes"), (-1, "allocated_bytes"))
"""What torch keeps of a device's memory without using it."""

TENSOR_FLOAT = 2.0**-10
"""The precision of TF32, in which a GPU multiplies float32 where that is allowed: of convolutions, it is by itself."""


def _rounded_by_the_device(value: Value) -> bool:
    if value.dtype != torch.float32 or value.key.device.type != "cuda":
        return False
    if torch.backends.cuda.matmul.allow_tf32:
        return True
    if value.key.leaf is not None or not torch.backends.cudnn.allow_tf32:
        return False
    near: tuple[str, ...] = value.record.signature(value)  # type: ignore[attr-defined]
    return CONVOLUTION in near


_BALANCES: dict[tuple[int, np.dtype[Any]], tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}


def _balance(numbers: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Weights of rows, and minus one for the row behind them: the sum is zero where that is their sum.

    Those of the last few counts are kept.
    """
    found = _BALANCES.get((numbers.size, dtype))
    if found is None or found[0] is not numbers:
        if len(_BALANCES) >= FEW_COUNTS:
            _BALANCES.clear()
        found = _BALANCES[numbers.size, dtype] = numbers, np.append(numbers, -1).astype(dtype)
    return found[1]


class TorchArrays:
    """Stateless; every tensor is made on the device and in the dtype of the Value it is for."""

    writes_in_place = True

    def zeros(self, shape: Shape, like: Value) -> Tensor:
        return torch.zeros(shape, dtype=like.dtype, device=like.key.device)

    def zeros_like(self, shape: Shape, like: Tensor) -> Tensor:
        return zeros(shape, like.dtype, like.device)

    def one_hot(self, value: Value, positions: Positions) -> Tensor:
        count = len(positions)
        if count == 1:
            return unit(value, int(positions[0])).unsqueeze(0)
        seeds = torch.zeros(count, value.size, dtype=value.dtype, device=value.key.device)
        if int(positions[-1]) - int(positions[0]) == count - 1 and bool(np.all(np.diff(positions) == 1)):
            seeds.diagonal(int(positions[0])).fill_(1)  # consecutive positions: no index has to travel to the device
        else:
            seeds.scatter_(1, self._index(positions, value)[:, None], 1)
        return seeds.view(count, *value.shape)

    def identity(self, value: Value, last: npt.NDArray[Any] | None = None) -> Tensor:
        """A one at each position in turn, (size, *value.shape); and one more row, the same for all of that size."""
        return identity(value, last)

    def weights(self, numbers: npt.NDArray[Any], like: Value) -> Tensor:
        """Random weights on the device, flat; the same for all of that count."""
        key = (numbers.shape, like.dtype, like.key.device)
        return _kept(key, lambda: self.from_numpy(numbers, like).reshape(-1))

    def probed(self, numbers: npt.NDArray[Any], like: Value, block: Tensor) -> tuple[float, float]:
        """How far the last row of a block is from these weights of the rows before it, and the size of all of those.

        Both as roots of sums of squares, in one transfer. The last row is used up.
        """
        count = numbers.size
        if block.is_cpu and block.dtype in NUMPY and block.numel() <= AT_HAND:
            found = block.numpy()
            difference, before = _balance(numbers, found.dtype) @ found, found[:count]
            return math.sqrt(np.vdot(difference, difference)), math.sqrt(np.vdot(before, before))
        weights, last, before = self.weights(numbers, like), block[count], block[:count]
        last.addmv_(before.t(), weights, alpha=-1)
        if count > MANY_ROWS:
            return _fetched(before, last)
        return _largest_and_size(torch.linalg.vector_norm(block, dim=1, dtype=_wide(block)).tolist())

    def agreement(self, weights: Tensor, block: Tensor, expected: Tensor) -> tuple[float, float]:
        """The same of `block` @ weights, (k,), next to what is expected of it."""
        if block.is_cpu and block.dtype in NUMPY and block.numel() <= AT_HAND:
            numbers = block.numpy()
            difference = numbers @ weights.numpy() - expected.numpy()
            return math.sqrt(np.vdot(difference, difference)), math.sqrt(np.vdot(numbers, numbers))
        difference = expected.addmv(block, weights, alpha=-1)
        return _fetched(block, difference)

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
        return sent(array, like.key.device).to(like.dtype)

    def native(self, given: Any, like: Value) -> Tensor:
        made = given.detach() if isinstance(given, torch.Tensor) else torch.as_tensor(np.asarray(given))
        wider = like.dtype.is_complex or not made.dtype.is_complex
        return made.to(device=like.key.device, dtype=like.dtype if wider else made.dtype)

    def numpy(self, array: Tensor) -> npt.NDArray[Any]:
        seen = self.at_hand(array)
        if seen is not None:
            return seen[0]
        return in_numpy(array.detach().resolve_conj().resolve_neg())

    def at_hand(self, *arrays: Tensor) -> list[npt.NDArray[Any]] | None:
        """The numbers as NumPy sees them: where they are, or in one transfer from a device. None where they are many."""
        count, here = 0, True
        for array in arrays:
            if array.dtype not in NUMPY or array.requires_grad or array.is_neg():
                return None
            count += array.numel()
            here = here and array.is_cpu
        if here:
            return [array.numpy() for array in arrays] if count <= LARGE else None
        # a GPU takes longer to be told a handful of operations than so few numbers take to travel
        if count > AT_HAND or len({(array.dtype, array.is_cuda) for array in arrays}) > 1:
            return None
        return brought(arrays) if arrays[0].is_cuda else None

    def mark(self, array: Tensor) -> int | None:
        """A number that changes when anybody writes to the array; None where torch does not tell."""
        return None if array.is_inference() else array._version

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

    def index(self, positions: Positions, like: Value) -> Tensor:
        return sent(np.asarray(positions, dtype=np.int64), like.key.device)

    def only(self, array: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, array, 0)

    def gather(self, array: Tensor, index: Tensor) -> Tensor:
        return array.index_select(0, index)

    def picked(self, array: Tensor, index: Tensor) -> npt.NDArray[Any] | None:
        """Some numbers of a flat array in NumPy's hands; None unless they are the ones in it that are not zero."""
        values = array.index_select(0, index)
        alive = torch.stack([torch.count_nonzero(values), torch.count_nonzero(array)]).tolist()
        return self.numpy(values) if alive == [index.numel()] * 2 else None

    def scatter(self, shape: Shape, index: Tensor, values: Tensor, like: Value) -> Tensor:
        made = zeros((math.prod(shape),), like.dtype, like.key.device)
        return made.scatter_(0, index, values.to(like.dtype)).view(shape)

    def ones_at(self, shape: Shape, index: Tensor, like: Value) -> Tensor:
        """Zeros of this shape, and ones at some places of the flat array."""
        return zeros((math.prod(shape),), like.dtype, like.key.device).scatter_(0, index, 1).view(shape)

    def lay(self, shape: Shape, values: Tensor, start: int, strides: Shape, dtype: torch.dtype) -> Tensor:
        """Zeros of this shape with the values among them, the first at `start` of the flat array, the others in steps."""
        made = zeros(shape, dtype, values.device)
        made.as_strided(values.shape, strides, start).copy_(values)
        return made

    def add_laid(self, matrix: Tensor, values: Tensor, start: int, strides: Shape) -> Tensor:
        """The same on top of an array that nobody else has."""
        matrix = matrix.contiguous()
        matrix.as_strided(values.shape, strides, matrix.storage_offset() + start).add_(values)
        return matrix

    def sum_at(self, size: int, index: Tensor, values: Tensor) -> Tensor:
        return torch.zeros(size, dtype=values.dtype, device=values.device).scatter_add_(0, index, values)

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

    def maxima(self, *arrays: Tensor) -> list[float]:
        if not all(array.numel() for array in arrays):
            return [self.largest(array) for array in arrays]
        if all(array.is_cpu and array.dtype in NUMPY and array.numel() <= AT_HAND for array in arrays):
            return [float(array.numpy().max()) for array in arrays]
        if not arrays[0].is_cuda:
            return torch.stack([array.max().double() for array in arrays]).tolist()
        # of what is not negative, the largest is the maximum norm: one operation for all arrays
        return torch.stack(torch._foreach_norm(list(arrays), math.inf)).tolist()

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

    def finite_only(self, *arrays: Tensor) -> tuple[Tensor, ...] | None:
        stacked = torch.stack([torch.isfinite(array) for array in arrays]).all(0)
        if bool(stacked.all()):
            return arrays
        return tuple(array[stacked] for array in arrays) if bool(stacked.any()) else None

    def itemsize(self, value: Value) -> int:
        size: int = value.dtype.itemsize
        return size

    def precision(self, value: Value) -> float:
        return TENSOR_FLOAT if _rounded_by_the_device(value) else float(torch.finfo(value.dtype).eps)

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
        import psutil

        return int(psutil.virtual_memory().available)
