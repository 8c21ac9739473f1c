"""A proven answer once more: its entries by a program that makes nothing else, in the form that was asked for.

The program is made when an answer is asked for again, and held once to the entries that were proven. From then on the same
program is given the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt._core.index import Positions
from wrt._core.plan import Compressed
from wrt._core.protocol import Array
from wrt._run.again import DENSE, PASSES, SPARSE, Form
from wrt._run.compressed import Passes
from wrt._run.rows import by_rows, like, thinned

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Repeated:
    """A call whose program is made when it is first called; what was proven is let go of then."""

    __slots__ = ("_make", "_run")

    def __init__(self, make: Callable[[], Callable[[], Any]]) -> None:
        self._make: Callable[[], Callable[[], Any]] | None = make
        self._run: Callable[[], Any] | None = None

    def __call__(self) -> Any:
        if self._make is not None:
            self._run, self._make = self._make(), None
        assert self._run is not None
        return self._run()


def _dense(found: Passes, program: Any) -> Callable[[], Array]:
    """In the shape of the question."""
    return _made(found, program, _by_place(found.plan), dense=True)


def _passes(found: Passes, program: Any) -> Callable[[], Passes]:
    ask, plan, certificate = found.ask, found.plan, found.certificate
    run, numpy = _made(found, program, None), ask.y.record.backend.arrays.numpy
    return lambda: Passes(ask, plan, numpy(run()), certificate)


def _nonzeros(found: Passes, program: Any) -> Callable[[], csr_array]:
    """Of the entries that were proven not to be zero."""
    entries, pattern = _alive(found)
    run = _made(found, program, entries)
    return lambda: like(pattern, np.array(run()))  # a copy: memory that the user may write to


FORMS: dict[Form, Callable[[Passes, Any], Callable[[], Any]]] = {DENSE: _dense, PASSES: _passes, SPARSE: _nonzeros}


def _made(
    found: Passes, program: Any, entries: tuple[Positions, Positions] | None, *, dense: bool = False
) -> Callable[[], Array]:
    """Raises where no program gives what was proven: then the question is answered as if it were new."""
    flat = np.asarray(found.found).reshape(-1)
    run: Callable[[], Array] | None = program.again(entries, flat if entries is None else flat[entries[0]], dense=dense)
    if run is None:
        raise LookupError("no program gives this answer again")
    return run


def _by_place(plan: Compressed) -> tuple[Positions, Positions]:
    """The slots that somebody owns and their places in the flat (m, n), in the order of the places."""
    if "by place" not in plan.kept:
        slots, places = plan.compression.flat
        order = np.argsort(places)
        plan.kept["by place"] = slots[order], places[order]
    found: tuple[Positions, Positions] = plan.kept["by place"]
    return found


def _alive(found: Passes) -> tuple[tuple[Positions, Positions], csr_array]:
    """The same without what is zero, and that pattern; other runs have the same zeros more often than not."""
    slots, places = _by_place(found.plan)
    there = np.asarray(found.found).reshape(-1)[slots] != 0
    before, entries, pattern = found.plan.kept.get("alive again", (None, None, None))
    if before is None or not np.array_equal(before, there):
        entries, pattern = (slots[there], places[there]), thinned(by_rows(found.plan)[1], there)
        found.plan.kept["alive again"] = there, entries, pattern
    return entries, pattern
