"""From the sides of a question to the script's own tensors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from wrt import d
from wrt._cli._query import Index, Query, Side
from wrt.errors import UnknownName, WrongQuery

NO_DATA = (ModuleType, FunctionType, BuiltinFunctionType, type)  # what a script has besides its values


@dataclass(frozen=True, slots=True)
class Left:
    """What a script left behind: its variables, and the recording of its run where there is one."""

    variables: Mapping[str, Any]
    run: Any = None


def derivative(query: Query, left: Left) -> Any:
    """The Derivative that is asked for, or a tree of them; nothing is computed yet."""
    answer = side(query.y, left)
    for by in query.by:
        if isinstance(answer, (dict, list, tuple)):
            raise WrongQuery(
                f"{query} goes on after a tree of derivatives",
                f"{query.by[0]} is not one tensor",
                f"ask for one tensor at a time, for example {query.y} / {query.by[0]}.weight",
            )
        answer = answer / side(by, left)
    return answer


def names(query: Query, left: Left) -> dict[str, Any]:
    """What the script's variables are called, and the tensors that the question means, by their paths."""
    known = {name: one for name, one in left.variables.items() if not isinstance(one, NO_DATA)}
    for asked in (query.y, *query.by):
        if asked.time is not None or _only_recorded(asked, left):
            continue  # a recording knows its names
        path, found = ".".join(asked.path), walked(asked, left)
        known.setdefault(path, found)
        parameters = getattr(found, "named_parameters", None)
        known.update({f"{path}.{name}": one for name, one in parameters()} if callable(parameters) else {})
    return known


def side(asked: Side, left: Left) -> Any:
    """`d(...)` of what a path leads to, with its indices."""
    found = recorded(asked, left) if asked.time is not None or _only_recorded(asked, left) else walked(asked, left)
    indices = list(asked.indices)
    while indices and isinstance(found, (list, tuple)) and (place := _place(indices[0])) is not None:
        found = _item(found, place, asked)
        indices.pop(0)
    differential = d(found)
    for index in indices:
        differential = differential[index]
    return differential


def walked(asked: Side, left: Left) -> Any:
    """What the script's own variables hold there."""
    found: Any = left.variables
    for depth, name in enumerate(asked.path):
        found = _step(found, name, asked.path[:depth])
    return found


def recorded(asked: Side, left: Left) -> Any:
    """What a name meant in the run, inside functions too."""
    name = ".".join(asked.path)
    if left.run is None:
        raise WrongQuery(f"{asked} asks for a moment of the run", "the run was not recorded", "add --record")
    return left.run[name] if asked.time is None else left.run[name, asked.time]


def _only_recorded(asked: Side, left: Left) -> bool:
    """Whether only the recording can know it: a name within a function, as h or as f.h."""
    return left.run is not None and isinstance(left.variables.get(asked.path[0], ModuleType), NO_DATA)


def _step(obj: Any, name: str, walked: tuple[str, ...]) -> Any:
    """One part of a dotted path: a key of a dict, an attribute of anything else."""
    if isinstance(obj, Mapping):
        if name in obj:
            return obj[name]
        names = [str(key) for key, value in obj.items() if not (str(key).startswith("_") or isinstance(value, NO_DATA))]
    else:
        try:
            return getattr(obj, name)
        except AttributeError:
            names = [one for one in _attributes(obj) if not one.startswith("_")]
    raise _unknown(name, ".".join(walked), names)


def _attributes(obj: Any) -> list[str]:
    """Its own attributes; the parts of a model are among them."""
    parts = [name for name, _ in obj.named_children()] if hasattr(obj, "named_children") else []
    parts += [name for name, _ in obj.named_parameters(recurse=False)] if hasattr(obj, "named_parameters") else []
    return parts or list(getattr(obj, "__dict__", ()))


def _unknown(name: str, owner: str, names: list[str]) -> UnknownName:
    close = difflib.get_close_matches(name, names, n=1)
    there = ", ".join(sorted(names)[:12]) + (", ..." if len(names) > 12 else "")
    return UnknownName(
        f"{owner} has no {name}" if owner else f"the script left no variable {name}",
        f"there is {there}" if names else "there is nothing to ask about",
        f"did you mean {close[0]}?" if close else "write one of these names",
    )


def _place(index: Index) -> int | None:
    return index[0] if len(index) == 1 and isinstance(index[0], int) else None


def _item(sequence: Any, place: int, asked: Side) -> Any:
    try:
        return sequence[place]
    except IndexError:
        raise WrongQuery(
            f"{'.'.join(asked.path)} has no item {place}",
            f"it is a {type(sequence).__name__} of {len(sequence)}",
            f"write a number from 0 to {len(sequence) - 1}" if sequence else "it is empty: ask for something else",
        ) from None


