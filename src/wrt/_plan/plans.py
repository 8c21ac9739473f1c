"""Which plans answer a question, the most promising first. The last one, plain rows one by one, never declines.

Strategies look at the graph, which costs no pass, and at a few rows. Each returns a plan with its reason, or the reason why
it has none: `explain()` shows both.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wrt._core.ask import Ask
from wrt._core.flow import Flow
from wrt._core.plan import LAST_WEIGHTS, Lines, Patch, Plan, Product, Way, Weights
from wrt._core.protocol import Engine, Marks, random_signs
from wrt._core.report import Report
from wrt._plan import cache, cost
from wrt._plan.chain import Chain
from wrt._plan.colored import colored
from wrt._plan.cut import Offer, cut, term_by_term
from wrt._plan.direct import direct, prefers_columns
from wrt._plan.structured import Look, sample, structured
from wrt._plan.thresholds import PLANNED_LINES, QUICK_SECONDS, QUICK_SECONDS_DEVICE

CUT_SHARE = 0.3  # of the quick seconds that a cut, for which nothing has to be swept, is looked for from
SIFT_SECONDS = 4e-9  # for each number of a dense answer that is brought to the host and sifted for nonzeros
LOCAL_NUMBERS = 2**12  # of y and of x below which whole passes are quick
PATCH_SECONDS = 3e-4  # of whole passes that are left alone
FAR_ROWS = 4  # rows for each column beyond which columns are swept without a look at the last layer's weights


def plans(ask: Ask, engine: Engine, look: Look, report: Report, way: Way | None = None) -> Iterator[Plan]:
    """Plans for a question, the most promising first; `report.declined` says why each better one was not taken."""
    if way is None:
        part = ask.x.parts[0]
        if ask.rows.shape is not ask.rows.of and part.elements.shape is not part.elements.of:
            patch = patched(ask, engine)
            if patch is not None:
                yield patch
        if ask.m >= PLANNED_LINES <= ask.n and worth_planning(ask):
            yield from better(ask, engine, look, report)
    yield from direct(ask, engine, way)


def worth_planning(ask: Ask) -> bool:
    """Whether the question is large enough for fewer passes than rows or columns to pay."""
    return min(ask.m, ask.n) >= PLANNED_LINES and not ask.complex_y and not ask.complex_x and not ask.x.parts[0].component


def better(ask: Ask, engine: Engine, look: Look, report: Report, *, sifted: bool = False) -> Iterator[Plan]:
    """Plans with fewer passes than rows or columns: the one that answered such a question before, or new ones.

    `sifted`: nonzeros are asked for, which of a direct sweep would have to be picked out on the host.
    """
    key = cache.key_of(ask), sifted
    known = cache.recall(key)
    if known is None and sifted:  # a plan for all of it that gives nonzeros serves as well
        whole = cache.recall((key[0], False))
        known = whole if isinstance(whole, Lines) else None
    if known is not None and not isinstance(known, str):
        yield known
        report.fallbacks.append(f"{known.strategy}: the plan of an earlier, identical question did not hold")
        known = None
    if known is None:
        found = False
        for plan in Strategies(ask, engine, look, report, sifted=sifted).candidates():
            found = True
            yield plan
        if not found:
            cache.remember(key, cache.NOTHING)
    else:
        report.declined.append(known)


def remember(ask: Ask, plan: Plan, *, sifted: bool = False) -> None:
    """Use this plan for the next question of the same structure: it held."""
    if not isinstance(plan, Patch) and worth_planning(ask) and not cache.holds(plan):
        cache.remember((cache.key_of(ask), sifted), plan)


class Strategies:
    """One question on its way through the strategies."""

    def __init__(
        self, ask: Ask, engine: Engine, look: Look, report: Report, *, sifted: bool = False, often: bool = False
    ) -> None:
        """`often`: the plan will run many times, so that no look at the structure is too long."""
        self.ask = ask
        self.engine = engine
        self.look = look
        self.report = report
        self.sifted = sifted
        self.often = often
        self.direct_passes = ask.n if engine.can_push and prefers_columns(ask, engine) else ask.m

    def candidates(self) -> Iterator[Plan]:
        """New plans, the most promising first."""
        ask, flow = self.ask, self.ask.y.record.flow(self.ask.y, self.ask.x.values)
        seconds = float("inf") if flow is None else cost.direct_seconds(flow, ask.m, ask.n)
        quick = 0.0 if self.often else QUICK_SECONDS_DEVICE if ask.accelerated else QUICK_SECONDS
        if flow is not None and ask.one_tensor and seconds >= quick * (1.0 if ask.accelerated else CUT_SHARE):
            yield from self._told(cut(ask, flow, self._factor))
            yield from self._told(term_by_term(ask, flow, self._factor))
        sifting = SIFT_SECONDS * ask.m * ask.n if self.sifted else 0.0
        if seconds + sifting < quick:
            self._decline(f"structure: a direct sweep takes about {1e3 * seconds:.1f} ms, less than a look")
        elif flow is not None and flow.mixed:
            self._decline("structure: every element of x reaches every element of y")
        else:
            yield from self._by_structure(flow)
        if flow is not None and seconds >= quick and self.direct_passes == ask.m and ask.one_tensor:
            yield from self._told(Chain(ask, flow, self.look).plan())
        if flow is not None and starts_from_weights(ask, flow):
            yield from_weights(ask)

    def _by_structure(self, flow: Flow | None) -> Iterator[Plan]:
        push_cost = float("inf") if not self.engine.can_push else self.engine.push_cost if flow is None else flow.push_cost
        samples = sample(self.ask, self.look)
        yield from self._told(structured(self.ask, samples, self.direct_passes, push_cost))
        yield from self._told(colored(self.ask, self.engine, samples, self._sums, self.direct_passes, push_cost))

    def _sums(self, moduli: list[int]) -> list[Marks]:
        """Where sums of rows whose numbers are equal modulo each of these are nonzero; a NaN counts."""
        rows, ends = np.arange(self.ask.m), np.cumsum(moduli)
        weights = np.zeros((int(ends[-1]), self.ask.m))
        for modulus, end in zip(moduli, ends, strict=True):  # other weights than those of the proof
            weights[end - modulus + rows % modulus, rows] = random_signs(1, self.ask.m, seed=31)[0]  # any but the proof's
        return list(np.split(self.look(self.ask, weights), ends[:-1]))

    def _factor(self, ask: Ask) -> Plan:
        """The plan of one side of a cut: a question of its own, proven as a part of the whole."""
        engine = ask.y.record.engine(ask.y, ask.x.values)
        if worth_planning(ask) and ask.one_tensor:
            for plan in Strategies(ask, engine, self.look, Report()).candidates():  # what it declines is its own affair
                return plan
        return next(direct(ask, engine))

    def _told(self, found: Plan | Offer | str) -> Iterator[Plan]:
        if isinstance(found, str):
            self._decline(found)
        else:
            yield found.plan() if isinstance(found, Offer) else found

    def _decline(self, words: str) -> None:
        if words not in self.report.declined:
            self.report.declined.append(words)


# ---------------------------------------------------------------- the weights of a last layer


def starts_from_weights(ask: Ask, flow: Flow) -> bool:
    """Whether y = W h, and rows from W on cost less than columns: the last layer is not multiplied by the identity."""
    if not ask.one_tensor or (ask.m > FAR_ROWS * ask.n and not flow.accelerated):
        return False
    if ask.y.record.last_weights(ask.y, ask.x.values) is None:
        return False
    passed = cost.all_tensors(flow)
    inner = [tensor for tensor in passed if tensor and flow.products[tensor] < flow.products[0] + flow.products[1]]
    return cost.seconds(flow, inner, ask.m) <= cost.push_seconds(flow, passed, ask.n)


def from_weights(ask: Ask) -> Product:
    because = f"{ask.m} rows asked for, {ask.n} columns; y is a matrix times a tensor, where the rows start"
    carried = Lines("pull", ask.m, "the rows that arrive are pulled on", carried=True)
    return Product(((LAST_WEIGHTS,),), (Weights(), carried), ask.m, because, "direct")


# ---------------------------------------------------------------- rows and columns of a local map


def patched(ask: Ask, engine: Engine) -> Patch | None:
    """Where rows and columns of two large tensors are asked for, patches between them may be much smaller than those."""
    if ask.m < 2 or ask.n < 2 or not ask.one_tensor or ask.complex_y:
        return None
    part = ask.x.parts[0]
    if min(ask.y.size, part.value.size) < LOCAL_NUMBERS or ask.rows.everything or part.elements.everything:
        return None
    patches = ask.y.record.patches(ask.y, ask.rows, part.value, part.elements)
    if patches is None:
        return None
    shorter = min(ask.m, ask.n)
    if shorter * patches.whole * cost.CPU.product < PATCH_SECONDS or 2 * ask.m * patches.work > shorter * patches.whole:
        return None
    share = 100 * patches.work / patches.whole
    meet = f"the rows and columns meet in {share:.2g} % of what a pass touches"
    return Patch(ask.m, f"{meet}; {ask.m} passes through that alone")
