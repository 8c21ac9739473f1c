"""Optional packages, imported when they are first needed, and asked for in words where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from wrt.errors import NotInstalled


def needs(package: str, what: str, extra: str = "dask") -> Any:
    """The package, or three lines about how to get it."""
    try:
        return import_module(package)
    except ImportError as error:
        top = package.split(".")[0]
        raise NotInstalled(
            f"{what} needs {top}",
            f"it is not installed ({error})",
            f"pip install 'wrt[{extra}]'",
        ) from None
