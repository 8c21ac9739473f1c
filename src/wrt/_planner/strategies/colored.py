"""An irregular pattern that is known: lines that share no entry travel together."""

from __future__ import annotations

from typing import Any

import numpy as np

from wrt._core.pattern import Compression, compress
from wrt._core.plan import Compressed, Direct
from wrt._sparsity.coloring import color_rows

FULL = 0.1  # of all rows that a column must meet to be pushed apart
GAIN = 0.5  # of the direct passes that colors may take


def colored(
    pattern: Any, instead_of: Direct, push_cost: float, told_by: str = "the operations on the way"
) -> Compressed | None:
    """The plan: by rows, by columns, or by rows with a few full columns apart (an arrow needs three passes).

    `pattern` is a boolean csr array, `push_cost` the price of a push next to a pull.
    """
    most = int(GAIN * instead_of.passes)
    by_rows = color_rows(pattern, below=most)
    rows = most if by_rows is None else int(by_rows.max()) + 1
    by_columns = None
    if _fullest_row(pattern) * push_cost < rows:
        by_columns = color_rows(pattern.T.tocsr(), below=max(1, int(rows / push_cost)))
    if by_rows is None and by_columns is None:
        return _apart(pattern, instead_of, most, push_cost, told_by)
    found = _compression(pattern, by_rows, by_columns)
    if found is None:
        return None
    lines = "rows" if found.way == "pull" else "columns"
    because = f"{told_by} {_told(pattern)}; {found.passes} colors of {lines} instead of {instead_of.passes} passes"
    return Compressed(found, because, "colored")


def _apart(pattern: Any, instead_of: Direct, most: int, push_cost: float, told_by: str) -> Compressed | None:
    """Both ways: the fullest columns are pushed, the rows of the rest share passes."""
    if not push_cost < np.inf:
        return None
    entries = np.bincount(pattern.indices, minlength=pattern.shape[1])
    full = np.flatnonzero(entries > max(8, FULL * pattern.shape[0]))
    if not 0 < len(full) * push_cost < most:
        return None
    rest = pattern.tocsc()
    keep = np.ones(pattern.shape[1], dtype=bool)
    keep[full] = False
    rest = (rest @ _chosen(keep)).tocsr()
    rest.eliminate_zeros()
    by_rows = color_rows(rest, below=int(most - len(full) * push_cost))
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
