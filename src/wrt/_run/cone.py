"""Rows and columns of a local map, by the patches between them alone; proven like any other answer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.plan import Patches
from wrt._core.protocol import Array, Linear
from wrt._core.report import Certificate, Report, Step
from wrt._planner import warm
from wrt._planner.strategies.cone import cone
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
    x = ask.x.parts[0]
    rows, columns = ask.rows.positions, x.elements.positions
    patches = record.cone(ask.y, rows, x.value, columns)
    if patches is None:
        return None
    plan = cone(ask.m, ask.n, patches.work, patches.whole)
    if plan is None:
        return None
    arrays = record.backend.arrays
    key = ("cone", record.backend.name, ask.y.shape, x.value.shape, record.signature(ask.y))
    hooks = record.hooks()
    known = warm.recall(key)
    # the rules of patches are held to row loops by their tests; only hooks of the user could say otherwise
    proven = not hooks or (isinstance(known, Patches) and known.hooks == hooks)
    weights = np.concatenate([np.eye(ask.m), signs(ask.m)]) if proven else np.eye(ask.m)
    batch = patches.pull(arrays.from_numpy(weights, ask.y), rows, columns)
    found = batch[: ask.m]
    report.steps.append(Step("rows through patches", "pull", "in one batch", ask.m, 1))
    report.certificate = _certificate(ask, linear, found, batch[ask.m :] if proven else None, report)
    if report.certificate.kind != "none" and not report.certificate.passed:
        report.fallbacks.append(f"cone: patches do not say what whole passes do ({report.certificate})")
        warm.forget(key)
        return None
    if not proven and report.certificate.kind != "none":
        warm.remember(key, replace(plan, hooks=hooks))
    report.strategy, report.because = plan.strategy, plan.because
    return Swept(found, "pull", report.certificate.finite or arrays.all_finite(found))


def _certificate(ask: Ask, linear: Linear, found: Array, expected: Any, report: Report) -> Certificate:
    if not current().certify:
        return Certificate("none")
    if expected is None:
        return certify(ask, linear, found, report)
    report.steps.append(Step("certificate, one more row of the batch", "pull", "in one batch", 1, 0))
    arrays, u = ask.y.record.backend.arrays, signs(ask.m)  # (1, m)
    block, said = arrays.numpy(found), arrays.numpy(expected)  # a small block: quicker looked at in NumPy
    scale = max(float((np.abs(u) @ np.abs(block)).max()), float(np.abs(said).max()))
    if not 0.0 < scale < math.inf:
        return replace(compare(ask, arrays.from_numpy(u, ask.y), found, expected), probe=IN_THE_BATCH)
    residual = float(np.abs(u @ block - said).max()) / scale
    return Certificate("probe", residual, tolerance(ask), finite=True, probe=IN_THE_BATCH)
