"""The numbers by which plans are chosen, in one place. All of them are about speed: the proof decides what is right."""

PLANNED_LINES = 65
"""A shorter side than this is swept directly: nothing that planning finds would pay for it."""
QUICK_SECONDS = 2e-3
"""Of a direct sweep that planning leaves alone,"""
QUICK_SECONDS_DEVICE = 4e-3
"""and on a device: samples are looked at on the host, and tables made there have to travel."""
GAIN = 0.75
"""Of the direct time, or of its passes, that another plan may take; so narrow a cut has to be."""
FAR_FEWER = 0.5
"""Of the direct passes that colors may take, or entries of a row, for columns to be looked at too."""
SET_UP_PASSES = 2
"""A push starts with a pull of its own, and is proven by one."""
SAMPLED_ROWS = 12
"""Rows that show a structure."""
DENSE_SHARE = 0.4
"""Of a typical row, or of a pattern, that may be nonzero for a structure to pay,"""
SPARSE_SHARE = 0.15
"""and for the coloring of an irregular pattern."""
COLORED_LINES = 256
"""Rows and columns from which on an irregular pattern is worth its coloring, and stretches of a chain their samples."""
STRETCH_SHARE = 0.15
"""Of the work of a pass that a stretch of its own must have."""
FEW_NUMBERS_DEVICE = 2**22
"""In all rows together, that a device sweeps while the next operation is still being started."""

# Patterns.
GOOD_RATIO = 1.5
"""Entries of a guess for each sampled nonzero: so few, and no other view of the axes is looked for;"""
TIGHT_RATIO = 2.7
"""so few, and another view is hardly better;"""
CLOSE_RATIO = 4.0
"""so few, where every long axis is followed, and joint offsets (see `lattice`) will thin it out."""
LATTICE_CLASSES = 16
"""Kinds of rows,"""
LATTICE_OFFSETS = 96
"""entries of all their rows together,"""
LATTICE_WEIGHTS = 4096
"""and weights of a hash that are tried."""
CLASSES_PER_ENTRY = 3
"""Of a column, where rows are summed in classes: fewer tell less, more take more passes."""
