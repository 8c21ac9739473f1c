"""`assert_depends` and `assert_independent`: about two tensors, handles, or elements of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import wrt
from wrt import d
from wrt._testing.probe import REPRODUCED, SCALE
from wrt._testing.verdict import Failed, Proven, Undecided, assertion
from wrt.errors import NoPath, NotRecorded
from wrt.extend import numbers


@assertion
def assert_depends(y: Any, x: Any) -> Proven:
    """y depends on x, structurally (a gradient path leads there) and numerically (its derivative is not zero here).

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> assert_depends(x.sum(), x)
    y depends on x
      a gradient path, and derivatives that are not zero at these numbers; 1 pass
    """
    names = name(y, "y"), name(x, "x")
    try:
        J = d(y) / d(x)
        g = numbers(_weights(J, 0) @ J)
    except (NoPath, NotRecorded) as missing:
        raise Failed(f"{names[0]} does not depend on {names[1]}: {missing.what}", missing.where, missing.write) from None
    if not np.isfinite(g).all():
        raise _not_finite(names, g)
    if not np.any(g):
        connected = J.connected
        raise Failed(
            f"{names[0]} does not depend on {names[1]} here: every derivative is 0",
            "a gradient path leads there, but nothing comes through at these numbers"
            if connected
            else "no operation leads from one to the other",
            f"ask wrt.why({names[0]}, {names[1]}) where it is lost",
        )
    return Proven(
        f"{names[0]} depends on {names[1]}",
        "a gradient path, and derivatives that are not zero at these numbers",
        1,
    )


@assertion
def assert_independent(y: Any, x: Any) -> Proven:
    """No element of y depends on any element of x: `assert_independent(d(y)[:, 3], d(x)[:, 4:])`.

    Structural where no path leads from one to the other; otherwise numeric, at these numbers, by two random pulls.

    >>> import torch
    >>> x = torch.randn(4, requires_grad=True)
    >>> y = x.cumsum(0)
    >>> assert_independent(d(y)[:2], d(x)[2:])
    y does not depend on x
      every derivative is zero at these numbers; 1 pass
    """
    names = name(y, "y"), name(x, "x")
    claim = f"{names[0]} does not depend on {names[1]}"
    try:
        J = d(y) / d(x)
        if not J.connected:
            numbers(_weights(J, 0) @ J)  # raises where the path is cut rather than absent
            return Proven(claim, "structurally: no path leads from one to the other", 1)
        u = _weights(J, 0)
        g = numbers(u @ J).astype(np.float64)
    except NotRecorded as missing:
        raise Undecided(f"{claim}: cannot tell", missing.what, missing.write) from None
    except NoPath as cut:
        raise Undecided(f"{claim} by its derivative, which says nothing here", cut.where, cut.write) from None
    if not np.isfinite(g).all():
        raise _not_finite(names, g)
    if not np.any(g):
        return Proven(claim, "every derivative is zero at these numbers", 1)
    noise = np.abs(numbers((SCALE * u) @ J).astype(np.float64) / SCALE - g).max()
    if np.abs(g).max() <= REPRODUCED * noise:
        note = f"what came out ({np.abs(g).max():.1e}) was roundoff: it did not scale with its weights"
        return Proven(claim, "every derivative is zero at these numbers, up to roundoff", 2, (note,))
    raise _dependent(J, names, g)


def _weights(J: Any, seed: int) -> Any:
    shape = J.shape[: J.ndim - len(_columns(J))]
    random = np.random.default_rng(seed)
    return random.choice([-1.0, 1.0], size=shape) * random.uniform(0.5, 1.5, size=shape)


def _columns(J: Any) -> tuple[int, ...]:
    whole: tuple[int, ...] = J.shape
    return whole[len(J.rows.shape) :]


def _dependent(J: Any, names: tuple[str, str], g: Any) -> Failed:
    """Name one pair, by halving the rows."""
    column = tuple(int(k) for k in np.unravel_index(int(np.argmax(np.abs(g))), g.shape))
    shape = J.rows.shape
    candidates = np.arange(int(np.prod(shape)) if shape else 1)
    while len(candidates) > 1:
        halves = candidates[: len(candidates) // 2], candidates[len(candidates) // 2 :]
        u = np.zeros((2, *shape))
        for row, half in zip(u, halves, strict=True):
            row.reshape(-1)[half] = _weights(J, 1).reshape(-1)[half]
        first, second = numbers(u @ J)
        candidates = halves[0] if abs(first[column]) >= abs(second[column]) else halves[1]
    output = tuple(int(k) for k in np.unravel_index(candidates[0], shape)) if shape else ()
    value = float(J[(*output, *column)].item().real)
    here = f"{names[0]}{list(output) if output else ''}"
    there = f"{names[1]}{list(column) if column else ''}"
    return Failed(
        f"{here} depends on {there}: the derivative is {value:.3g}",
        "indices count within what was asked for",
        f"ask (d({names[0]}) / d({names[1]})).explain(), or record the run with wrt.trace to see its lines",
    ).at(output, column, value)


def _not_finite(names: tuple[str, str], g: Any) -> Undecided:
    return Undecided(
        f"the gradient from {names[0]} to {names[1]} is not finite",
        f"{int((~np.isfinite(g)).sum())} of {g.size} entries are NaN or infinite",
        f"ask wrt.why({names[0]}, {names[1]}) where they are born",
    )


def name(obj: Any, otherwise: str) -> str:
    """What a handle is called; a letter for anything else."""
    return (obj.name if isinstance(obj, wrt.Handle) else "") or otherwise
