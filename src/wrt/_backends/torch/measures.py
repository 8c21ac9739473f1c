"""Tensors as double-precision NumPy arrays and back: what a diagnosis looks at."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat
from wrt._core.evidence import Numbers


def like(cotangent: Numbers, edge: GradientEdge) -> Tensor:
    meta = edge.node._input_metadata[edge.output_nr]
    return torch.as_tensor(cotangent).to(meta.dtype).to(meta.device).reshape(tuple(meta.shape))


def as_numbers(tensor: Tensor | None) -> Numbers | None:
    if tensor is None or not isinstance(tensor, Tensor):
        return None
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to("cpu", torch.float64).numpy()


def largest(gradients: Sequence[Tensor | None]) -> list[float | None]:
    """The largest absolute element of each; NaN where one is NaN."""
    ends: list[Tensor] = []
    for gradient in gradients:
        if gradient is not None and gradient.numel():
            dense = gradient.detach() if gradient.layout == torch.strided else gradient.detach().to_dense()
            low, high = torch.aminmax(dense.abs() if dense.is_complex() else dense)  # ten times as fast as a norm
            ends += [low.double(), high.double()]
    found = torch.stack(ends).abs().reshape(-1, 2).amax(1).tolist() if ends else []
    sizes = iter(found)
    return [None if g is None else next(sizes) if g.numel() else 0.0 for g in gradients]


class quiet:
    """Outside the user's modes, hooks of ours included; nothing is noted."""

    def __enter__(self) -> None:
        self._undisturbed = compat.Undisturbed()
        self._undisturbed.__enter__()
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *reason: Any) -> None:
        self._caught.__exit__(*reason)
        self._undisturbed.__exit__(*reason)


class Lazy(dict[int, "Numbers | None"]):
    """Gradients by value, made numbers of when they are looked at: most never are."""

    def __getitem__(self, number: int) -> Numbers | None:
        found: Any = dict.__getitem__(self, number)
        if isinstance(found, Tensor):
            found = self[number] = as_numbers(found)
        return found

    def get(self, number: int, otherwise: Any = None) -> Any:
        try:
            return self[number]
        except KeyError:
            return otherwise

    def values(self) -> Any:
        return [self[number] for number in self]

    def items(self) -> Any:
        return [(number, self[number]) for number in self]
