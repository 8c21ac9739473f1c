"""How far names are looked for."""

CONTAINER_DEPTH = 2
"""Containers in one another: `states[3]` and `states[3][0]`."""
NAMED_FRAMES = 3
"""The function that asked, and the two that called it: where an error looks for what the user calls a thing."""
