"""Strategies that beat one pass for each row or column, tried where they can pay; each answer is proven or dropped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.plan import Compressed, Direct
from wrt._core.protocol import Linear
from wrt._core.report import Report
from wrt._planner import warm
from wrt._planner.choose import choose
from wrt._planner.strategies.structured import structured
from wrt._run.compressed import Passes, sweep_compressed
from wrt._run.options import current
from wrt._run.sweeps import Sweeps

FEWEST = 64  # a shorter side than this is swept directly: nothing that planning finds would pay for it


def worth_planning(ask: Ask) -> bool:
    """Whether the question is large enough for planning to pay."""
    arrays = ask.y.record.backend.arrays
    if min(ask.m, ask.n) < FEWEST or current().way is not None or not hasattr(arrays, "scatter"):
        return False
    return not (arrays.is_complex(ask.y) or any(map(arrays.is_complex, ask.x.values)))


def planned(ask: Ask, linear: Linear, report: Report) -> Passes | None:
    """A proven answer in fewer passes, or None: then rows or columns are swept directly."""
    key = warm.key_of(ask)
    sweeps = Sweeps(ask, linear, report)
    plan = warm.recall(key)
    if isinstance(plan, Direct):
        return None
    if isinstance(plan, Compressed):
        found = _tried(ask, plan, sweeps, report, known=True)
        if found is not None:
            return found
        warm.forget(key)
    plan = choose(ask, can_push=bool(linear.push_rungs))
    better, _ = structured(ask, lambda rows: _support(sweeps, rows), plan)
    if better is not None:
        found = _tried(ask, better, sweeps, report, known=False)
        if found is not None:
            warm.remember(key, better)
            return found
    warm.remember(key, plan)
    return None


def _tried(ask: Ask, plan: Compressed, sweeps: Sweeps, report: Report, *, known: bool) -> Passes | None:
    found = sweep_compressed(ask, plan, sweeps, warm=known)
    if found is None:
        return None
    if not found.certificate.passed:
        what = "the plan of last time" if known else "the guess"
        words = found.certificate.words or str(found.certificate)
        report.fallbacks.append(f"{plan.strategy}: {what} was wrong ({words})")
        return None
    report.strategy, report.because, report.certificate = plan.strategy, plan.because, found.certificate
    if known:
        report.notes.append("the plan of an earlier, identical question, proven again")
    return found


def _support(sweeps: Sweeps, rows: Positions) -> npt.NDArray[np.bool_]:
    """Where some rows are nonzero; a NaN counts."""
    ask = sweeps.ask
    arrays = ask.y.record.backend.arrays
    weights = np.zeros((len(rows), ask.m))
    weights[np.arange(len(rows)), rows] = 1.0
    found = sweeps.sweep(arrays.from_numpy(weights, ask.y), "sampled rows")
    if found is None:
        return np.zeros((len(rows), ask.n), dtype=bool)
    result: npt.NDArray[np.bool_] = arrays.numpy(found) != 0
    return result
