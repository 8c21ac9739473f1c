"""The numbers by which `why` and `check` tell what is ordinary from what is not. Ratios have no unit."""

from __future__ import annotations

ORDINARY_RATIO = 1e8
"""A gradient this many times larger or smaller than what was pulled back is too large or too small."""

GROWING_RATIO = 1.05
SHRINKING_RATIO = 0.6
"""An operation that makes a gradient larger or smaller than by this takes part in a chain that grows or shrinks."""

CHAIN_OPERATIONS = 8
"""So many operations are a chain."""

LONG_PATH_OPERATIONS = 40
"""On a path of more operations a gradient is small for its length, not because contributions cancel."""

GUARD_OPERATIONS = 3
"""What is meant to keep an argument inside its domain stands at most so many operations before it."""

UNDERFLOW_SIZE = 1e-25
"""A cotangent smaller than this becomes zero by underflow, not by cancelling."""

SAME_RATIO = 1e-3
"""Numbers are the same where they differ by no more than this share of their size,"""

NOTHING_RATIO = 1e-6
"""and nothing where they are no more than this share of the largest beside them. One operation that makes a gradient
nothing, or the other way round, is to blame alone; and so far to each side a kink is looked for."""

RERUN_RATIO = 2e-2
"""An operation that gives something else than this by far, when run again, is random or has a memory."""

PROBE_ROUNDINGS = 8
"""Roundoff of a difference, in roundings of its terms; a slope in doubt is looked at with a step so many times smaller."""

CHECK_TOLERANCE = {"float16": 5e-2, "bfloat16": 5e-2, "float32": 1e-3, "float64": 1e-5}
"""How far a backward that ran in this type may be from differences in double precision, relative to both."""

SURVEYED_TENSORS = 200
"""Where a survey of a run ends."""

ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def rounding(dtype: str) -> float:
    """The distance from 1 to the next number of a type."""
    return ROUNDING.get(dtype, ROUNDING["float32"])
