"""One thing that can be wrong with a gradient, and the operations by which it is recognized."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import wrt._why.causes as shelves

PYTHON = frozenset(["__int__", "__float__", "__bool__", "__index__", "__complex__", "__array__"])


@dataclass(frozen=True, slots=True)
class Cause:
    """A slug, what it means, what to write; and which operations of any framework show it.

    `stops` pass the value and not the gradient, `flattens` can have slope zero, `breaks` can have an infinite one.
    `raised` are patterns of the framework's own error messages. `case` is a small program with the mistake, which prints
    what `why` says; it is the page of the cause in the docs, too. `family` is the shelf it stands on there.
    """

    slug: str
    means: str
    remedy: str
    family: str = ""
    stops: frozenset[str] = frozenset()
    flattens: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()
    raised: tuple[str, ...] = ()
    case: str = ""


def ops(names: str) -> frozenset[str]:
    """Operations as frameworks spell them, made comparable.

    >>> sorted(ops("log_softmax LogSoftmax __gt__ round_"))
    ['gt', 'logsoftmax', 'round']
    """
    return frozenset(key(name) for name in names.split())


@cache
def key(op: str) -> str:
    """`__gt__`, `gt_` and `Gt` are one operation; `__int__` leaves the framework and is not the cast `int`."""
    if op in PYTHON:
        return op
    return op.rpartition(".")[2].replace("_", "").lower()


@cache
def causes() -> dict[str, Cause]:
    """Every cause by its slug; the file of a cause is called as the cause is."""
    found: dict[str, Cause] = {}
    for module in iter_modules(shelves.__path__):
        cause: Cause = import_module(f"{shelves.__name__}.{module.name}").CAUSE
        if cause.slug != module.name:
            raise ValueError(f"the cause {cause.slug} stands in a file called {module.name}")
        found[cause.slug] = cause
    return found


@cache
def by_operation(kind: str) -> dict[str, str]:
    """operation -> slug, for `stops`, `flattens` or `breaks`."""
    table: dict[str, str] = {}
    for cause in causes().values():
        operations: Iterable[str] = getattr(cause, kind)
        for op in operations:
            if table.setdefault(op, cause.slug) != cause.slug:
                raise ValueError(f"{op} {kind} for both {table[op]} and {cause.slug}")
    return table
