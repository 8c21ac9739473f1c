"""`wrt flow script.py`: run a script, show how large the gradients of its loss are, layer by layer."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

import wrt
from wrt._cli import _script, _subject
from wrt._cli.ask import _run
from wrt.errors import WrtError


def flow(
    script: Annotated[Path, typer.Argument(help="A Python script; it runs once, to its end, recorded.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.")] = None,
    loss: Annotated[str | None, typer.Option(help="The variable with the loss; by default loss.")] = None,
    model: Annotated[str | None, typer.Option(help="The variable with the model; by default the only one.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also write a picture, for example flow.png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; what the script prints goes to stderr.")] = False,
) -> None:
    """Show gradient sizes at every parameter and every layer, and what vanished, exploded or died.

    The exit status is 1 where the script fails or something is not found.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            left = _run(script, arguments or [], record=bool({"torch", "tensorflow"} & _script.imports(script)))
        scalar = _subject.chosen(left.variables, loss, ("loss",), _subject.is_number, "loss", "--loss")
        subject = _subject.chosen(left.variables, model, ("model", "net"), _subject.is_model, "model", "--model")
        seen = wrt.flow(scalar, subject)
        if plot is not None:
            seen.plot().figure.savefig(plot)
        print(json.dumps(seen.to_dict()) if as_json else _text(seen))
    except WrtError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from None


def _text(seen: wrt.Flow) -> str:
    spots = [f"  {layer.name}: {layer.spot}" for layer in seen if layer.spot]
    dead = [f"  {name}: {count} dead units" for name, count in seen.dead.items()]
    notes = ["", "look at", *spots, *dead] if spots or dead else ["", "nothing vanishes, explodes or is dead"]
    return "\n".join([repr(seen), *notes])
