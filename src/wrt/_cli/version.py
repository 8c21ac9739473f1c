"""`wrt version`."""

import importlib.metadata
import platform


def version() -> None:
    """Say which wrt this is."""
    print(f"wrt {importlib.metadata.version('wrt')} (Python {platform.python_version()})")
