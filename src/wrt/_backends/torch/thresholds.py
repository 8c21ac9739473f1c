"""Every number in this backend that is a choice, with its unit."""

REACH_STEPS = 5
"""How many containers or attributes deep a tensor may lie within the user's reach, to be found there."""

REACH_ITEMS = 1000
"""Containers of more items are data, and are not searched for tensors."""

FRESH_MEMORY_ELEMENTS = 2**18
"""A larger array on a CPU is asked of the system by NumPy: it is there in a tenth of the time torch takes."""

CACHE_LINE_BYTES = 64
"""NumPy begins anywhere, and MKL takes up to three times as long for a product whose rows begin inside of a line."""

QUOTE_CHARACTERS = 200
"""How much of an error of torch's is quoted in one of ours."""
