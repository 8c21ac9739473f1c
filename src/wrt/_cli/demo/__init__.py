"""`wrt demo`: questions people ask about gradients of elements, asked, answered and checked another way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer


def demo(
    only: Annotated[str, typer.Argument(help="A question (1.3) or a topic (1); all of them if left out.")] = "",
    framework: Annotated[str, typer.Option(help="torch, tensorflow or jax; all of them if left out.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print what came out as JSON.")] = False,
) -> None:
    """Ask what people ask most about gradients, and check every answer another way.

    All of them end with a page to click at, written into this folder. The exit status is 1 when a check fails.
    """
    from rich.console import Console

    from wrt._cli.demo import answer, page
    from wrt._cli.demo.questions import TOPICS

    started = time.perf_counter()
    console = Console(highlight=False)
    names = [framework] if framework else answer.frameworks()
    with console.status(f"asking {' and '.join(names)}"):  # on a terminal only
        outcomes = answer.everywhere(names, only)
    if not outcomes:
        print(f"no question matches: number {only or 'any'}, framework {framework or 'any'}")
        raise typer.Exit(2)
    if as_json:
        print(json.dumps([answer.as_data(one) for one in outcomes]))
    else:
        page.show(console, TOPICS, outcomes)
        console.print(page.verdict(outcomes, time.perf_counter() - started))
        if not only and "torch" in names:
            from wrt._cli.demo.closing import closing

            console.print(closing(Path.cwd()))
    raise typer.Exit(0 if all(outcomes) else 1)
