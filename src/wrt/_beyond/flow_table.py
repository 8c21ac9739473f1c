"""Gradient sizes at every named value of a run, for every sample of a batch, in two passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._beyond.address import Address, address_of, value_at
from wrt._beyond.lift import is_per_sample, mixed, no_axis_of_samples
from wrt._core.value import Value
from wrt._notation.d import d
from wrt.errors import WrongShape

MEASURES = ("max", "mean", "zeros")
SEED = 37


@dataclass(frozen=True, slots=True)
class Places:
    """The loss, and the named values whose gradients are looked at; both as addresses, with their shapes for one sample."""

    loss: Address
    names: tuple[str, ...]
    at: tuple[Address, ...]
    shapes: tuple[tuple[int, ...], ...]
    loss_shape: tuple[int, ...]


def places_of(run: Any, found: Any, pair: Any) -> Places:
    """Every named float of the run of one sample that has an axis of samples, in the order of the run.

    `pair` is the run of two samples, which tells an axis of samples from an axis of length one; None with one sample.
    """
    y = d(found)
    recording = run._one
    if y.elements.size != 1 or not y.elements.everything:
        raise WrongShape(
            "the loss of one sample is not one number", f"its shape is {y.value.shape}", 'give t["loss"] with shape (1,)'
        )
    names: list[str] = []
    values: list[Value] = []
    for name in recording.names:
        value = recording.bound(recording.names.all(name)[-1])
        known = any(recording.same(value, other) for other in (*values, y.value))
        followed = value.shape[:1] == (1,) and "float" in str(value.dtype) and recording.has_history(value)
        if followed and not known and _in_pair(recording, value, pair):
            names.append(name)
            values.append(value)
    addresses = tuple(address_of(recording, value) for value in values)
    shapes = tuple(value.shape for value in values)
    return Places(address_of(recording, y.value), tuple(names), addresses, shapes, y.value.shape)


def _in_pair(recording: Any, value: Value, pair: Any) -> bool:
    return pair is None or is_per_sample(value_at(pair._one, address_of(recording, value)), value.shape, 2)


def flow_table(places: Places, recording: Any, count: int) -> npt.NDArray[np.float64]:
    """(count, places, measures); zeros where no gradient arrives, NaN where samples share the value."""
    y = value_at(recording, places.loss)
    if count > 1 and not is_per_sample(y, places.loss_shape, count):
        raise no_axis_of_samples("the loss", places.loss_shape, y.shape, count)
    xs = [value_at(recording, one) for one in places.at]
    arrays = recording.backend.arrays
    linear = recording.linear(y, xs)
    signs = np.random.default_rng(SEED).choice([-1.0, 1.0], count)
    plain, signed = (
        linear.pull(arrays.reshape(arrays.from_numpy(one, y), (1, *y.shape)), linear.pull_rungs[-1])
        for one in (np.ones(count), signs)
    )
    table = np.zeros((count, len(xs), len(MEASURES)))
    table[:, :, 2] = 1.0
    for k, (x, g, s) in enumerate(zip(xs, plain, signed, strict=True)):
        if not is_per_sample(x, places.shapes[k], count):
            table[:, k] = np.nan  # samples share it: its gradient is not one sample's
            continue
        if g is None:
            continue
        sizes = np.abs(arrays.numpy(g).reshape(count, -1).astype(np.float64))
        other = arrays.numpy(s).reshape(count, -1).astype(np.float64) * signs[:, None]
        off = np.abs(other - arrays.numpy(g).reshape(count, -1)).max(initial=0.0)
        if off > 2**10 * arrays.precision(x) * max(1e-300, float(sizes.max(initial=0.0))):
            raise mixed(f"the gradient at {places.names[k]} changes by {off:.1e} with the signs of other samples")
        table[:, k] = np.stack([sizes.max(1), sizes.mean(1), (sizes == 0).mean(1)], axis=1)
    return table
