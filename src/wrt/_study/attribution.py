"""Saliency as people know it, on top of the notation: for any element of any named value, as plain tensors.

`of` says what is explained: an index of the output, a handle of an earlier run, a name, or a function of the run. Several
elements stand for their sum, so `of=(slice(None), 3)` explains class 3 for every sample of a batch at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from wrt import _backends
from wrt._core.index import Elements
from wrt._core.thresholds import BLOCK_BYTES
from wrt._notation.again import kept
from wrt._notation.d import d
from wrt._notation.joined import reshaped
from wrt._notation.trace import Handle, Trace, trace
from wrt._study.tensors import Numbers, finder, numbers
from wrt.errors import NotDifferentiable, WrongIndex, WrongQuery, WrongShape

Copies = Callable[[slice], Any]
"""Some of the inputs at which gradients are taken, with an axis for them in front."""


def gradient(model: Callable[..., Any], x: Any, of: Any = None, *more: Any, **keywords: Any) -> Any:
    """The derivative of what is explained with respect to the input, in its shape.

    >>> import torch
    >>> gradient(lambda x: x**2, torch.tensor([[1.0, 3.0]]), of=(0, 1))
    tensor([[0., 6.]])
    """
    return _gradient(_Explained(model, of, more, keywords), x)


def gradient_times_input(model: Callable[..., Any], x: Any, of: Any = None, *more: Any, **keywords: Any) -> Any:
    """The derivative times the input: how much each element contributes, to first order.

    >>> import torch
    >>> gradient_times_input(lambda x: x**2, torch.tensor([[1.0, 3.0]]), of=(0, 1))
    tensor([[ 0., 18.]])
    """
    return _gradient(_Explained(model, of, more, keywords), x) * x


def integrated_gradients(
    model: Callable[..., Any], x: Any, of: Any = None, *more: Any, baseline: Any = 0.0, steps: int = 50, **keywords: Any
) -> Any:
    """The mean derivative on the straight way from a baseline to the input, times the distance (Gauss–Legendre).

    What it attributes sums up to the difference that the input makes against the baseline. Every sample of a batch goes
    its own way; all steps run as one batch where they fit.

    >>> import torch
    >>> integrated_gradients(lambda x: x**3, torch.tensor([[1.0, 3.0]]), of=(0, 1)).round(decimals=4)
    tensor([[ 0., 27.]])
    """
    places, weights = np.polynomial.legendre.leggauss(steps)
    explained, way = _Explained(model, of, more, keywords), x - baseline
    there = explained.native(((1 + places) / 2).reshape(-1, *[1] * len(x.shape)), x)
    return _weighted_sum(explained, x, lambda some: way * there[some] + baseline, weights / 2) * way


def smooth_grad(
    model: Callable[..., Any], x: Any, of: Any = None, *more: Any, noise: float | Numbers = 0.15, samples: int = 25,
    seed: int = 0, **keywords: Any,
) -> Any:  # fmt: skip
    """The mean derivative over copies of the input with noise: a standard deviation, or an array of one for each copy."""
    explained = _Explained(model, of, more, keywords)
    drawn = noise if isinstance(noise, np.ndarray) else _noise(float(noise), (samples, *map(int, x.shape)), seed)
    noises = explained.native(drawn, x)
    return _weighted_sum(explained, x, lambda some: x + noises[some], np.full(len(drawn), 1 / len(drawn)))


def grad_cam(
    model: Callable[..., Any], x: Any, of: Any = None, *more: Any, layer: Any, positive: bool = True, **keywords: Any
) -> Any:
    """What a layer saw, its channels weighted by their mean derivative and summed: (batch, 1, height, width) in torch.

    `layer` is a name, a handle or a function of the run; `positive` keeps what speaks for the target only.
    """
    explained = _Explained(model, of, more, keywords)
    if explained.needs_no_recording(x) and isinstance(layer, str) and hasattr(model, "get_submodule"):
        return _plain_cam(explained, x, layer, positive)
    run = explained.run(x, values=True)
    maps = finder(layer)(run)
    first = run.graph.framework == "torch"
    axis = 1 if first else len(maps.shape) - 1
    if len(maps.shape) < 3:
        raise WrongShape(f"{maps.name} has no maps", f"its shape is {maps.shape}", "name the output of a convolution")
    y = explained.find(run)
    g = numbers(np.ones(y.shape) @ (d(y) / d(maps))).astype(np.float64)
    positions = tuple(k for k in range(1, g.ndim) if k != axis)
    weights = g.mean(axis=positions, keepdims=True)
    cam = (weights * numbers(maps)).sum(axis=axis, keepdims=True)
    value, _ = maps.__wrt_differential__()
    return value.record.backend.arrays.native(np.maximum(cam, 0) if positive else cam, value)


def _plain_cam(explained: _Explained, x: Any, layer: str, positive: bool) -> Any:
    """The same without a recording: a hook sees what the layer gives."""
    seen: list[Any] = []
    part = explained.model.get_submodule(layer)  # type: ignore[attr-defined]
    hook = part.register_forward_hook(lambda _, __, output: seen.append(output))
    try:
        y, _ = explained.run_plain(x)
    finally:
        hook.remove()
    maps = seen[-1]
    if maps.ndim < 3:
        raise WrongShape(f"{layer} has no maps", f"its shape is {tuple(maps.shape)}", "name the output of a convolution")
    g = (d(explained.chosen(y).sum()) / d(maps)).value
    weights = g.mean(dim=tuple(range(2, g.ndim)), keepdim=True)
    cam = (weights * maps.detach()).sum(dim=1, keepdim=True)
    return cam.clamp_min(0) if positive else cam


class _Explained:
    """A model and what is explained of it."""

    def __init__(self, model: Callable[..., Any], of: Any, more: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.model, self.of, self.more, self.keywords = model, of, more, keywords

    @property
    def find(self) -> Callable[[Trace], Handle]:
        """What is explained, in another run."""
        return finder(self.of)

    def run(self, x: Any, *, values: bool = False) -> Trace:
        with kept(self.model):
            return trace(self.model, x, *self.more, values=values, **self.keywords)

    def chosen(self, y: Any, *, copies: bool = False) -> Any:
        """The elements of an output that are explained; of every copy, where those lie along the first axis."""
        index = self.of if isinstance(self.of, tuple) else (... if self.of is None else self.of,)
        try:
            return y[(slice(None), *index)] if copies else y[index]
        except IndexError:
            shape = tuple(y.shape)[1:] if copies else tuple(y.shape)
            raise WrongIndex(
                f"of={self.of!r} is no index of the output",
                f"its shape is {shape}, samples first where the model takes a batch",
                "write of=(0, 3) for element 3 of the first sample, of=(slice(None), 3) for that of every sample",
            ) from None

    @property
    def plain(self) -> bool:
        """Whether only the output is asked about, so that no recording is needed."""
        return not isinstance(self.of, (Handle, str)) and not callable(self.of)

    def needs_no_recording(self, x: Any) -> bool:
        """Whether the question needs no recording: a torch tensor, and an index of the output."""
        backend = _backends.owner(x)
        if backend is None and not isinstance(x, np.ndarray):
            raise _backends.not_a_tensor(x)
        if backend is None or backend.name != "torch":
            return False
        if not x.is_floating_point():
            raise NotDifferentiable("the input has no derivative", f"it is of {x.dtype}", "explain the embedding")
        return self.plain

    def run_plain(self, x: Any) -> tuple[Any, Any]:
        """Output and input of a plain run that can be differentiated."""
        followed = x.detach().requires_grad_()
        with kept(self.model):
            return _first(self.model(followed, *self.more, **self.keywords)), followed

    @staticmethod
    def native(array: Numbers, x: Any) -> Any:
        """Numbers in the dtype of the input, to be added to it or multiplied by it; in torch where it lives."""
        backend = _backends.owner(x)
        if backend is not None and backend.name == "torch":
            return backend.arrays.native(array, backend.lift(x.detach().requires_grad_()))
        return array.astype(numbers(x).dtype)

    def sides(self, x: Any) -> tuple[Any, Any]:
        """d(y) and d(x) of one recorded run; y is whole, elements are chosen by the caller."""
        run = self.run(x)
        y, _ = self.find(run).__wrt_differential__()
        return d(Handle(run._one, y)), d(run.inputs[0])

    def elements(self, shape: tuple[int, ...], x: Any) -> Elements:
        """Which elements of y are explained, in a run of the given batch."""
        if self.plain:
            return Elements.all(shape).pick(... if self.of is None else self.of)
        if isinstance(self.of, Handle):
            return self.of.__wrt_differential__()[1]
        return self.find(self.run(x)).__wrt_differential__()[1]


def _gradient(explained: _Explained, x: Any) -> Any:
    if explained.needs_no_recording(x):
        y, followed = explained.run_plain(x)
        return (d(explained.chosen(y).sum()) / d(followed)).value
    side, by = explained.sides(x)
    return _pull(side, by, explained.elements(side.shape, x).positions, None)


def _pull(y: Any, by: Any, positions: Any, weights: Numbers | None) -> Any:
    """One pull of a weighted sum of elements; a single element needs no weights."""
    if len(positions) == 1 and weights is None:
        return (y[tuple(int(k) for k in np.unravel_index(int(positions[0]), y.shape))] / by).value
    u = np.zeros(int(np.prod(y.shape)), dtype=np.float64)
    np.add.at(u, positions, 1.0 if weights is None else weights)
    return u.reshape(y.shape) @ (y / by)


def _weighted_sum(explained: _Explained, x: Any, copies: Copies, weights: Numbers) -> Any:
    """The weighted sum of gradients at several inputs, run as few batches; one by one where there is no batch axis."""
    shape = tuple(map(int, x.shape))
    size = max(1, BLOCK_BYTES // max(1, int(np.prod(shape)) * 8))  # copies in a batch
    total: Any = None
    for start in range(0, len(weights), size):
        some = slice(start, start + size)
        share = weights[some]
        if not shape:
            return _one_by_one(explained, copies, weights)
        together = reshaped(copies(some), (len(share) * shape[0], *shape[1:]))
        summed = _plain_sum if explained.needs_no_recording(x) else _sum_of_recording
        part = summed(explained, x, together, share)
        if part is None:
            return _one_by_one(explained, copies, weights)
        total = part if total is None else total + part
    return total


def _sum_of_recording(explained: _Explained, x: Any, copies: Any, weights: Numbers) -> Any:
    """The weighted sum over one batch of copies; None where the output has no batch axis."""
    batch = int(x.shape[0])
    y, by = explained.sides(copies)
    arrays = y.value.record.backend.arrays
    if y.shape[:1] != (len(weights) * batch,):
        return None
    chosen = explained.elements((batch, *y.shape[1:]), x).positions
    step = batch * int(np.prod(y.shape[1:]))
    places = np.concatenate([chosen + k * step for k in range(len(weights))])
    g = _pull(y, by, places, np.repeat(weights, len(chosen)))
    return arrays.total(arrays.reshape(g, (len(weights), *map(int, x.shape))), 0)


def _plain_sum(explained: _Explained, x: Any, copies: Any, weights: Numbers) -> Any:
    """The same without a recording."""
    y, followed = explained.run_plain(copies)
    if not y.ndim or y.shape[0] != copies.shape[0]:
        return None
    chosen = explained.chosen(y.reshape(len(weights), x.shape[0], *y.shape[1:]), copies=True)
    g = (d(chosen.sum()) / d(followed)).value.reshape(len(weights), *x.shape)  # each copy has a gradient of its own
    if np.ptp(weights) == 0:
        return g.sum(0) * float(weights[0])
    return (explained.native(weights, x) @ g.reshape(len(weights), -1)).reshape(x.shape)


def _one_by_one(explained: _Explained, copies: Copies, weights: Numbers) -> Any:
    total: Any = None
    for k, weight in enumerate(weights):
        one = copies(slice(k, k + 1))[0]
        g = float(weight) * _gradient(explained, one)
        total = g if total is None else total + g
    return total


def _noise(size: float, shape: tuple[int, ...], seed: int) -> Numbers:
    if size < 0:
        raise WrongQuery(f"noise={size}", "a standard deviation is not negative", "write noise=0.15")
    few = int(np.prod(shape)) <= 2**20
    return (_draw if few else _draw.__wrapped__)(size, shape, seed)


@lru_cache(maxsize=4)
def _draw(size: float, shape: tuple[int, ...], seed: int) -> Numbers:
    """The same seed gives the same noise: for one picture after another it is drawn once. Nobody writes to it."""
    return np.float32(size) * np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _first(output: Any) -> Any:
    """The first tensor of what a model gives."""
    while not hasattr(output, "shape"):
        output = next(iter(output.values() if isinstance(output, dict) else output))
    return output
