"""`wrt ask script.py "y[0] / x[2]"`: run a script, answer for the variables it leaves behind."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

import wrt
from wrt._cli import _answer_text, _look_up, _query, _script
from wrt.errors import NoPath, NotRecorded, WrongQuery, WrtError

RECORDABLE = {"torch", "tensorflow"}

Told: TypeAlias = tuple[list[Any], int]


def ask(
    script: Annotated[Path, typer.Argument(help="A Python script; it runs once, to its end.")],
    query: Annotated[str, typer.Argument(help="What to differentiate by what, e.g. 'y[0] / model.fc.weight[:, 2]'.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.")] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Record the run: TensorFlow, tensors filled in place, names within functions."),
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Also say how it was answered.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; what the script prints goes to stderr.")] = False,
) -> None:
    """Run a script and answer `y[0] / x[2]` for the variables it leaves behind.

    The exit status is 0 for an answer, 1 where the script or the derivative fails, 2 for a question nobody can read.
    """
    try:
        question = _query.read(query)  # before the script: it may take long
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            left = _run(script, arguments or [], record)

        def told() -> Told:
            return _told(_look_up.derivative(question, left), str(question), as_json, explain)

        answers, refused = _script.among(_look_up.names(question, left), told)
    except WrtError as error:
        print(_from_outside(error, script, query, record), file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, WrongQuery) else 1) from None
    print(json.dumps(answers[0] if len(answers) == 1 else answers) if as_json else "\n".join(answers))
    if refused:
        raise typer.Exit(1)


def _run(script: Path, arguments: list[str], record: bool) -> _look_up.Left:
    if not record:
        return _look_up.Left(_script.run(script, arguments))
    for name in sorted(RECORDABLE & _script.imports(script)):
        importlib.import_module(name)  # what is to be recorded has to be there first
    with wrt.record() as run:
        return _look_up.Left(_script.run(script, arguments), run)


def _named(answer: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every Derivative of a tree with the place it stands in."""
    if isinstance(answer, Mapping):
        for key, one in answer.items():
            yield from _named(one, f"{name}.{key}")
    elif isinstance(answer, (list, tuple)):
        for place, one in enumerate(answer):
            yield from _named(one, f"{name}[{place}]")
    else:
        yield name, answer


def _told(answer: Any, name: str, as_json: bool, explain: bool) -> Told:
    """What to print for each Derivative, and how many could not be answered: one of a tree leaves the others as they are."""
    answers, refused = list(_named(answer, name)), 0
    said: list[Any] = []
    for path, one in answers:
        try:
            said.append(_answer_text.for_programs(one, path) if as_json else _text(one, path, explain))
        except WrtError as error:
            if len(answers) == 1:
                raise
            refused += 1
            said.append({"query": path, "error": str(error)} if as_json else f"{path}   {error.what}")
    return said, refused


def _text(answer: Any, name: str, explain: bool) -> str:
    told = [_answer_text.for_people(answer, name)]
    if explain:
        told.append("\n".join(f"  {line}" for line in str(answer.explain()).splitlines()))
    return "\n".join(told)


def _from_outside(error: WrtError, script: Path, query: str, record: bool) -> WrtError:
    """What to write in a script is no help to whoever would rather not touch it: there is a command for it."""
    if isinstance(error, NoPath):
        return NoPath(error.what, error.where, f"wrt why {script.name} {query!r} says where the path ends")
    if isinstance(error, NotRecorded) and not record and "record()" in error.write:
        return NotRecorded(error.what, error.where, "add --record: in a recorded run nothing needs to require grad")
    return error
