"""`wrt version`."""

import platform

import wrt


def version() -> None:
    """Say which wrt this is."""
    print(f"wrt {wrt.__version__} (Python {platform.python_version()})")
