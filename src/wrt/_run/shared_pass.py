"""Many denominators, one set of passes: a pull reaches all parameters of a model at once.

Leaf by leaf, nothing is copied into one long row: what the engine returns for a leaf is that leaf's answer, and each leaf is
held to its own part of one independent pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from wrt._core.ask import Ask
from wrt._core.protocol import Array, Engine
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Side
from wrt._run.answer import Answer
from wrt._run.memory import answer_bytes, free, lines_per_call
from wrt._run.options import current
from wrt._run.prove import ENGINE, SWITCHED_OFF, compare, weights_in, wide
from wrt._run.sweep import Sweeper
from wrt._run.thresholds import CHECKED_BYTES

SHARED_BYTES = 2**30  # of all answers together; larger trees are answered leaf by leaf
PIECES = 2.2  # times the answers, while they are joined

Blocks = list[Array | None]  # for each leaf (rows, its columns), None where no path leads to it


def answers(asks: Sequence[Ask]) -> tuple[dict[int, Answer], set[int]]:
    """Blocks for questions about the same rows of one y, and the questions to which no path leads.

    What is in neither has to ask for itself.
    """
    joint = [k for k, ask in enumerate(asks) if _is_ordinary(ask)]
    if len(joint) < 2 or not _pays([asks[k] for k in joint]):
        return {}, set()
    some = [asks[k] for k in joint]
    leaves = Leaves(some)
    blocks, certificates = leaves.row() if some[0].m == 1 else leaves.rows()
    if not certificates:
        return {}, set()
    found: dict[int, Answer] = {}
    for k, ask, block, held in zip(joint, some, blocks, certificates, strict=True):
        if block is not None and held is not None and ask.y.record.backend.arrays.all_finite(block):
            report = Report("direct", f"{len(some)} leaves of a tree share every pass", certificate=held)
            report.steps, report.fallbacks = leaves.report.steps, leaves.report.fallbacks
            found[k] = Answer(block, True, report)
    return found, {k for k, block in zip(joint, blocks, strict=True) if block is None}


def _is_ordinary(ask: Ask) -> bool:
    """Ordinary leaves travel together; the others answer, or refuse, for themselves."""
    record, x = ask.y.record, ask.x.parts[0].value
    if not ask.one_tensor or ask.x.otherwise is not None or not ask.n or ask.complex_y or ask.complex_x:
        return False
    return not record.same(ask.y, x) and record.has_history(ask.y) and record.has_history(x)


def _pays(asks: list[Ask]) -> bool:
    """Rows by pull serve all leaves at once; columns by push would not."""
    m, n, needed = asks[0].m, sum(ask.n for ask in asks), sum(map(answer_bytes, asks))
    if not 0 < m <= n or current().way == "push" or needed > (current().memory or SHARED_BYTES):
        return False
    return needed < CHECKED_BYTES or PIECES * needed < free(asks[0].x.values[0])


class Leaves:
    """The questions of one tree, and the engine that reaches all of them."""

    def __init__(self, asks: list[Ask]) -> None:
        self.asks = asks
        self.first = asks[0]
        self.arrays = self.first.y.record.backend.arrays
        self.engine: Engine = self.first.y.record.engine(self.first.y, tuple(ask.x.values[0] for ask in asks))
        self.report = Report()

    def row(self) -> tuple[Blocks, list[Certificate | None]]:
        """One plain pass."""
        seed = self.arrays.one_hot(self.first.y, self.first.rows.positions)
        self.report.steps.append(Step("rows", "pull", "one by one", 1, 1))
        return self._columns(self.engine.plain(seed), 1), [ENGINE] * len(self.asks)

    def rows(self) -> tuple[Blocks, list[Certificate | None]]:
        """Every row, in batches, or one by one where the leaves do not agree with the independent pass."""
        for batched in (True, False):
            blocks = self._in_calls(batched=batched)
            if not current().certify:
                return blocks, [SWITCHED_OFF] * len(self.asks)
            held = self._proofs(blocks)
            if all(one is None or one.passed for one in held):
                return blocks, held
            worst = max((one for one in held if one is not None), key=lambda one: one.share)
            self.report.fallbacks.append(f"direct, pull: {worst}")
        return [None] * len(self.asks), []  # nothing held: each leaf asks for itself

    def _in_calls(self, *, batched: bool) -> Blocks:
        first = self.first
        everything = Ask(first.y, first.rows, Side((sum(ask.n for ask in self.asks),), tuple(a.x.parts[0] for a in self.asks)))
        size = lines_per_call(everything, first.m)
        pieces: list[Blocks] = []
        for start in range(0, first.m, size):
            positions = first.rows.positions[start : start + size]
            swept = self.engine.pull(self.arrays.one_hot(first.y, positions), batched=batched)
            pieces.append(self._columns(swept.arrays, len(positions)))
            self.report.steps.append(Step("rows", "pull", swept.method, len(positions), swept.calls))
            self.report.fallbacks.extend(words for words in swept.refused if words not in self.report.fallbacks)
        return [None if column[0] is None else self.arrays.concat(column, 0) for column in zip(*pieces, strict=True)]

    def _columns(self, pulled: list[Array | None], count: int) -> Blocks:
        sweepers = (Sweeper(ask, self.engine, self.report) for ask in self.asks)
        return [sweeper.columns([gradient], count) for sweeper, gradient in zip(sweepers, pulled, strict=True)]

    def _proofs(self, blocks: Blocks) -> list[Certificate | None]:
        """One plain pull of a random combination of rows, compared in every leaf."""
        first, arrays = self.first, self.arrays
        probe, weights = weights_in(first)
        sweeper = Sweeper(first, self.engine, self.report)
        expected = self._columns(self.engine.plain(sweeper.seeds(probe)), 1)
        self.report.steps.append(Step("independent check", "pull", "one by one", 1, 1))
        found: list[Certificate | None] = []
        for ask, block, row in zip(self.asks, blocks, expected, strict=True):
            if block is None or row is None:
                found.append(None)
                continue
            precision = max(arrays.precision(first.y), arrays.precision(ask.x.values[0]))
            sums = arrays.weighted_columns(weights, block)
            found.append(compare(*sums, wide(arrays.numpy(row))[0], precision).certificate)
        return found
