"""The few sizes that decide how work is cut up, where nobody says otherwise."""

KEPT_BYTES = 2**29
"""What a process may keep of a structure or of factors to answer blocks from.

It decides how a block is computed, and so its last bits: an answer on disk goes on with what it was begun with.
"""

KEPT_RUNS = 2
"""Recorded runs, and questions about them, that a process holds on to."""

BATCH_SAMPLES = 2048
BATCH_NUMBERS = 2**21
"""Samples that go through a model at once: so many, and so many numbers of the larger side of all of them."""

ROUNDINGS_APART = 2.0**13
"""By which the same number may differ between two machines, or between a batch and a single sample."""

ENTRY_BYTES = 48
"""That finding and keeping one entry of a structure takes."""

SEED_NUMBERS = 2**23
"""That the seeds of one sweep, or what it returns, may take."""
