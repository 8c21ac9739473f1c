"""`wrt why script.py "loss / x"`: run a script, watched, and say why a gradient is as it is."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import wrt
from wrt._cli import _look_up, _query, _script
from wrt.errors import NotRecorded, WrongQuery, WrtError

FRAMEWORKS = {"torch", "tensorflow", "jax"}


def why(
    script: Annotated[Path, typer.Argument(help="A Python script; it runs once, to its end.")],
    query: Annotated[str, typer.Argument(help="Of what by what, e.g. 'loss / model.fc.weight[0]'; without it, everything.")] = "",
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; what the script prints goes to stderr.")] = False,
) -> None:
    """Run a script and say why a gradient is missing, zero, not finite or wrong, or what the script died of.

    The exit status is 0 where nothing certain is found, 1 where something is, 2 for a question nobody can read.
    """
    try:
        question = _query.read(query) if query else None  # before the script: it may take long
        found = _examined(script, question, arguments or [], as_json)
    except WrtError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, WrongQuery) else 1) from None
    print(json.dumps(found.to_dict()) if as_json else found)
    if found.certain:
        raise typer.Exit(1)


def _examined(script: Path, question: Any, arguments: list[str], quiet: bool) -> wrt.Findings:
    _load_frameworks(script)
    with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
        try:
            with wrt.record() as t:
                left = _look_up.Left(_script.run(script, arguments), t)
        except _script.ScriptFailed as failed:
            if failed.__cause__ is None:
                raise
            explained = wrt.why(failed.__cause__)
            if not explained:
                raise
            return explained
    if question is None:
        return t.why()
    if len(question.by) != 1:
        raise WrongQuery(f"{question} is a higher derivative", "why asks about one gradient", "write loss / x")
    return wrt.why(_look_up.side(question.y, left), _look_up.side(question.by[0], left))


def _load_frameworks(script: Path) -> None:
    """A recording hears the frameworks that are loaded when it starts: load those the script is going to."""
    named = FRAMEWORKS & _script.imports(script) if script.is_file() else set()
    for name in sorted(named) or ("torch",):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if named == {"jax"}:
        raise NotRecorded(
            "a script of JAX cannot be watched from outside",
            "operations on JAX arrays leave no trace outside a transformation",
            "write t = wrt.trace(f, x) in the script, and print(wrt.why(t.output, t.inputs[0]))",
        )
