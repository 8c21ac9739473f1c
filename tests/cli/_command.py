"""A command of wrt as typer's test runner takes it."""

import importlib
from typing import Any

import typer


def command(name: str) -> Any:
    """`wrt <name>` alone.

    >>> command("version").registered_commands[0].callback.__name__
    'version'
    """
    single = typer.Typer(add_completion=False)
    single.command(name)(getattr(importlib.import_module(f"wrt._cli.{name}"), name))
    return single
