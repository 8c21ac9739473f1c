"""An irregular pattern: lines that share no entry travel together.

The pattern comes from the operations on the way where they tell it, otherwise from sums of rows, which rule out where
entries cannot be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.pattern import Compression, compress
from wrt._core.plan import Lines
from wrt._core.protocol import Engine
from wrt._plan.patterns.irregular import Sieve, color_rows, compose, enough, moduli
from wrt._plan.patterns.samples import Samples
from wrt._plan.thresholds import COLORED_LINES, FAR_FEWER, SET_UP_PASSES, SPARSE_SHARE

Sums = Callable[[list[int]], list[npt.NDArray[np.bool_]]]
"""Moduli -> for each of them where the rows of a class, weighted at random and summed, are nonzero: (modulus, n)."""


def colored(
    ask: Ask, engine: Engine, samples: Samples, sums: Sums, instead_of: int, push_cost: float
) -> Lines | str:
    """The plan for an irregular pattern, or why there is none."""
    if min(ask.m, ask.n) < COLORED_LINES or not 0 < samples.density <= SPARSE_SHARE:
        return f"colored: rows are {100 * samples.density:.0f} % full, or too few to color"
    pattern, source = _pattern_of(ask, engine), "the operations on the way"
    if pattern is None:
        pattern, spent = _pattern_by_sums((ask.m, ask.n), samples, sums, instead_of)
        source = f"{spent} sums of rows"
    if pattern is None:
        return "colored: the pattern is not known, or too full"
    return color(pattern, instead_of, push_cost, source)


def color(pattern: Any, instead_of: int, push_cost: float, source: str = "the operations on the way") -> Lines | str:
    """By rows, by columns, or by rows with the fullest columns apart (an arrow needs three passes).

    `pattern` is a boolean csr array, `push_cost` the price of a push next to a pull.
    """
    most = int(FAR_FEWER * instead_of)
    found = _one_way(pattern, most, push_cost)
    price = most if found is None else found.passes * (1.0 if found.way == "pull" else push_cost)
    full, promised = _fullest_columns(pattern, push_cost)
    if len(full) and promised < 0.7 * price:
        both = _apart(pattern, full, instead_of, int(price - SET_UP_PASSES - len(full) * push_cost), source)
        if both is not None:
            return both
    if found is None:
        return f"colored: more than {most} colors would be needed"
    lines = "rows" if found.way == "pull" else "columns"
    because = f"{source} {_words(pattern)}; {found.passes} colors of {lines} instead of {instead_of} passes"
    return Lines(found.way, found.passes, because, "colored", shared=found)


# ---------------------------------------------------------------- the pattern


def _pattern_of(ask: Ask, engine: Engine) -> Any | None:
    """The (m, n) pattern as a boolean csr array, by what the operations on the way tell; None where one does not."""
    from scipy.sparse import csr_array, vstack

    if not ask.one_tensor:
        return None
    part = ask.x.parts[0]
    rows, columns = ask.rows.positions, part.elements.positions
    local = ask.y.record.local_maps(ask.y, part.value)
    if local is not None:
        return compose(local, rows, columns)
    blocks = []
    for start in range(0, ask.m, COLORED_LINES):
        marks = engine.reach(rows[start : start + COLORED_LINES])
        if marks is None:
            return None
        blocks.append(csr_array(marks[:, columns]))
    return vstack(blocks, format="csr")


def _pattern_by_sums(shape: tuple[int, int], samples: Samples, sums: Sums, instead_of: int) -> tuple[Any | None, int]:
    """What sums of rows rule out leaves the pattern; None where they and the colors would take too many passes."""
    m, n = shape
    in_a_column = max(1.0, samples.density * m)
    wrong = 0.5 * samples.density  # so many wrong entries cost less than another family of sums
    together = enough(in_a_column, wrong)
    more = (modulus for modulus in moduli(in_a_column) if modulus > together[-1])
    sieve, spent = Sieve(m, n), 0
    while sieve.left > wrong:
        spent += sum(together)
        if spent > 0.25 * instead_of:
            return None, spent  # too full, or fuller somewhere than where the samples looked
        for touched in sums(together):
            sieve.add(touched)
        together = [next(more)]
    return sieve.pattern(0.1), spent


# ---------------------------------------------------------------- colors


def _one_way(pattern: Any, most: int, push_cost: float) -> Compression | None:
    """By rows, or by columns where that costs less."""
    by_rows = color_rows(pattern, below=most)
    rows = most if by_rows is None else int(by_rows.max()) + 1
    by_columns = None
    if _fullest_row(pattern) * push_cost < rows:
        by_columns = color_rows(pattern.T.tocsr(), below=max(1, int(rows / push_cost)))
    return _compression(pattern, by_rows, by_columns)


def _fullest_columns(pattern: Any, push_cost: float) -> tuple[Positions, float]:
    """Columns that are better pushed one by one, and what the passes then come to at least.

    Rows take as many colors as the fullest column has entries: so many columns are pushed that this and they cost least.
    """
    if not push_cost < np.inf:
        return np.zeros(0, dtype=np.int64), np.inf
    entries = np.bincount(pattern.indices, minlength=pattern.shape[1])
    order = np.argsort(-entries, kind="stable")
    prices = np.arange(len(order)) * push_cost + entries[order]
    count = int(np.argmin(prices))
    return np.sort(order[:count]), float(prices[count]) + SET_UP_PASSES


def _apart(pattern: Any, full: Positions, instead_of: int, below: int, source: str) -> Lines | None:
    """Both ways: some columns are pushed, the rows of the rest share passes."""
    from scipy.sparse import diags_array

    keep = np.ones(pattern.shape[1], dtype=bool)
    keep[full] = False
    rest = (pattern.tocsc() @ diags_array(keep, dtype=bool).tocsc()).tocsr()
    rest.eliminate_zeros()
    by_rows = color_rows(rest, below=below) if below > 0 else None
    found = None if by_rows is None else _compression(rest, by_rows, None)
    if found is None:
        return None
    apart = f"{len(full)} columns pushed apart" if len(full) > 1 else "one column pushed apart"
    because = f"{found.passes} colors of rows and {apart} instead of {instead_of} passes"
    words = f"{source} {_words(rest)} beside full columns; {because}"
    return Lines("pull", found.passes + len(full), words, "colored", shared=found, alone=full)


def _words(pattern: Any) -> str:
    typical = int(np.median(np.diff(pattern.indptr)))
    return f"leave at most {_fullest_row(pattern)} entries a row, {typical} in most"


def _fullest_row(pattern: Any) -> int:
    return int(np.diff(pattern.indptr).max(initial=0))


def _compression(pattern: Any, by_rows: Any, by_columns: Any) -> Compression | None:
    coo = pattern.tocoo()
    rows, columns = coo.row.astype(np.int64), coo.col.astype(np.int64)
    if by_columns is not None:
        return compress(rows, columns, by_columns, pattern.shape, "push")
    return None if by_rows is None else compress(rows, columns, by_rows, pattern.shape, "pull")
