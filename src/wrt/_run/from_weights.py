"""Rows of y = W h start as rows of W at h: the last layer is never multiplied by the identity."""

from __future__ import annotations

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.index import Elements, Positions
from wrt._core.protocol import Array, CannotBatch, Linear
from wrt._core.report import Report, Step
from wrt._planner import cost
from wrt._run.at_once import FROM_WEIGHTS, at_once, from_weights_because, trusted
from wrt._run.columns import pull_columns
from wrt._run.direct import Proof, Swept, holds, sweep_lines

FAR = 4  # rows for each column beyond which columns are swept without a closer look


def sweep_from_weights(ask: Ask, linear: Linear, flow: Flow, report: Report, *, proof: Proof) -> Swept | None:
    """Every row, begun one layer further; None where y is no such product, or where the answer does not hold."""
    whole = at_once(ask, batches="trusted", from_weights=True) if proof != "later" and trusted(ask.y) else None
    if whole is not None:
        report.take(whole.report())
        return Swept(whole.array, "pull", True)
    arrays = ask.y.record.backend.arrays
    started = flow.weights()
    if started is None:
        return None
    value, seeds = started  # (y.size, *value.shape)
    inner = Ask(value, Elements.all(value.shape), ask.x)
    inward = ask.y.record.linear(value, ask.x.values)
    picked = seeds if ask.rows.everything else arrays.take(seeds, ask.rows.positions, 0)
    rung = inward.pull_rungs[0]

    def sweep(rows: Positions, probe: Array | None) -> Array | None:
        return pull_columns(inner, inward, picked[int(rows[0]) : int(rows[-1]) + 1], rung)

    step = Step(FROM_WEIGHTS, "pull", rung, 0, 0)
    try:
        found = sweep_lines(ask, linear, report, sweep, step, proof=proof)
    except CannotBatch:
        return None
    if found is None or not holds(report):
        return None
    report.strategy, report.because = "direct", from_weights_because(ask)
    return found


def pays(flow: Flow, m: int, n: int) -> bool:
    """Whether rows from the weights cost less than columns."""
    if (m > FAR * n and not flow.accelerated) or flow.weights() is None:
        return False
    passed = flow.between(frozenset({0}), frozenset(flow.xs))
    inner = [tensor for tensor in passed if tensor and flow.products[tensor] < flow.products[0] + flow.products[1]]
    return cost.seconds(flow, inner, m) <= cost.push_seconds(flow, passed, n)
