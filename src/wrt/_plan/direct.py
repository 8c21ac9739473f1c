"""One pass for each row, or for each column: along the shorter side of the Jacobian."""

from __future__ import annotations

from collections.abc import Iterator

from wrt._core.ask import Ask
from wrt._core.plan import Lines, Way
from wrt._core.protocol import Engine
from wrt._plan.thresholds import FEW_NUMBERS_DEVICE, SET_UP_PASSES


def direct(ask: Ask, engine: Engine, way: Way | None = None) -> Iterator[Lines]:
    """Columns where there are clearly fewer of them, rows otherwise; then rows in a batch, then plain rows one by one."""
    rows, columns = ("row" if ask.m == 1 else "rows"), ("column" if ask.n == 1 else "columns")
    asked = f"{ask.m} {rows} asked for, {ask.n} {columns}" if way is None else f"wrt.options asks to {way}"
    if engine.can_push and (way == "push" or (way is None and prefers_columns(ask, engine))):
        yield Lines("push", ask.n, asked)
    if engine.can_pull:
        yield Lines("pull", ask.m, asked)
    elif engine.can_push and way != "push":
        yield Lines("push", ask.n, f"{asked}; no backward pass exists")
    yield Lines("pull", ask.m, f"{asked}; one plain pass a row", batched=False)


def prefers_columns(ask: Ask, engine: Engine) -> bool:
    """Whether columns cost less. A device is kept waiting by a push, which starts three times as many operations."""
    if not engine.can_pull:
        return True
    few = ask.m * max(ask.m, ask.n) <= FEW_NUMBERS_DEVICE
    if few and ask.y.record.backend.arrays.accelerated(ask.y):
        return False
    return ask.m > ask.n * engine.push_cost + SET_UP_PASSES

