"""The numbers by which plans are chosen, in one place. All of them are about speed: the proof decides what is right."""

PLANNED_LINES = 65
"""A shorter side than this is swept directly: nothing that planning finds would pay for it."""
QUICK_SECONDS = 2e-3
"""Of a direct sweep that planning leaves alone,"""
QUICK_SECONDS_DEVICE = 4e-3
"""and on a device: samples are looked at on the host, and tables made there have to travel."""
GAIN = 0.75
"""Of the direct time (or of its passes) that another plan may take."""
SAMPLED_ROWS = 12
"""Rows that show a structure."""
DENSE_SHARE = 0.4
"""Of a typical row that may be nonzero for a structure to pay,"""
SPARSE_SHARE = 0.15
"""and for the coloring of an irregular pattern."""
COLORED_LINES = 256
"""Rows and columns from which on an irregular pattern is worth its coloring, and stretches of a chain their samples."""
STRETCH_SHARE = 0.15
"""Of the work of a pass that a stretch of its own must have."""
FEW_NUMBERS_DEVICE = 2**22
"""In all rows together, that a device sweeps while the next operation is still being started."""
