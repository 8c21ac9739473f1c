"""`wrt steer script.py "fc2[0, 10]"`: run a script, change its input so that a unit of its model moves."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import wrt
from wrt._cli import _query, _script, _subject
from wrt.errors import WrongQuery, WrtError
from wrt.extend import numbers


def steer(
    script: Annotated[Path, typer.Argument(help="A Python script that leaves a model and its input behind.")],
    toward: Annotated[str, typer.Argument(help="What is to move, e.g. 'fc2[0, 10]' or 'output[0, 3]'.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.")] = None,
    to: Annotated[str, typer.Option(help="up, down, or a value.")] = "up",
    eps: Annotated[float, typer.Option(help="How far the input may go.")] = 0.1,
    norm: Annotated[str, typer.Option(help="inf, 2 or 1.")] = "inf",
    steps: Annotated[int, typer.Option(help="1 is one signed step.")] = 1,
    model: Annotated[str | None, typer.Option(help="The variable with the model.")] = None,
    input: Annotated[str | None, typer.Option(help="The variable with the input; by default x.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the new input, as .npy.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; what the script prints goes to stderr.")] = False,
) -> None:
    """Change the input of a model so that a hidden unit or an output moves as asked, and say whether it did.

    The exit status is 0 where it moved as asked, 1 where it did not or the script fails, 2 for a question nobody can read.
    """
    try:
        side = _query.Reader(toward).side()  # before the script: it may take long
        where, length = _direction(to), _norm(norm)
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            left = _script.run(script, arguments or [])
        subject = _subject.chosen(left, model, ("model", "net"), _subject.is_model, "model", "--model")
        x = _subject.chosen(left, input, ("x", "inputs", "data"), _subject.is_tensor, "input", "--input")
        found = wrt.steer(subject, x, toward=_finder(side), to=where, eps=eps, norm=length, steps=steps)
        if save is not None:
            np.save(save, numbers(found.input))
        print(json.dumps(_data(found, toward)) if as_json else repr(found).replace("the target", toward, 1))
    except WrtError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, WrongQuery) else 1) from None
    if not found:
        raise typer.Exit(1)


def _finder(side: _query.Side) -> Any:
    """The value in a run: by name, or the output itself."""
    name = ".".join(side.path)

    def find(run: wrt.Trace) -> Any:
        handle = run.output if name == "output" else run[name] if side.time is None else run[name, side.time]
        for index in side.indices:
            handle = handle[index]
        return handle

    return find


def _direction(to: str) -> Any:
    if to in ("up", "down"):
        return to
    try:
        return float(to)
    except ValueError:
        raise WrongQuery(f"--to {to}", "a unit goes up, down, or to a value", "write --to up, --to down or --to 1.5") from None


def _norm(norm: str) -> Any:
    if norm not in ("inf", "2", "1"):
        raise WrongQuery(f"--norm {norm}", "steps are known in three norms", "write --norm inf, --norm 2 or --norm 1")
    return norm if norm == "inf" else int(norm)


def _data(found: wrt.Steered, toward: str) -> dict[str, Any]:
    return {
        "toward": toward,
        "moved": found.moved,
        "before": found.before,
        "after": found.after,
        "path": list(found.path),
        "change": found.change,
        "words": repr(found).replace("the target", toward, 1),
    }
