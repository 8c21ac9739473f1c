"""Every number in this backend that is a choice, with its unit."""

RETAINED_FRAMES = 2
"""Functions of the user's, the nearest first, in whose variables tensors that retain their gradient are looked for."""

RETAINED_ITEMS = 16
"""Of a container there, of which more would be data."""
