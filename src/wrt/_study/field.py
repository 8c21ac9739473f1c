"""`wrt.receptive_field`: which part of the input an output element can see, and which part it does see.

What it *can* see is found layer by layer: between two narrow places of the run, a random pull from the positions seen so
far gives the positions seen one layer earlier, over several random inputs at once. So a maximum, which lets through one
element of its window at a time, still shows its whole window. What it *does* see is the size of the derivative itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt import _pictures
from wrt._core.protocol import random_signs
from wrt._notation.again import kept
from wrt._notation.d import d
from wrt._notation.trace import Handle, Trace, trace
from wrt._study.tensors import (
    Numbers,
    finder,
    handle_of,
    is_float,
    narrow_places,
    numbers,
    precision,
    tensor_like,
    tensors_of,
)  # fmt: skip
from wrt.errors import NotDifferentiable, WrongShape

Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the output element can see of one layer: first and last position along each axis (last excluded)."""

    name: str
    shape: tuple[int, ...]
    box: Box

    @property
    def size(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.box)

    def __repr__(self) -> str:
        return f"{self.name}: {' x '.join(map(str, self.size))} of {' x '.join(map(str, self.shape))}"


@dataclass(frozen=True, slots=True)
class Field:
    """`theoretical`: what the element can see of the input; `effective`: where 95 % of its gradient lies.

    `box` and `effective_box` say where; `map` is the mean size of the gradient; `layers` goes from the output back.
    """

    at: tuple[int, ...]
    box: Box
    effective_box: Box
    map: Numbers
    mask: Numbers
    layers: tuple[Seen, ...]

    @property
    def theoretical(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.box)

    @property
    def effective(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.effective_box)

    def __repr__(self) -> str:
        size, effective = (" x ".join(map(str, one)) for one in (self.theoretical, self.effective))
        where = ", ".join(f"{start}:{stop}" for start, stop in self.box)
        return f"Field  output {list(self.at)} can see {size} of the input, at [{where}]; 95 % of its gradient in {effective}"

    def plot(self, ax: Any = None) -> Any:
        """The gradient over the input, with both fields drawn around it."""
        flat = self.map if self.map.ndim == 2 else self.map.reshape(1, -1) if self.map.ndim == 1 else self.map.sum(0)
        ax = _pictures.heat(flat, ax, title=f"what output {list(self.at)} sees", signed=False)
        from matplotlib.patches import Rectangle

        for box, color, words in ((self.box, "#4cc9f0", "can see"), (self.effective_box, "#80ed99", "95 % of the gradient")):
            (top, bottom), (left, right) = box[-2:] if len(box) > 1 else ((0, 1), box[0])
            frame = Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, edgecolor=color, lw=2, label=words)
            ax.add_patch(frame)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2, frameon=False)
        return ax


def receptive_field(
    model: Callable[..., Any], x: Any, at: int | Sequence[int], *more: Any, of: Any = None, axes: Sequence[int] | None = None,
    **keywords: Any,
) -> Field:  # fmt: skip
    """What the output element(s) at a position can see of the input, and where its gradient lies.

    `at` is a position along the spatial axes, for all channels together: (5, 5) for a map of shape (batch, channels,
    height, width). `axes` names those axes where they are not the usual ones of the framework. `of` chooses a value of
    the run instead of the output, by handle, by name, or as a function of the run.

    >>> import torch
    >>> two = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.ReLU(), torch.nn.Conv1d(2, 1, 3, stride=2))
    >>> receptive_field(two, torch.zeros(1, 1, 20), at=4).theoretical
    (5,)
    """
    find = finder(of)
    with kept(model):
        first = trace(model, x, *more, **keywords)
        given = first.inputs[0]
        if not is_float(given):
            raise NotDifferentiable("the input has no derivative", f"it is of {given.dtype}", "start at the embedding")
        run = trace(model, tensor_like(_samples(numbers(given)), given), *more, **keywords)
    return _field(run, find(run), _place(at), _axes(run, axes))


def _field(run: Trace, y: Handle, at: tuple[int, ...], axes: tuple[int, ...]) -> Field:
    x = run.inputs[0]
    if len(at) != len(axes) or len(y.shape) <= max(axes):
        raise WrongShape(
            f"at={at} is no position of an output of shape {y.shape}",
            f"its axes of position are {axes}",
            "give one number for each of them, or name others with axes=",
        )
    mask = np.zeros([y.shape[axis] for axis in axes], dtype=bool)
    mask[at] = True
    layers = [Seen(y.name or "output", mask.shape, _box(mask))]
    chain = [handle for handle in _chain(run, y) if len(handle.shape) == len(x.shape)]
    values = [x, *chain, y]
    start = _whole(mask, y.shape, axes)
    for earlier, later in zip(reversed(values[:-1]), reversed(values[1:])):
        mask = _seen(later, earlier, start, axes)
        start = _whole(mask, earlier.shape, axes)
        layers.append(Seen("input" if earlier is x else earlier.name, mask.shape, _box(mask)))
    sizes = _effective(y, x, at, axes)
    return Field(at, _box(mask), _massive(sizes), sizes, mask, tuple(layers))


def _chain(run: Trace, y: Handle) -> list[Handle]:
    """The named narrow places between the input and y."""
    ends = tensors_of(run, y)
    places = narrow_places(run, tensors_of(run, run.inputs[0]), ends)
    found = [handle_of(run, place) for place in places if place not in ends]
    return [handle for handle in found if handle is not None and is_float(handle)]


def _seen(later: Handle, earlier: Handle, start: Numbers, axes: tuple[int, ...]) -> Numbers:
    """Positions of the earlier value that some of the chosen positions of the later one depend on."""
    weights = np.where(start, random_signs(1, start.size, seed=0).reshape(start.shape), 0.0)
    g = np.abs(numbers(weights @ (d(later) / d(earlier))).astype(np.float64))
    others = tuple(k for k in range(g.ndim) if k not in axes)
    top = g.max(axis=others)
    return np.asarray(top > 8 * precision(earlier) * top.max(initial=0.0))


def _effective(y: Handle, x: Handle, at: tuple[int, ...], axes: tuple[int, ...]) -> Numbers:
    """Mean size of the derivative over random inputs and input channels, for one random mixture of output channels."""
    mask = np.zeros([y.shape[axis] for axis in axes], dtype=bool)
    mask[at] = True
    random = np.random.default_rng(1)
    weights = np.where(_whole(mask, y.shape, axes), random.standard_normal(y.shape), 0.0)
    g = np.abs(numbers(weights @ (d(y) / d(x))).astype(np.float64))
    return np.asarray(g.mean(axis=tuple(k for k in range(g.ndim) if k not in axes)))


def _whole(mask: Numbers, shape: tuple[int, ...], axes: tuple[int, ...]) -> Numbers:
    """A mask of positions, for every sample and channel."""
    form = [shape[k] if k in axes else 1 for k in range(len(shape))]
    return np.broadcast_to(mask.reshape(form), shape)


def _box(mask: Numbers) -> Box:
    """First and last position with anything, along each axis."""
    spans = []
    for axis in range(mask.ndim):
        used = np.flatnonzero(mask.any(axis=tuple(k for k in range(mask.ndim) if k != axis)))
        spans.append((int(used[0]), int(used[-1]) + 1) if used.size else (0, 0))
    return tuple(spans)


def _massive(sizes: Numbers) -> Box:
    """The narrowest interval along each axis that holds 95 % of the gradient."""
    spans = []
    for axis in range(sizes.ndim):
        along = sizes.sum(axis=tuple(k for k in range(sizes.ndim) if k != axis))
        total = np.concatenate([[0.0], np.cumsum(along)])
        stops = np.searchsorted(total, total[:-1] + 0.95 * total[-1] * (1 - 1e-12))
        widths = np.where(stops < len(total), stops - np.arange(len(along)), len(along) + 1)
        first = int(widths.argmin())
        spans.append((first, first + int(widths[first])) if total[-1] > 0 else (0, 0))
    return tuple(spans)


def _samples(x: Numbers) -> Numbers:
    """A batch of 24 random inputs around the first sample."""
    one = x[:1].astype(np.float64)
    spread = float(one.std()) or 1.0
    return one + spread * np.random.default_rng(0).standard_normal((24, *one.shape[1:]))


def _place(at: int | Sequence[int]) -> tuple[int, ...]:
    return (int(at),) if isinstance(at, (int, np.integer)) else tuple(int(k) for k in at)


def _axes(run: Trace, axes: Sequence[int] | None) -> tuple[int, ...]:
    """Where positions stand: after the channels in torch, before them elsewhere."""
    ndim = len(run.inputs[0].shape)
    if axes is not None:
        return tuple(axis % ndim for axis in axes)
    return tuple(range(2, ndim)) if run.graph.framework == "torch" else tuple(range(1, ndim - 1))
