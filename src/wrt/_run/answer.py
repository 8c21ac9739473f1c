"""The only loop: make plans, run one, prove the array that comes out; where the proof fails, the next plan.

Trivial questions need no engine. One row is one plain pass of the engine, its own evidence. Everything else (`.value`,
`.sparse()`, diagonals, blocks, Gram products, higher orders, dask, zarr, `wrt.map`, the page) comes through `answer`, or
through `run` and `Proof` with a plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Elements, Positions
from wrt._core.plan import Lines, Plan, Way
from wrt._core.protocol import Array, CannotSweep, Marks, Numbers
from wrt._core.report import Certificate, Report
from wrt._core.value import Side
from wrt._plan.plans import plans, remember
from wrt._run import nonfinite
from wrt._run.forms import Dense, Form
from wrt._run.holomorphic import refuse_if_not_holomorphic
from wrt._run.memory import lines_per_call, refuse_if_no_memory, refuse_too_large
from wrt._run.options import CURRENT, DEFAULT
from wrt._run.prove import ENGINE, SWITCHED_OFF, Proof
from wrt._run.run import PlanFailed, run
from wrt._run.sweep import Sweeper
from wrt.errors import WrtError

IDENTITY = "y and x are the same tensor: the identity"
INDEPENDENT = "y does not depend on x: exact zeros"
KEPT_ANSWERS = 64
"""Of a recording that cannot change."""


class Answer:
    """All of a question as an (m, n) array or in a compact form, whether anything connects y and x, and what ran."""

    __slots__ = ("array", "connected", "form", "report")

    def __init__(self, array: Array, connected: bool, report: Report, form: Form | None = None) -> None:
        self.array = array
        """(m, n); None where only a compact form was asked for."""
        self.form = form
        self.connected = connected
        self.report = report


def answer(ask: Ask, *, compact: bool = False) -> Answer:
    """The block that was asked for: zeros where independence is proven, an error where a path was cut."""
    return reached(ask, compact=compact) or independent(ask, ask.n)


def reached(ask: Ask, *, compact: bool = False) -> Answer | None:
    """The block that was asked for; None where nothing leads from x to y."""
    record, part = ask.y.record, ask.x.parts[0]
    if ask.m == 0 or ask.n == 0:
        zeros = record.backend.arrays.zeros((ask.m, ask.n), part.value)
        return exact(zeros, "the question is empty", connected=True)
    if len(ask.x.parts) == 1 and part.into is None and not part.component and record.same(ask.y, part.value):
        return exact(_identity(ask), IDENTITY, connected=True)
    record.ready(ask.y, ask.x)
    if record.answers is not None and CURRENT.get() is DEFAULT:
        return _kept(ask, record.answers, compact=compact)
    if ask.m == 1 and ask.x.otherwise is None:
        return one_row(ask)
    return _first_meaning(ask, compact=compact)


def _kept(ask: Ask, kept: dict[Hashable, Answer], *, compact: bool) -> Answer | None:
    """A run that cannot change keeps its answers."""
    key = _question(ask, compact)
    found = kept.get(key)
    if found is None:
        found = _first_meaning(ask, compact=compact)
        if found is not None:
            if len(kept) >= KEPT_ANSWERS:
                kept.pop(next(iter(kept)))
            kept[key] = found
    return found


def _first_meaning(ask: Ask, *, compact: bool) -> Answer | None:
    """Answer for x itself, or for what a view of it stands for."""
    if ask.m > 1:
        refuse_too_large(ask)
    try:
        if ask.x.otherwise is None:
            return one_row(ask) if ask.m == 1 else solve(ask, compact=compact)
        for some in meant(ask):
            found = one_row(some) if some.m == 1 else solve(some, compact=compact)
            if found is not None:
                return found
    except WrtError:
        raise
    except Exception as error:
        refuse_if_no_memory(error, ask)
        raise
    return None


def meant(ask: Ask) -> Iterator[Ask]:
    """The question with each meaning of x to which a sweep can lead."""
    record = ask.y.record
    for side in meanings(ask.x):
        if all(map(record.has_history, side.values)):
            yield ask if side is ask.x else Ask(ask.y, ask.rows, side)


def meanings(side: Side | None) -> Iterator[Side]:
    """A side, then what it stands for if nothing leads to it."""
    while side is not None:
        yield side
        side = side.otherwise


# ---------------------------------------------------------------- the loop


def one_row(ask: Ask) -> Answer | None:
    """One plain pass of the engine, which is its own evidence; None where no path leads to x."""
    engine = ask.y.record.engine(ask.y, (ask.x.parts[0].value,) if len(ask.x.parts) == 1 else ask.x.values)
    sweeper = Sweeper(ask, engine, Report("direct", "one row is one pass", notes=list(ask.x.notes), certificate=ENGINE))
    row = sweeper.only_row()
    if row is None:
        return None
    if not sweeper.arrays.all_finite(row):
        row = nonfinite.repair(sweeper, row, "pull")
    if ask.complex_x:
        refuse_if_not_holomorphic(sweeper)
    return Answer(row, True, sweeper.report)


def solve(ask: Ask, *, compact: bool = False) -> Answer | None:
    """Plans in turn, until one is proven; None where no path leads to x."""
    xs = (ask.x.parts[0].value,) if len(ask.x.parts) == 1 else ask.x.values
    sweeper = Sweeper(ask, ask.y.record.engine(ask.y, xs), Report(notes=list(ask.x.notes)))
    proof = Proof(sweeper)
    for plan in plans(ask, sweeper.engine, look_by(sweeper), sweeper.report, CURRENT.get().way):
        found = attempt(proof, plan, compact=compact)
        if found == "no path":
            return None
        if isinstance(found, Answer):
            if plan.strategy != "direct":
                remember(ask, plan)
            return found
    raise AssertionError("plain rows are the last plan, and never decline")


def first_plan(ask: Ask, way: Way | None = None) -> tuple[Plan, list[str]]:
    """The plan that will run, and why each better one was not taken. A few rows may be swept to see a structure."""
    if ask.m == 1 or ask.n == 0 or ask.m == 0 or not ask.y.record.has_history(ask.y):
        return direct_plan(ask, way), []
    for some in meant(ask):
        sweeper = Sweeper(some, some.y.record.engine(some.y, some.x.values), Report())
        for plan in plans(some, sweeper.engine, look_by(sweeper), sweeper.report, way):
            if plan.strategy != "direct":
                remember(some, plan)
            return plan, sweeper.report.declined
    return direct_plan(ask, way), []


def direct_plan(ask: Ask, way: Way | None = None) -> Lines:
    """What a direct sweep takes, by the numbers of rows and columns alone."""
    if ask.m == 1:
        return Lines("pull", 1, "one row is one pass")
    way = way or ("pull" if ask.m <= ask.n + 2 else "push")
    return Lines(way, ask.m if way == "pull" else ask.n, f"{ask.m} rows asked for, {ask.n} columns")


def attempt(proof: Proof, plan: Plan, *, compact: bool = False) -> Answer | str:
    """One plan, run and proven: the answer, "no path", or why it did not hold (noted as a fallback too)."""
    sweeper, report = proof.sweeper, proof.sweeper.report
    last = isinstance(plan, Lines) and plan.way == "pull" and not plan.batched
    proven = CURRENT.get().certify or plan.strategy != "direct"  # a guess without a proof would be just a guess
    try:
        if proven and plan.way == "push" and not proof.pull(then_push=True):
            return "no path"
        form = run(sweeper, plan, compact=compact)
    except (CannotSweep, PlanFailed) as refusal:
        return _decline(report, f"{plan.strategy}, {plan.way}: {refusal}")
    if form is None:
        if proven and not last and proof.pull():
            return _decline(report, f"{_name(plan)}: it found no path, where the independent check did")
        return "no path"
    certificate = SWITCHED_OFF
    if proven:
        found = _proven(proof, form, plan)
        if found is None or not (found[1].share <= 1.0 or last):
            words = "does not agree with the independent check" if found is None else str(found[1])
            return _decline(report, f"{_name(plan)}: {words}")
        form, certificate = found
    elif not sweeper.arrays.all_finite(form.dense()):
        form = Dense(sweeper.ask, nonfinite.repair(sweeper, form.dense(), plan.way))
    report.strategy, report.because, report.certificate = plan.strategy, plan.because, certificate
    if sweeper.ask.complex_x:
        refuse_if_not_holomorphic(sweeper)
    return Answer(None if compact else form.dense(), True, report, form)


def _proven(proof: Proof, form: Form, plan: Plan) -> tuple[Form, Certificate] | None:
    """What is handed out, with entries that were not finite asked for again, and its proof; None where it does not hold."""
    verdict = proof.judge(form)
    if not verdict.finite:
        form = Dense(proof.sweeper.ask, nonfinite.repair(proof.sweeper, form.dense(), plan.way))
        verdict = proof.judge(form)
    if verdict.certificate.share <= 1.0:
        return form, verdict.certificate
    if isinstance(plan, Lines) and plan.way == "pull" and not plan.batched:
        return proof.settle(form, verdict) or (form, proof.plain_rows(form, verdict))
    return proof.settle(form, verdict)


def _decline(report: Report, words: str) -> str:
    report.fallbacks.append(words)
    return words


def _name(plan: Plan) -> str:
    lines = isinstance(plan, Lines)
    return f"{plan.strategy}, {plan.way}" + (", batched" if lines and plan.strategy == "direct" else "")


def look_by(sweeper: Sweeper) -> Callable[[Ask, Numbers], Marks]:
    """Rows of a question, looked at for where they are nonzero: how plans see structure that the graph does not tell."""

    def look(ask: Ask, rows: Numbers) -> Marks:
        own = sweeper if ask is sweeper.ask else Sweeper(ask, ask.y.record.engine(ask.y, ask.x.values), sweeper.report)
        return nonzero_rows(own, rows)

    return look


def nonzero_rows(sweeper: Sweeper, rows: Numbers) -> Marks:
    """(rows, n): where these rows, or weighted sums (k, m) of rows, are not zero; on a device, noise counts as zero."""

    ask, arrays = sweeper.ask, sweeper.arrays
    if rows.ndim == 2:
        found = sweeper.pull_weights(arrays.from_numpy(rows, ask.y), "sums of rows")
    else:
        size = lines_per_call(ask, len(rows))
        parts = [sweeper.rows(rows[k : k + size], "sampled rows") for k in range(0, len(rows), size)]
        found = None if parts[0] is None else parts[0] if len(parts) == 1 else arrays.concat(parts, 0)
    if found is None:
        return np.zeros((len(rows), ask.n), dtype=bool)
    return arrays.nonzero(found, arrays.precision(ask.y) if ask.accelerated else 0.0)



# ---------------------------------------------------------------- questions that need no engine


def independent(ask: Ask, columns: int) -> Answer:
    """Exact zeros, or why they would be wrong."""
    raise_unless_independent(ask)
    zeros = ask.y.record.backend.arrays.zeros((ask.m, columns), ask.x.values[0])
    made, again = exact(zeros, INDEPENDENT, connected=False), ask.y.record.again
    if again is not None and CURRENT.get().run_again:
        found = again(ask.y, ask.x.values[0])
        if isinstance(found, Exception):
            raise found
        made.report.notes.append(found)
    return made


def exact(array: Array, words: str, *, connected: bool) -> Answer:
    """An answer that needs no engine."""
    return Answer(array, connected, Report("none needed", words, certificate=Certificate("exact", words=words)))


def raise_unless_independent(ask: Ask) -> None:
    """Zeros are returned only where independence is proven."""
    verdict = ask.y.record.unreached(ask.y, ask.x.values[0])
    if isinstance(verdict, Exception):
        raise verdict


def is_identity(ask: Ask) -> bool:
    """Whether y and x are one tensor."""
    return ask.one_tensor and ask.y.record.same(ask.y, ask.x.parts[0].value)


def _identity(ask: Ask) -> Array:
    refuse_too_large(ask)
    met = ask.rows.positions[:, None] == ask.x.parts[0].elements.positions[None, :]
    if not met.any():  # other elements alone: zeros, if it is one value
        ask.y.record.refuse_filled(ask.y)
    return ask.y.record.backend.arrays.from_numpy(met, ask.y)


def elements_meet(ask: Ask, array: Array | None) -> bool | None:
    """Whether these elements of y depend on these of x, between which a path leads; None where that takes more than one pass.

    `array` is the answer, where it is there already.
    """
    parts = ask.x.parts
    if is_identity(ask):
        if np.isin(ask.rows.positions, parts[0].elements.positions).any():
            return True
        try:
            ask.y.record.refuse_filled(ask.y)
        except WrtError:
            return None
        return False
    if ask.m * ask.n == 0 or (ask.rows.everything and all(part.elements.everything for part in parts)):
        return True
    arrays = ask.y.record.backend.arrays
    for some in meant(ask):
        sweeper = Sweeper(some, some.y.record.engine(some.y, some.x.values), Report())
        weights = arrays.from_numpy(np.random.default_rng(0).uniform(0.5, 1.0, (1, ask.m)), ask.y)
        found = sweeper.pull_weights(weights, "do they meet?", batched=False) if array is None else array
        if found is not None and arrays.nonzero(found, 0.0).any():
            return True
        marks = sweeper.engine.reach(ask.rows.positions, certain=True) if len(some.x.parts) == 1 else None
        if marks is not None:
            return bool(marks[:, some.x.parts[0].elements.positions].any())
    return None


def connected(ask: Ask) -> bool:
    """Whether a gradient path leads from x to y; costs one pull and raises nothing about a missing path."""
    if ask.m == 0 or ask.n == 0 or is_identity(ask):
        return True
    record = ask.y.record
    if not record.has_history(ask.y):
        return False
    seed = record.backend.arrays.one_hot(ask.y, ask.rows.positions[:1])
    return any(
        gradient is not None for some in meant(ask) for gradient in record.engine(ask.y, some.x.values).plain(seed)
    )


def _question(ask: Ask, compact: bool) -> Hashable:
    """What an answer of an immutable run is kept by."""
    parts = tuple((part.value.key, _selection(part.elements), _listed(part.into), part.component) for part in ask.x.parts)
    return compact, ask.y.key, _selection(ask.rows), ask.x.shape, parts


def _selection(elements: Elements) -> Hashable:
    return elements.shape, elements.offset, elements.strides, _listed(elements.listed)


def _listed(positions: Positions | None) -> bytes | None:
    return None if positions is None else positions.tobytes()
