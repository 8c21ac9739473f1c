"""Every number in this backend that is a choice, with its unit."""

REACH_STEPS = 5
"""How many containers or attributes deep a tensor may lie within the user's reach, to be found there."""

REACH_ITEMS = 1000
"""Containers of more items are data, and are not searched for tensors."""
