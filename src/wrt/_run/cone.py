"""Rows and columns of a local map, by the patches between them alone; proven like any other answer."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report, Step
from wrt._planner.strategies.cone import cone
from wrt._run.at_once import SMALLEST
from wrt._run.certify import certify, compare, signs, tolerance
from wrt._run.direct import Swept
from wrt._run.options import current

LARGE = 2**12  # numbers of y and of x below which whole passes are quick
IN_THE_BATCH = "as one more row of patches of proven operations"


def may_be_local(ask: Ask) -> bool:
    """Whether rows and columns of two large tensors are asked for, so that patches could be much smaller than those."""
    part = ask.x.parts[0]
    if ask.m < 2 or ask.n < 2 or len(ask.x.parts) > 1 or part.into is not None or part.component:
        return False
    if min(ask.y.size, part.value.size) < LARGE or ask.rows.everything or part.elements.everything:
        return False
    arrays = ask.y.record.backend.arrays
    return hasattr(ask.y.record, "cone") and current().way is None and not arrays.is_complex(ask.y)


def sweep_cone(ask: Ask, linear: Linear, report: Report) -> Swept | None:
    """The (m, n) block; None where the map is not known to be local, where patches do not pay or do not hold."""
    record: Any = ask.y.record  # one that knows cones, see `may_be_local`
    arrays, x = record.backend.arrays, ask.x.parts[0]
    patches = record.cone(ask.y, ask.rows, x.value, x.elements)
    plan = None if patches is None else cone(ask.m, ask.n, patches.work, patches.whole)
    if patches is None or plan is None:
        return None
    # the rules of patches are held to row loops by their tests; only hooks of the user could say otherwise
    joined = not record.hooked() and current().certify
    batch = patches.pull(arrays.weights(_seeds(ask.m, joined), ask.y).view(-1, ask.m))
    if batch is None:
        return None
    found = batch[: ask.m]
    report.steps.append(Step("rows through patches", "pull", "in one batch", ask.m, 1))
    report.certificate = _joined(ask, batch, patches.operations, report) if joined else _plain(ask, linear, found, report)
    if report.certificate.kind != "none" and not report.certificate.passed:
        report.fallbacks.append(f"cone: patches do not say what whole passes do ({report.certificate})")
        return None
    report.strategy, report.because = plan.strategy, plan.because
    return Swept(found, "pull", report.certificate.finite or arrays.all_finite(found))


@lru_cache(maxsize=32)
def _seeds(m: int, joined: bool) -> npt.NDArray[np.float64]:
    """A one for each row, and the probe."""
    return np.concatenate([np.eye(m), signs(m)]) if joined else np.eye(m)


def _plain(ask: Ask, linear: Linear, found: Array, report: Report) -> Certificate:
    return certify(ask, linear, found, report) if current().certify else Certificate("none")


def _joined(ask: Ask, batch: Array, operations: int, report: Report) -> Certificate:
    """The probe as the last row of the batch, next to the same sum of the rows before it.

    It is held to a bound that is never larger than the sum it is compared with otherwise.
    """
    report.steps.append(Step("certificate, one more row of the batch", "pull", "in one batch", 1, 0))
    arrays = ask.y.record.backend.arrays
    numbers = arrays.numpy(batch)  # a small block: quicker looked at in NumPy
    block = numbers[:-1].reshape(-1)
    least = SMALLEST * math.sqrt(np.vdot(block, block) / ask.n)
    if 0.0 < least < math.inf:
        residual = float(abs(_weights(ask.m) @ numbers).max()) / least
        if residual <= (allowed := tolerance(ask, operations)):
            return Certificate("probe", residual, allowed, finite=True, probe=IN_THE_BATCH)
    found = compare(ask, arrays.from_numpy(signs(ask.m), ask.y), batch[: ask.m], batch[ask.m :])
    return replace(found, probe=IN_THE_BATCH)


@lru_cache(maxsize=32)
def _weights(m: int) -> npt.NDArray[np.float64]:
    """The probe's weight of each row, and the probe itself taken off."""
    return np.append(signs(m)[0], -1.0)
