"""Methods of a Derivative whose work is done in the layer above: found by name when they are called.

Imports only go down, and a Derivative should not know who spreads its blocks over processes; it only passes itself on.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def beyond(name: str) -> Any:
    """A function of the layer above, in the file of its own name."""
    return getattr(import_module(f"wrt._beyond.{name}"), name)
