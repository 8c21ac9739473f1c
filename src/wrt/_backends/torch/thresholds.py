"""Every number in this backend that is a choice, with its unit."""

RETAINED_FRAMES = 2
"""Functions of the user's, the nearest first, in whose variables tensors that retain their gradient are looked for."""

RETAINED_ITEMS = 24
"""Of a container or object there, of which more would be data."""

RETAINED_OBJECTS = 24
"""Containers, objects and modules that are looked into."""

FRESH_MEMORY_ELEMENTS = 2**18
"""A larger array on a CPU is asked of the system by NumPy: it is there in a tenth of the time torch takes."""
