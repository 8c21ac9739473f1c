"""`wrt explain-cause detach`: what a word of `wrt why` means, and what to write."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import wrt
from wrt.errors import UnknownName


def explain_cause(slug: Annotated[str, typer.Argument(help="A cause, as `wrt why` names it in brackets.")]) -> None:
    """Say what a cause means, with a small program that has it and what to write instead."""
    try:
        print(wrt.explain_cause(slug))
    except UnknownName as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
