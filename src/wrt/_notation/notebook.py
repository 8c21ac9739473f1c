"""`%load_ext wrt`: a cell that starts with `%%why` is recorded, run, and examined."""

from __future__ import annotations

import ast
from importlib import import_module
from typing import Any

from wrt._backends import FRAMEWORKS


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext wrt`."""
    shell.register_magic_function(_why(shell), "cell", "why")


def _frameworks_of(cell: str) -> list[str]:
    """The frameworks that a cell imports.

    >>> _frameworks_of("import os, torch\\nfrom jax import numpy as jnp")
    ['jax', 'torch']
    """
    try:
        statements = list(ast.walk(ast.parse(cell)))
    except SyntaxError:  # a magic of IPython's, or a mistake that the cell itself will show
        return []
    named = {alias.name for one in statements if isinstance(one, ast.Import) for alias in one.names}
    named |= {one.module for one in statements if isinstance(one, ast.ImportFrom) and one.module and not one.level}
    return sorted({name.split(".")[0] for name in named} & set(FRAMEWORKS))


def _why(shell: Any) -> Any:
    def why(line: str, cell: str) -> None:
        """`%%why`: everything wrong in the cell; `%%why loss, x`: why this gradient is as it is."""
        from wrt._notation.trace import record
        from wrt._notation.why import why as examine

        for framework in _frameworks_of(cell):  # the first cell of a notebook often imports its framework itself
            import_module(framework)
        with record() as t:
            result = shell.run_cell(cell)
        error = result.error_in_exec or result.error_before_exec
        if error is not None:
            print(examine(error))  # noqa: T201 - a cell answers below itself
        elif line.strip():
            y, x = (shell.ev(part) for part in line.split(","))
            print(examine(y, x))  # noqa: T201
        else:
            print(t.why())  # noqa: T201

    return why
