"""Every number that decides something, with its unit."""

SMALL_NUMBERS = 2**14
"""That a compiled program gives another shape sooner than they are handed to NumPy and back."""
COLUMNS_PER_CALL = 128
"""Where rows have to be made of columns: of a loop whose length is decided while it runs."""
PUSH_COST_IN_PULLS = 0.75
"""What moves numbers forward is read in place, backward it is padded and added up; a pull runs a loop twice."""
TRANSPOSED_COST_IN_PULLS = 2.0
"""A push as a pull, transposed: no rule that moves forward is known."""
KEPT_PROGRAMS = 512
"""Compiled, by what they compute."""
