"""Derivative rules that a user wrote by hand: their code behind a framework's wrappers, and what flows through them."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from wrt._core.evidence import Numbers
from wrt._core.graph import Node
from wrt._core.where import Where, function_name, user_files

INSIDE = ("f", "f_transformed", "transforms", "__wrapped__", "call", "func", "fun")
"""Attributes in which wrappers keep what they wrap."""


def user_codes(thing: Any) -> Iterator[CodeType]:
    """Code of the user's behind partials, closures and wrapped functions, the outermost first."""
    waiting, seen = [thing], dict[int, Any]()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, FunctionType) and user_files[thing.__code__.co_filename]:
            yield thing.__code__
        waiting += reversed(list(_inside(thing)))


def _inside(thing: Any) -> Iterator[Any]:
    if isinstance(thing, FunctionType):
        for cell in thing.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not filled yet
                continue
    elif isinstance(thing, functools.partial):
        yield thing.func
        yield from thing.args
    elif isinstance(thing, (tuple, list)):
        yield from thing
    else:
        yield from (inner for name in INSIDE if (inner := getattr(thing, name, None)) is not None)


def last_return(code: CodeType) -> Where | None:
    """The line where a rule returns."""
    lines = [i.positions.lineno for i in dis.get_instructions(code) if i.opname.startswith("RETURN") and i.positions]
    return Where(code.co_filename, lines[-1], function=function_name(code)) if lines and lines[-1] else None


Local = Callable[[Node, Sequence[Numbers | None]], list[Numbers | None]]


def cotangents(
    nodes: Iterable[Node], y: int, seed: Numbers, local: Local, passes: Callable[[Node], bool]
) -> dict[int, Numbers | None]:
    """The cotangent of every value on the way to y, operation by operation from the last to the first."""
    found: dict[int, Numbers | None] = {y: np.asarray(seed, dtype=np.float64)}
    for node in nodes:
        arrives = [found.get(k) for k in node.outputs]
        if all(c is None for c in arrives) or not passes(node):
            continue
        for number, pulled in zip(node.inputs, local(node, arrives), strict=True):
            if pulled is not None:
                known = found.get(number)
                found[number] = pulled if known is None else known + pulled
    return found
