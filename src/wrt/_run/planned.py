"""Strategies that beat one pass for each row or column, tried where they can pay; each answer is proven or dropped."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.index import Positions
from wrt._core.plan import Chain, Compressed, Cut, Direct, Plan, Sum
from wrt._core.protocol import Array, Linear, random_signs
from wrt._core.report import Report
from wrt._core.value import Value
from wrt._planner import cost, warm
from wrt._planner.choose import choose
from wrt._planner.foresee import FEWEST
from wrt._planner.strategies.colored import colored
from wrt._planner.strategies.cut import cut
from wrt._planner.strategies.probed import probed
from wrt._planner.strategies.structured import structured
from wrt._run.at_once import all_rows, trusted
from wrt._run.certify import probe_of
from wrt._run.chained import plan_chain, sweep_chain
from wrt._run.compressed import Passes, sweep_compressed
from wrt._run.cone import may_be_local, sweep_cone
from wrt._run.direct import Swept, sweep_direct
from wrt._run.factored import KNOWN, Factors, sweep_factors
from wrt._run.from_weights import pays, sweep_from_weights
from wrt._run.one_program import sweep_program
from wrt._run.options import current
from wrt._run.summed import plan_sum, sweep_sum
from wrt._run.sweeps import Sweeps
from wrt._sparsity.compose import composed
from wrt._sparsity.samples import Samples

MANY = 256  # rows and columns from which on an irregular pattern is worth its coloring
SPARSE = 0.15  # of a typical row that may be nonzero for it
SUMMED = 31  # the seed of the weights of sums of rows: others than those of the proof
QUICK = 2e-3  # seconds of a direct sweep that planning leaves alone,
FAR = 2.0  # and times as many on a device: samples are looked at on the host, and tables made there have to travel
SIFT = 4e-9  # seconds for each number of a dense answer that is brought to the host and sifted for nonzeros
AT_HAND = 0.3  # of those that are left alone where the graph alone would tell: nothing has to be swept to look at it


def worth_planning(ask: Ask) -> bool:
    """Whether the question is large enough for fewer passes than rows or columns to pay."""
    arrays = ask.y.record.backend.arrays
    if min(ask.m, ask.n) < FEWEST or current().way is not None or not hasattr(arrays, "scatter"):
        return False
    return not (arrays.is_complex(ask.y) or any(map(arrays.is_complex, ask.x.values)))


def quick(ask: Ask) -> float:
    """Seconds of a direct sweep that are less than planning takes where the question is answered."""
    return QUICK * (FAR if ask.accelerated else 1.0)


def too_quick(ask: Ask, flow: Flow | None) -> bool:
    """Whether a direct sweep is expected to be over before planning could gain anything."""
    return expected_seconds(ask, flow) < quick(ask)


def expected_seconds(ask: Ask, flow: Flow | None) -> float:
    """What a direct sweep takes, as far as the graph tells."""
    if flow is None:
        return math.inf
    return cost.cheapest(flow, flow.between(frozenset({0}), frozenset(flow.xs)), ask.m, ask.n)


def sifted_key(ask: Ask) -> Hashable:
    """Where a plan for nonzeros is remembered, if all of J is swept directly."""
    return warm.key_of(ask), "nonzeros"


def planned_block(ask: Ask, linear: Linear, report: Report) -> Swept | None:
    """The (m, n) block by the best plan; None where only a direct sweep is left."""
    patch = sweep_cone(ask, linear, report) if may_be_local(ask) else None
    if patch is not None or not worth_planning(ask):
        return patch
    found = Planned(ask, linear, report, dense=True).answer()
    if found is None or isinstance(found, Swept):
        return found
    return Swept(found.dense(), "pull", found.finite)


class Planned:
    """One question on its way through the strategies."""

    def __init__(self, ask: Ask, linear: Linear, report: Report, *, dense: bool = False, sifted: bool = False) -> None:
        self.ask = ask
        self.dense = dense
        self.sifted = sifted  # nonzeros are asked for: of a direct sweep they would have to be picked out on the host
        self.linear = linear
        self.report = report
        self.sweeps = Sweeps(ask, linear, report)
        self.key: Hashable = warm.key_of(ask)
        self.expected: Array | None = None  # what the engine said of the probe

    @cached_property
    def flow(self) -> Flow | None:
        return _flow_of(self.ask)

    def answer(self) -> Passes | Factors | Swept | None:
        """A proven answer; None where rows or columns have to be swept directly."""
        known = warm.recall(self.key)
        if isinstance(known, Direct) and known.whole and not known.from_weights:
            return None  # looked at before: nothing there
        if known is None and self._glanced():
            return None
        added = self._summed(known) if known is None or isinstance(known, Sum) else None
        if added is not None:
            return added
        found = None if isinstance(known, Chain) else self.in_fewer_passes()
        if found is not None:
            return found
        new = known is None or (isinstance(known, Direct) and not known.whole)
        if isinstance(known, Chain) or (new and not self.too_quick):
            carried = self._chained(known)
            if carried is not None:
                return carried
        begun = self._from_the_weights()
        warm.remember(self.key, replace(self._direct, from_weights=begun is not None))
        return begun

    def in_fewer_passes(self) -> Passes | Factors | None:
        """A proven answer in fewer passes than rows or columns; None where there is none."""
        plan = warm.recall(self.key)
        if self.sifted and (isinstance(plan, Direct) or (plan is None and self.too_quick)):
            self.key = sifted_key(self.ask)  # what is best for all of J need not be for its nonzeros
            plan = warm.recall(self.key)
        if plan is not None and not isinstance(plan, (Direct, Chain, Sum)):
            found = self._tried(plan, known=True)
            if found is not None:
                return found
            warm.forget(self.key)
            plan = None
        if plan is None:
            for better in self._candidates():
                found = self._tried(better, known=False)
                if found is not None:
                    warm.remember(self.key, better)
                    return found
            warm.remember(self.key, replace(self._direct, whole=False))
        return None

    def _glanced(self) -> bool:
        """Whether the operations nearest to y are all there are, and so few that nothing can be gained on them."""
        glance = getattr(self.ask.y.record, "glance", None)
        operations = None if glance is None else glance(self.ask.y)
        if operations is None:
            return False
        rates = cost.rates_of(self.ask)
        each = rates.operation + self.ask.m * max(self.ask.m, self.ask.n) * rates.element
        return bool(operations * each < quick(self.ask))

    @cached_property
    def _seconds(self) -> float:
        return expected_seconds(self.ask, self.flow)

    @property
    def too_quick(self) -> bool:
        return self._seconds < quick(self.ask)

    @cached_property
    def _direct(self) -> Direct:
        return choose(self.ask, can_push=bool(self.linear.push_rungs))

    def _candidates(self) -> Iterator[Plan]:
        """Plans that may pay, the most promising first; sampling rows costs passes, looking at the graph does not."""
        at_hand = quick(self.ask) * (1.0 if self.ask.accelerated else AT_HAND)
        if self.flow is not None and self._seconds >= at_hand:
            through = cut(self.flow, self.ask.m, self.ask.n)
            if through is not None:
                yield through
        sifting = SIFT * self.ask.m * self.ask.n if self.sifted else 0.0
        if self._seconds + sifting < quick(self.ask) or (self.flow is not None and self.flow.mixed):
            return
        can_push = bool(self.linear.push_rungs)
        told = self.flow if self.flow is not None else self.linear
        push_cost = getattr(told, "push_cost", math.inf) if can_push else math.inf
        better, samples = structured(self.ask, self._support, self._direct, push_cost)
        if better is not None:
            yield better
        if samples is not None and 0 < samples.density <= SPARSE:
            irregular = self._irregular(samples, push_cost)
            if irregular is not None:
                yield irregular

    def _irregular(self, samples: Samples, push_cost: float) -> Compressed | None:
        """Colors of the pattern that the operations on the way tell; where one tells nothing, of what sums of rows do."""
        find = getattr(self.ask.y.record, "local_maps", None)
        part = self.ask.x.parts[0]
        if min(self.ask.m, self.ask.n) < MANY:
            return None
        plain = len(self.ask.x.parts) == 1 and part.into is None
        local = find(self.ask.y, part.value) if find is not None and plain else None
        marked = self._marked() if local is None else None
        if marked is not None:
            return colored(marked, self._direct, push_cost)
        if local is None:
            return probed((self.ask.m, self.ask.n), samples, self._sums, self._direct, push_cost)
        pattern = composed(local, self.ask.rows.positions, part.elements.positions)
        return None if pattern is None else colored(pattern, self._direct, push_cost)

    def _marked(self) -> Any | None:
        """The pattern as a boolean csr array, from what the operations on the way tell of all rows; None where one does not."""
        from scipy.sparse import csr_array, vstack

        blocks = []
        for start in range(0, self.ask.m, MANY):
            told = self._told(np.arange(start, min(start + MANY, self.ask.m)))
            if told is None:
                return None
            blocks.append(csr_array(told))
        return vstack(blocks, format="csr")

    def _sums(self, moduli: list[int]) -> list[npt.NDArray[np.bool_]]:
        """Where sums of rows whose numbers are equal modulo each of these are nonzero; a NaN counts."""
        ask, arrays = self.ask, self.ask.y.record.backend.arrays
        rows, ends = np.arange(ask.m), np.cumsum(moduli)
        weights = np.zeros((ends[-1], ask.m), dtype=np.float32)
        for modulus, end in zip(moduli, ends, strict=True):
            weights[end - modulus + rows % modulus, rows] = random_signs(1, ask.m, SUMMED)[0]
        found = self.sweeps.sweep(arrays.from_numpy(weights, ask.y), "sums of rows")
        if found is None:
            return [np.zeros((modulus, ask.n), dtype=bool) for modulus in moduli]
        return np.split(self.sweeps.nonzero(found), ends[:-1])

    def _tried(self, plan: Plan, *, known: bool) -> Passes | Factors | None:
        found = self._ran(plan, known=known)
        if found is None:
            return None
        if not found.certificate.passed:
            what = "the plan of last time" if known else "the guess"
            words = found.certificate.words or str(found.certificate)
            self.report.fallbacks.append(f"{plan.strategy}: {what} was wrong ({words})")
            return None
        self.report.strategy, self.report.because = plan.strategy, plan.because
        self.report.certificate = found.certificate
        if isinstance(found, Passes) and found.mended:
            what = "the plan of last time" if known else "the guess"
            self.report.fallbacks.append(f"{plan.strategy}: {what} was wrong {found.mended}")
        if known:
            self.report.notes.append(KNOWN)
        return found

    def _ran(self, plan: Plan, *, known: bool) -> Passes | Factors | None:
        if isinstance(plan, Compressed):
            operations = plan.kept.get("operations") or (16 if self.flow is None else len(self.flow.sizes))
            plan.kept["operations"] = operations
            program = sweep_program(
                self.ask, self.linear, plan, self.report, operations=operations, dense=self.dense
            )
            return program or sweep_compressed(
                self.ask, plan, self.sweeps, warm=known, expected=self.expected, operations=operations, dense=self.dense
            )
        if isinstance(plan, Cut):
            waist = self._waist(plan, known=known)
            return None if waist is None else sweep_factors(self.ask, self.linear, waist, solve, self.report)
        return None

    def _waist(self, plan: Cut, *, known: bool) -> list[Value] | None:
        """The tensors of a cut in this run. Those of a known plan lie where they lay: the proof tells whether it is so."""
        follow = getattr(self.ask.y.record, "follow", None) if known else None
        if follow is not None and plan.trails:
            found = [follow(self.ask.y, trail) for trail in plan.trails]
            sizes = [plan.sizes[tensor] for tensor in plan.tensors]
            return found if [0 if value is None else value.size for value in found] == sizes else None
        if self.flow is None or tuple(self.flow.sizes) != plan.sizes:
            return None
        values = [self.flow.value(tensor) for tensor in plan.tensors]
        return None if None in values else [value for value in values if value is not None]

    def _summed(self, known: Plan | None) -> Swept | None:
        """The terms of a sum, where a waist lies on the way to one of them."""
        plan = known if isinstance(known, Sum) else None
        if plan is None and self.flow is not None and not self.too_quick:
            plan = plan_sum(self.ask, self.flow)
        if plan is None:
            return None
        found = sweep_sum(self.ask, self.linear, plan, solve, self.report)
        if found is None or not self.report.certificate:
            self.report.fallbacks.append(f"sum: a term was not what it seemed ({self.report.certificate})")
            warm.forget(self.key)
            return None
        self.report.strategy, self.report.because = plan.strategy, plan.because
        if known is None:
            warm.remember(self.key, plan)
        return found

    def _chained(self, known: Plan | None) -> Swept | None:
        """Rows carried through several tensors, where some stretch between them is structured."""
        flow = self.flow
        if flow is None or not hasattr(self.ask.y.record.backend.arrays, "contract") or self._direct.way != "pull":
            return None
        plan = known if isinstance(known, Chain) else plan_chain(self.ask, flow, self.report)
        if plan is None or tuple(flow.sizes) != plan.sizes:
            return None
        found = sweep_chain(self.ask, self.linear, plan, flow, self.report, self.expected)
        if found is None or not self.report.certificate:
            self.report.fallbacks.append(f"chain: a stretch was not what it seemed ({self.report.certificate})")
            return None
        self.report.strategy, self.report.because = plan.strategy, plan.because
        warm.remember(self.key, plan)
        return found

    def _from_the_weights(self) -> Swept | None:
        if self.flow is None or self._direct.way != "pull":
            return None
        return sweep_from_weights(self.ask, self.linear, self.flow, self.report, proof="plain")

    def _support(self, rows: Positions) -> npt.NDArray[np.bool_]:
        """Where some rows are nonzero; a NaN counts. Where batches are trusted, the probe travels with them."""
        told = self._told(rows)
        if told is not None:
            return told
        ask = self.ask
        joined = trusted(ask.y)
        found = self.sweeps.rows(rows, "sampled rows" + ", and the probe" * joined, *([probe_of(ask)] if joined else []))
        if found is None:
            return np.zeros((len(rows), ask.n), dtype=bool)
        if joined:
            found, self.expected = found[:-1], found[-1:]
        return self.sweeps.nonzero(found)

    def _told(self, rows: Positions) -> npt.NDArray[np.bool_] | None:
        """The same from the operations on the way, without a pass; None where the backend cannot tell."""
        reach, part = getattr(self.linear, "reach", None), self.ask.x.parts[0]
        if reach is None or len(self.ask.x.parts) > 1 or part.into is not None or part.component:
            return None
        found: npt.NDArray[np.bool_] | None = reach(self.ask.rows.positions[rows])
        return found if found is None or part.elements.everything else found[:, part.elements.positions]


def solve(ask: Ask, report: Report) -> Array | None:
    """A factor of a larger question: planned like any other, proven as part of the whole at the latest."""
    few = all_rows(ask) if ask.m < FEWEST else None
    if few is not None:
        report.steps.append(few.step)
        return few.array
    linear = ask.y.record.linear(ask.y, ask.x.values)
    swept = planned_block(ask, linear, report)
    if swept is None and ask.m > 1:
        flow = _flow_of(ask)
        if flow is not None and pays(flow, ask.m, ask.n):
            swept = sweep_from_weights(ask, linear, flow, report, proof="later")
    if swept is None:
        swept = sweep_direct(ask, linear, choose(ask, can_push=bool(linear.push_rungs)), report, proof="later")
    return None if swept is None else swept.array


def _flow_of(ask: Ask) -> Flow | None:
    find = getattr(ask.y.record, "flow", None)
    return None if find is None else find(ask.y, ask.x.values)
