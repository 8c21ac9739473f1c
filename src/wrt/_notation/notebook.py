"""`%load_ext wrt`: a cell that starts with `%%why` is recorded, run, and examined."""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext wrt`."""
    shell.register_magic_function(_why(shell), "cell", "why")


def _why(shell: Any) -> Any:
    def why(line: str, cell: str) -> None:
        """`%%why`: everything wrong in the cell; `%%why loss, x`: why this gradient is as it is."""
        from wrt._notation.trace import record
        from wrt._notation.why import why as examine

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
