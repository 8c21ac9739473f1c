"""An irregular pattern that is known: lines that share no entry travel together."""

from __future__ import annotations

from typing import Any

import numpy as np

from wrt._core.index import Positions
from wrt._core.pattern import Compression, compress
from wrt._core.plan import Compressed, Direct
from wrt._sparsity.coloring import color_rows

GAIN = 0.5  # of the direct passes that colors may take
APART = 0.7  # of the passes one way that both ways together may promise
SET_UP = 2  # passes before anything is pushed, and to prove it


def colored(
    pattern: Any, instead_of: Direct, push_cost: float, told_by: str = "the operations on the way"
) -> Compressed | None:
    """The plan: by rows, by columns, or by rows with the fullest columns apart (an arrow needs three passes).

    `pattern` is a boolean csr array, `push_cost` the price of a push next to a pull.
    """
    most = int(GAIN * instead_of.passes)
    found = _one_way(pattern, most, push_cost)
    price = most if found is None else found.passes * (1.0 if found.way == "pull" else push_cost)
    full, promised = _fullest_columns(pattern, push_cost)
    if len(full) and promised < APART * price:
        both = _apart(pattern, full, instead_of, int(price - SET_UP - len(full) * push_cost), told_by)
        if both is not None:
            return both
    if found is None:
        return None
    lines = "rows" if found.way == "pull" else "columns"
    because = f"{told_by} {_told(pattern)}; {found.passes} colors of {lines} instead of {instead_of.passes} passes"
    return Compressed(found, because, "colored")


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
    return np.sort(order[:count]), float(prices[count]) + SET_UP


def _apart(pattern: Any, full: Positions, instead_of: Direct, below: int, told_by: str) -> Compressed | None:
    """Both ways: some columns are pushed, the rows of the rest share passes."""
    keep = np.ones(pattern.shape[1], dtype=bool)
    keep[full] = False
    rest = (pattern.tocsc() @ _chosen(keep)).tocsr()
    rest.eliminate_zeros()
    by_rows = color_rows(rest, below=below) if below > 0 else None
    found = None if by_rows is None else _compression(rest, by_rows, None)
    if found is None:
        return None
    apart = f"{len(full)} columns pushed apart" if len(full) > 1 else "one column pushed apart"
    because = f"{found.passes} colors of rows and {apart} instead of {instead_of.passes} passes"
    return Compressed(found, f"{told_by} {_told(rest)} beside full columns; {because}", "colored", columns=full)


def _chosen(keep: Any) -> Any:
    from scipy.sparse import diags_array

    return diags_array(keep, dtype=bool).tocsc()


def _told(pattern: Any) -> str:
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
