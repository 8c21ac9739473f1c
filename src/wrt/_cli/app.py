"""The `wrt` command, assembled from the files beside it.

A file `_cli/<name>.py` whose function `<name>` carries typer annotations *is* the command `wrt <name>`: there is no
list to extend. A file is imported when its command is called or its help is shown, so `wrt version` never pays
for `wrt demo`. A file whose name starts with an underscore is not a command.
"""

import importlib
import pkgutil
from typing import Any

import typer
from typer.core import TyperGroup

import wrt._cli as commands


def names() -> list[str]:
    """The commands there are, without importing them.

    >>> "version" in names()
    True
    """
    found = (module.name for module in pkgutil.iter_modules(commands.__path__))
    return sorted(name for name in found if name != "app" and not name.startswith("_"))


def command(name: str) -> Any:
    """Import `_cli/<name>.py` and make a typer command of its function `<name>`."""
    module = importlib.import_module(f"{commands.__name__}.{name}")
    single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    single.command(name)(getattr(module, name))
    return typer.main.get_command(single)


class Commands(TyperGroup):
    """A group that finds its commands by file name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name.replace("_", "-") for name in names()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        name = cmd_name.replace("-", "_")  # a file cannot have a dash in its name, a command should
        return command(name) if name in names() else None


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")


@app.callback()
def wrt() -> None:
    """The derivative of anything with respect to anything."""


def main() -> None:
    app(prog_name="wrt")
