"""`wrt show script.py`: run a script, open its run as a page on which every element can be clicked."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import wrt
from wrt._cli import _query, _script
from wrt._cli.ask import RECORDABLE
from wrt.errors import NotRecorded, WrongQuery, WrtError


def show(
    script: Annotated[Path, typer.Argument(help="A Python script; it runs once, to its end, recorded.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.")] = None,
    at: Annotated[str | None, typer.Option(help="Where the page opens, for example 'fc[0, 3] / x'.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write one HTML file instead of serving.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Rows for the file: fc, or 'conv2[0, 5, 3, 3]'; repeat it.")] = None,
    by: Annotated[list[str] | None, typer.Option(help="What the rows are differentiated by; repeat it.")] = None,
    limit: Annotated[str, typer.Option(help="The size of the file, at most.")] = "20 MB",
    sources: Annotated[bool, typer.Option("--sources", help="Put the lines of your code into the file.")] = False,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    port: Annotated[int, typer.Option(help="The port of the live page; a free one by default.")] = 0,
) -> None:
    """Open a page that shows what every element of a run depends on.

    A script that leaves a recording (`t = wrt.trace(f, x)`) behind is shown by that; any other is recorded as a whole.
    The exit status is 1 where the script fails or nothing can be shown, 2 for a row nobody can read.
    """
    try:
        chosen = [_side(one) for one in row or []]  # before the script: it may take long
        opens = _query.read(at) if at else None
        t, left = _recorded(script, arguments or [])
        if output is None:
            target, source = (None, None) if opens is None else (_handle(t, opens.y), _handle(t, opens.by[0]))
            t.show(target=target, source=source, title=script.name, browser=browser, port=port, wait=True)
        else:
            rows = [_handle(t, one) for one in chosen] if chosen else None
            print(t.save_html(output, rows=rows, by=by or (), limit=limit, sources=sources, title=script.name))
        del left  # the script's own tensors have lived as long as the page
    except WrtError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, WrongQuery) else 1) from None


def _recorded(script: Path, arguments: list[str]) -> tuple[wrt.Trace, Mapping[str, Any]]:
    """The last recording that the script left behind, or one of all it did; and its variables."""
    recordable = sorted(RECORDABLE & _script.imports(script)) if script.is_file() else []
    if not recordable or _records_itself(script):
        left = _script.run(script, arguments)
        found = _left(left)
        if found is None:
            raise NotRecorded(
                f"{script.name} left no recording behind",
                "only PyTorch and TensorFlow can be recorded from outside; in JAX a function has to be traced",
                "end the script with t = wrt.trace(f, x)",
            )
        return found, left
    for name in recordable:
        importlib.import_module(name)  # what is to be recorded has to be there first
    with wrt.record(values=True) as t:
        left = _script.run(script, arguments)
    return t, left


def _records_itself(script: Path) -> bool:
    """Whether the script calls wrt.trace or wrt.record."""
    calls = [node.func for node in ast.walk(ast.parse(script.read_bytes())) if isinstance(node, ast.Call)]
    names = {getattr(one, "attr", getattr(one, "id", "")) for one in calls}
    return "wrt" in _script.imports(script) and bool(names & {"trace", "record"})


def _left(variables: Mapping[str, Any]) -> wrt.Trace | None:
    found = [one for one in variables.values() if isinstance(one, wrt.Trace)]
    return found[-1] if found else None


def _side(text: str) -> _query.Side:
    """A row as it is written in a question, without the question."""
    reader = _query.Reader(text)
    found = reader.side()
    if reader.next.kind != "end":
        reader.refuse("a row is one value with an index", "write fc, or conv2[0, 5, 3, 3]; what it is differentiated by is --by")
    return found


def _handle(t: wrt.Trace, side: _query.Side) -> wrt.Handle:
    name = ".".join(side.path)
    handle = t[name] if side.time is None else t[name, side.time]
    for index in side.indices:
        handle = handle[index]
    return handle
