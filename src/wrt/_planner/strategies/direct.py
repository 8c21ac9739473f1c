"""Sweep along the shorter side of the Jacobian."""

from __future__ import annotations

from wrt._core.plan import Direct, Way


def direct(
    rows: int, columns: int, *, can_push: bool = True, way: Way | None = None, push_cost: float = 1.0
) -> Direct:
    """Rows by pull, or columns by push where there are clearly fewer of them; a push costs so much next to a pull.

    >>> direct(1, 1000).because
    '1 row asked for, 1000 columns'
    """
    if way is not None and (way == "pull" or can_push):
        return Direct(way, rows if way == "pull" else columns, f"wrt.options asks to {way}")
    asked = f"{_count(rows, 'row')} asked for, {_count(columns, 'column')}"
    # a push starts with a pull of its own and ends with one for the certificate
    if rows <= columns * push_cost + 2 or not can_push:
        return Direct("pull", rows, asked)
    return Direct("push", columns, asked)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
