"""An irregular pattern, known from the operations on the way: lines that share no entry travel together."""

from __future__ import annotations

from typing import Any

import numpy as np

from wrt._core.pattern import Compression, compress
from wrt._core.plan import Compressed, Direct
from wrt._sparsity.coloring import color_rows

GAIN = 0.5  # of the direct passes that colors may take


def colored(pattern: Any, instead_of: Direct, push_cost: float) -> Compressed | None:
    """The plan, by rows or by columns; `pattern` is a boolean csr array, `push_cost` the price of a push next to a pull."""
    most = int(GAIN * instead_of.passes)
    by_rows = color_rows(pattern, below=most)
    rows = most if by_rows is None else int(by_rows.max()) + 1
    by_columns = None
    if _fullest_row(pattern) * push_cost < rows:
        by_columns = color_rows(pattern.T.tocsr(), below=max(1, int(rows / push_cost)))
    found = _compression(pattern, by_rows, by_columns)
    if found is None:
        return None
    lines = "rows" if found.way == "pull" else "columns"
    nonzeros = f"the operations on the way leave at most {_fullest_row(pattern)} entries a row"
    because = f"{nonzeros}; {found.passes} colors of {lines} instead of {instead_of.passes} passes"
    return Compressed(found, because, "colored")


def _fullest_row(pattern: Any) -> int:
    return int(np.diff(pattern.indptr).max(initial=0))


def _compression(pattern: Any, by_rows: Any, by_columns: Any) -> Compression | None:
    coo = pattern.tocoo()
    rows, columns = coo.row.astype(np.int64), coo.col.astype(np.int64)
    if by_columns is not None:
        return compress(rows, columns, by_columns, pattern.shape, "push")
    return None if by_rows is None else compress(rows, columns, by_rows, pattern.shape, "pull")
