"""The numbers by which execution decides, in one place."""

OWN_ROUNDINGS = 32
"""Of a column's own 2-norm, that a right answer may be off by: measured on 19 programs, which use at most 0.44 of it."""
OWN_ROUNDINGS_HALF = 12
"""The same in half precision, where 32 roundings would be a quarter of a column."""
FLOOR_ROUNDINGS = 4
"""Of the largest column's 2-norm: columns that are small because large terms cancel, noise outside of a window."""
HALF_PRECISION = 2.0**-12
"""Roundings above this are those of half precision."""
DOUBTFUL_COLUMNS = 16
"""Columns that are settled one by one; more of them mean that the plan was wrong."""
NOISE_SPLITS = 3
"""Times that the weights of the independent pass are parted in two, to measure by how much it rounds,"""
NOISE_MARGIN = 4
"""and how many times that a column may be off by."""
HOPELESS_HALF = 0.25
"""Of the largest column, that no rounding explains in half precision; above it, the root of a rounding."""

FEW_NUMBERS = 2**12
"""At the ends of all lines together, that go in one call without a look at what lies between."""
CALL_BYTES_CPU = 5 * 2**19
"""Of the widest tensor in one call of the engine: measured best from 2 to 3 MB."""
WHOLE_CALL_BYTES_CPU = 5 * 2**20
"""Up to which all lines go in one call: a second one costs more than a fuller cache."""
CALL_LINES_CPU = 32, 1024
"""The fewest and the most lines of a call."""
CALL_BYTES_DEVICE = 2**30
"""Of the widest tensor in one call: many small calls leave a device idle."""
CALL_MEMORY_SHARE = 0.25
"""Of the memory that is free, for one call."""
LIVE_TENSORS = 4.5
"""Tensors of the widest kind that are alive at once in a batched pass, as measured."""
CHECKED_BYTES = 2**26
"""Answers below this are computed without asking how much memory is free."""
FREE_SHARE = 0.9
"""Of the free memory that may be taken."""
REPAIRED_LINES = 256
"""Rows or columns with entries that are not finite that are asked for again; a network that is NaN everywhere stays so."""
STACKED_PRODUCTS = 8
"""Products u @ J that go in one batch; fewer are quicker one by one, which needs no proof."""
