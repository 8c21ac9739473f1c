"""Ways to spoil a matrix of numbers, in NumPy: what a broken rule, table, product or layout could do to an answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Fault = Callable[[Numbers, float], Numbers]
"""An (m, n) array and how large the fault shall be -> a spoiled copy."""

SIZES = {"float64": 1e-9, "float32": 1e-3, "bfloat16": 0.5}
"""Of faults that have a size: a column scaled by one plus this."""
SMALL = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 0.5}
"""Of the largest column's length that the column has whose fault is to be noticed."""


def column_sizes(J: Numbers) -> Numbers:
    return np.linalg.norm(J, axis=0)


def largest_column(J: Numbers) -> int:
    return int(column_sizes(J).argmax())


def small_column(J: Numbers, share: float) -> int:
    """The smallest that is at least so large a share of the largest."""
    sizes = column_sizes(J)
    return int(np.where(sizes >= share * sizes.max(), sizes, np.inf).argmin())


def far_entry(J: Numbers, column: int) -> int:
    """The row of the largest entry of a column."""
    return int(np.abs(J[:, column]).argmax())


def two_columns(J: Numbers) -> tuple[int, int]:
    """The largest, and the one that differs most from it."""
    one = largest_column(J)
    return one, int(np.linalg.norm(J - J[:, [one]], axis=0).argmax())


def two_rows(J: Numbers) -> tuple[int, int]:
    return two_columns(J.T)


def swap_columns(J: Numbers, size: float) -> Numbers:
    one, other = two_columns(J)
    J[:, [one, other]] = J[:, [other, one]]
    return J


def swap_rows(J: Numbers, size: float) -> Numbers:
    return swap_columns(J.T, size).T


def shift_columns(J: Numbers, size: float) -> Numbers:
    return np.roll(J, 1, axis=1)


def shift_rows(J: Numbers, size: float) -> Numbers:
    return np.roll(J, 1, axis=0)


def reverse_columns(J: Numbers, size: float) -> Numbers:
    return J[:, ::-1]


def reverse_rows(J: Numbers, size: float) -> Numbers:
    return J[::-1]


def drop_block(J: Numbers, size: float) -> Numbers:
    """A quarter of the rows by a quarter of the columns, around the largest entry."""
    m, n = J.shape
    column = largest_column(J)
    row = far_entry(J, column)
    top, left = max(0, row - m // 8), max(0, column - n // 8)
    J[top : top + max(1, m // 4), left : left + max(1, n // 4)] = 0
    return J


def drop_last_rows(J: Numbers, size: float) -> Numbers:
    """As a last call that was not written would."""
    J[-max(1, len(J) // 5) :] = 0
    return J


def write_rows_twice(J: Numbers, size: float) -> Numbers:
    """The rows of one call in the place of the next."""
    k = max(1, len(J) // 4)
    J[k : 2 * k] = J[:k]
    return J


def transpose_layout(J: Numbers, size: float) -> Numbers:
    return J.T.copy().reshape(J.shape) if J.shape[0] > 1 else J[:, ::-1]


def scale_column(J: Numbers, size: float) -> Numbers:
    J[:, largest_column(J)] *= 1 + size
    return J


def scale_small_column(J: Numbers, size: float) -> Numbers:
    share = next(SMALL[dtype] for dtype, known in SIZES.items() if known == size)
    J[:, small_column(J, share)] *= 1 + size
    return J


def scale_row(J: Numbers, size: float) -> Numbers:
    J[largest_column(J.T)] *= 1 + 4 * size
    return J


def scale_everything(J: Numbers, size: float) -> Numbers:
    return J * (1 + size)


def flip_column(J: Numbers, size: float) -> Numbers:
    J[:, largest_column(J)] *= -1
    return J


def zero_column(J: Numbers, size: float) -> Numbers:
    J[:, largest_column(J)] = 0
    return J


def zero_small_column(J: Numbers, size: float) -> Numbers:
    J[:, small_column(J, 1e-12)] = 0
    return J


def zero_row(J: Numbers, size: float) -> Numbers:
    J[largest_column(J.T)] = 0
    return J


def zero_all(J: Numbers, size: float) -> Numbers:
    return 0 * J


def zero_all_but_one_column(J: Numbers, size: float) -> Numbers:
    kept = largest_column(J)
    found = np.zeros_like(J)
    found[:, kept] = J[:, kept]
    return found


def copy_column(J: Numbers, size: float) -> Numbers:
    one, other = two_columns(J)
    J[:, other] = J[:, one]
    return J


def copy_row(J: Numbers, size: float) -> Numbers:
    return copy_column(J.T, size).T


def raise_entry(J: Numbers, size: float) -> Numbers:
    column = largest_column(J)
    J[far_entry(J, column), column] *= 1.5
    return J


def move_entry_down(J: Numbers, size: float) -> Numbers:
    """To the next row."""
    column = largest_column(J)
    row = far_entry(J, column)
    J[(row + 1) % len(J), column] += J[row, column]
    J[row, column] = 0
    return J


def move_entry_aside(J: Numbers, size: float) -> Numbers:
    """To the next column."""
    return move_entry_down(J.T, size).T


def add_stray_entry(J: Numbers, size: float) -> Numbers:
    """A number where the smallest one of a column belongs."""
    column = largest_column(J)
    J[int(np.abs(J[:, column]).argmin()), column] += np.abs(J).max()
    return J


def sum_neighbors(J: Numbers, size: float) -> Numbers:
    """Rows that meet in one pass, and are not told apart."""
    return J + np.roll(J, 1, axis=0)


def lose_a_tenth(J: Numbers, size: float) -> Numbers:
    """A branch of ten percent, lost in every entry."""
    return 0.9 * J if size < 0.1 else 0.5 * J


def lower_precision(J: Numbers, size: float) -> Numbers:
    """Computed in the next lower type: float32 for float64, sixteen bits for float32."""
    if size < 1e-6:
        return J.astype(np.float32).astype(np.float64)
    if size < 0.1:
        return J.astype(np.float16).astype(np.float64)
    return np.sign(J) * 2.0 ** np.round(np.log2(np.abs(J) + 1e-30))


def not_finite(J: Numbers, size: float) -> Numbers:
    J[0, largest_column(J)] = np.nan
    return J


def infinite_column(J: Numbers, size: float) -> Numbers:
    J[:, largest_column(J)] = np.inf
    return J


def nothing_finite(J: Numbers, size: float) -> Numbers:
    return np.full_like(J, np.nan)


def huge_column(J: Numbers, size: float) -> Numbers:
    """So large that it would hide what is off in every other column."""
    one, other = two_columns(J)
    J[:, other] *= 1 + 10 * size
    J[:, one] *= 1e15 if size < 0.1 else 1e6
    return J


OF_A_MATRIX: dict[str, Fault] = {
    "two columns exchanged": swap_columns,
    "two rows exchanged": swap_rows,
    "columns shifted by one": shift_columns,
    "rows shifted by one": shift_rows,
    "columns reversed": reverse_columns,
    "rows reversed": reverse_rows,
    "a block dropped": drop_block,
    "the last rows not written": drop_last_rows,
    "rows of one call written twice": write_rows_twice,
    "the layout transposed": transpose_layout,
    "the largest column scaled": scale_column,
    "a small column scaled": scale_small_column,
    "a row scaled": scale_row,
    "everything scaled": scale_everything,
    "the sign of a column": flip_column,
    "the largest column zero": zero_column,
    "the smallest column zero": zero_small_column,
    "a row zero": zero_row,
    "everything zero": zero_all,
    "all columns but one zero": zero_all_but_one_column,
    "a column twice": copy_column,
    "a row twice": copy_row,
    "one entry half as large again": raise_entry,
    "one entry in the next row": move_entry_down,
    "one entry in the next column": move_entry_aside,
    "an entry where none belongs": add_stray_entry,
    "neighbors not told apart": sum_neighbors,
    "a branch of a tenth lost": lose_a_tenth,
    "computed in lower precision": lower_precision,
    "one entry NaN": not_finite,
    "a column infinite": infinite_column,
    "everything NaN": nothing_finite,
    "one column huge, another scaled": huge_column,
}
OF_A_BATCH: dict[str, Fault] = {
    "two lines of a batch exchanged": swap_rows,
    "a line of a batch zero": zero_row,
    "a line of a batch scaled": scale_row,
    "one number of a batch": raise_entry,
    "lines of a batch shifted by one": shift_rows,
    "numbers of each line shifted by one": shift_columns,
    "the first line of a batch for all": lambda J, size: np.repeat(J[:1], len(J), 0) if len(J) > 1 else 2 * J,
    "a batch NaN": nothing_finite,
}
OF_A_FACTOR: dict[str, Fault] = {
    "a factor scaled": scale_everything,
    "two rows of a factor exchanged": swap_rows,
    "two columns of a factor exchanged": swap_columns,
    "a row of a factor zero": zero_row,
    "one number of a factor": raise_entry,
    "the layout of a factor transposed": transpose_layout,
}


def spoil(fault: Fault, numbers: npt.NDArray[np.generic], size: float) -> Numbers:
    """A spoiled copy of a matrix, or of lines of anything."""
    wide = np.array(numbers, dtype=np.float64)
    return np.ascontiguousarray(fault(wide.reshape(len(wide), -1), size)).reshape(wide.shape)
