"""Beyond one process: models that travel, blocks computed anywhere, answers on disk, data sets."""

from importlib import import_module
from typing import Any

from wrt.errors import NotInstalled


def needs(package: str, what: str, extra: str = "dask") -> Any:
    """An optional package, imported when it is first needed; three lines about how to get it where it is missing."""
    try:
        return import_module(package)
    except ImportError as error:
        top = package.split(".")[0]
        raise NotInstalled(f"{what} needs {top}", f"it is not installed ({error})", f"pip install 'wrt[{extra}]'") from None
