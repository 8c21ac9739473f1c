"""Every number in this backend that is a choice, with its unit."""

REACH_VALUES = 5_000
"""How many variables, items and attributes of the user's are looked at, the nearest first, for retained gradients."""

FRESH_MEMORY_ELEMENTS = 2**18
"""A larger array on a CPU is asked of the system by NumPy: it is there in a tenth of the time torch takes."""

CACHE_LINE_BYTES = 64
"""NumPy begins anywhere, and MKL takes up to three times as long for a product whose rows begin inside of a line."""

QUOTE_CHARACTERS = 200
"""How much of an error of torch's is quoted in one of ours."""
