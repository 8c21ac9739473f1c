"""Settings of the current context: `with wrt.options(certify=False): ...`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

from wrt._core.plan import Way
from wrt.errors import WrongQuery


@dataclass(frozen=True, slots=True)
class Options:
    """`certify`: prove every answer of several passes. `memory`: bytes an answer may take (None: what is free).

    `run_again`: before zeros are returned for want of a path, a traced function is run once more at a moved x.
    `way`: "pull" for rows or "push" for columns, whatever they cost (None: the planner decides).
    """

    certify: bool = True
    memory: int | None = None
    run_again: bool = True
    way: Way | None = None

    def __post_init__(self) -> None:
        if self.way not in (None, "pull", "push"):
            raise WrongQuery(
                f"wrt.options(way={self.way!r})",
                "a Jacobian is swept by rows or by columns",
                'write way="pull" for rows, way="push" for columns, or way=None for whichever costs less',
            )


DEFAULT = Options()
CURRENT: ContextVar[Options] = ContextVar("wrt_options", default=DEFAULT)


def current() -> Options:
    return CURRENT.get()


@contextmanager
def options(**changes: Any) -> Iterator[Options]:
    """Change settings inside a block.

    >>> with options(certify=False) as chosen:
    ...     chosen.certify
    False
    """
    known = [field.name for field in fields(Options)]
    for name in changes:
        if name not in known:
            raise WrongQuery(
                f"wrt.options({name}={changes[name]!r})", f"there is no such setting; there are {', '.join(known)}",
                f"write one of these, for example wrt.options({known[0]}=False)",
            )  # fmt: skip
    token = CURRENT.set(replace(CURRENT.get(), **changes))
    try:
        yield CURRENT.get()
    finally:
        CURRENT.reset(token)
