"""The small language of `wrt ask`: `y[0] / model.fc.weight[:, 2] / x`. It is read here, and never evaluated as Python.

    query  = side "/" side { "/" side }
    side   = path { "[" item { "," item } "]" }        also  d(path)[...], as in Python
    path   = name { "." (name | whole number) } [ "#" whole number ]        h#3 is what h was the fourth time
    item   = whole number | slice | "..." | "None"
    slice  = [number] ":" [number] [ ":" [number] ]

Then the sides of a question become the script's own tensors.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, EllipsisType, FunctionType, ModuleType
from typing import Any, NoReturn

import wrt
from wrt import d
from wrt.errors import UnknownName, WrongQuery

Item = int | slice | EllipsisType | None
Index = tuple[Item, ...]

TOKEN = re.compile(
    r"\s*(?:(?P<name>[^\W\d]\w*)|(?P<number>[0-9]+)|(?P<dots>\.\.\.)|(?P<sign>[-/.,:#\[\]()])|(?P<other>\S))"
)
EXAMPLE = "y[0] / x[2]"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the question: the parts of a dotted path, then indices; `text` is how it was written.

    `time` tells which of the successive meanings of a name is asked about; None for the last.
    """

    path: tuple[str, ...]
    indices: tuple[Index, ...]
    text: str
    time: int | None = None

    def __str__(self) -> str:
        return self.text

    def handle(self, t: wrt.Trace) -> Any:
        """The value of a run that is meant."""
        name = ".".join(self.path)
        return self.pick(t[name] if self.time is None else t[name, self.time])

    def pick(self, found: Any) -> Any:
        """With the indices."""
        for index in self.indices:
            found = found[index]
        return found


@dataclass(frozen=True, slots=True)
class Query:
    """y, and what it is differentiated by, in order."""

    y: Side
    by: tuple[Side, ...]

    def __str__(self) -> str:
        return " / ".join(map(str, (self.y, *self.by)))


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    at: int


def read(text: str) -> Query:
    """Read a question.

    >>> query = read("y[0, :3] / model.fc.weight")
    >>> query.y.indices, query.by[0].path
    (((0, slice(None, 3, None)),), ('model', 'fc', 'weight'))
    """
    return Reader(text).query()


def read_side(text: str) -> Side:
    """A row as it is written in a question, without the question."""
    reader = Reader(text)
    found = reader.side()
    if reader.next.kind != "end":
        reader.refuse("a row is one value with an index", "write fc, or conv2[0, 5, 3, 3]; what it is differentiated by is --by")
    return found


class Reader:
    """One pass over the tokens, from left to right; every method reads what it is named after."""

    def __init__(self, text: str) -> None:
        self.text = text = text.strip()  # blanks at the end would be tried one by one
        if len(text) > 1000:
            raise WrongQuery(f"a question of {len(text)} characters", "at most 1000 are read", f"write it shorter, as {EXAMPLE}")
        self.tokens = [*_tokens(text), Token("end", "", len(text))]
        self.position = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def take(self, *texts: str) -> Token | None:
        """The next token if it is one of these."""
        if self.next.kind == "end" or self.next.text not in texts:
            return None
        self.position += 1
        return self.tokens[self.position - 1]

    def query(self) -> Query:
        sides = [self.side()]
        while self.take("/"):
            sides.append(self.side())
        if self.next.kind != "end":
            self.refuse("only a derivative can be asked for", f"write {EXAMPLE}: names, dots, indices and /")
        if len(sides) == 1:
            self.refuse("the question has no denominator", f"write what to differentiate by: {sides[0]} / x")
        return Query(sides[0], tuple(sides[1:]))

    def side(self) -> Side:
        start = self.next.at
        wrapped = self.next.text == "d" and self.tokens[self.position + 1].text == "("
        if wrapped:
            self.position += 2
        path, time = self.path(), self.time()
        if wrapped and not self.take(")"):
            self.refuse("d( is not closed", f"write d({'.'.join(path)})[...], with the indices after the bracket")
        indices = []
        while self.take("["):
            indices.append(self.index())
        if self.next.text == ".":
            self.refuse("a name after an index", "write the dots first, then the indices: model.fc.weight[0]")
        last = self.tokens[self.position - 1]
        return Side(path, tuple(indices), self.text[start : last.at + len(last.text)], time)

    def path(self) -> tuple[str, ...]:
        parts = [self.name()]
        while self.take("."):
            parts.append(self.name(number_too=True))
        return tuple(parts)

    def time(self) -> int | None:
        if not self.take("#"):
            return None
        found = self.number()
        if found is None:
            self.refuse("a number is missing after #", "write h#0 for the first time h was bound, h#3 for the fourth")
        return found

    def name(self, *, number_too: bool = False) -> str:
        token = self.next
        if token.kind == "name" and token.text.startswith("__"):
            self.refuse(f"{token.text} belongs to Python, not to your script", "ask for a variable of the script")
        if token.kind == "name" or (number_too and token.kind == "number"):
            self.position += 1
            return token.text
        self.refuse("a name is missing here", f"write the name of a variable of the script, as in {EXAMPLE}")

    def index(self) -> Index:
        items = [self.item()]
        while self.take(","):
            if self.next.text == "]":
                break
            items.append(self.item())
        if not self.take("]"):
            self.refuse("the index is not closed", 'write a "]" after the last index, as in y[0, 2:5]')
        return tuple(items)

    def item(self) -> Item:
        if self.take("..."):
            return ...
        if self.take("None"):
            return None
        first = self.number()
        if not self.take(":"):
            if first is None:
                self.refuse("an index is missing or not a number", "write numbers, slices, ... or None, as in y[0, :5]")
            return first
        second = self.number()
        third = self.number() if self.take(":") else None
        return slice(first, second, third)

    def number(self) -> int | None:
        """A whole number with its sign; None where there is none, as in a slice."""
        minus = self.take("-")
        if self.next.kind != "number":
            if minus:
                self.refuse("a number is missing after the minus", "write whole numbers, as in y[-1]")
            return None
        if len(self.next.text) > 18:
            self.refuse(f"a number of {len(self.next.text)} digits", "no tensor is that long: write a smaller index")
        self.position += 1
        value = int(self.tokens[self.position - 1].text)
        return -value if minus else value

    def refuse(self, what: str, write: str) -> NoReturn:
        """Raise with the spot marked in the question."""
        raise WrongQuery(what, _mark(self.text, self.next.at), write)


def _tokens(text: str) -> list[Token]:
    found = []
    for match in TOKEN.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        token = Token(kind, match[kind], match.start(kind))
        if kind == "other":
            raise WrongQuery(
                f"{token.text} has no meaning in a question",
                _mark(text, token.at),
                f"write names, dots, indices and /, as in {EXAMPLE}; a question is not Python",
            )
        found.append(token)
    return found


def _mark(text: str, at: int) -> str:
    """The question with an arrow at the spot.

    >>> _mark("y[0 / x", 4)
    'y[0 → / x'
    """
    return f"{text[:at].rstrip()} → {text[at:]}".strip()


# ---- from the sides of a question to the script's own tensors ----


NO_DATA = (ModuleType, FunctionType, BuiltinFunctionType, type)  # what a script has besides its values


@dataclass(frozen=True, slots=True)
class Left:
    """What a script left behind: its variables, and the recording of its run where there is one."""

    variables: Mapping[str, Any]
    run: Any = None


def derivative(query: Query, left: Left) -> Any:
    """The Derivative that is asked for, or a tree of them; nothing is computed yet."""
    answer = differential(query.y, left)
    for by in query.by:
        if isinstance(answer, (dict, list, tuple)):
            raise WrongQuery(
                f"{query} goes on after a tree of derivatives",
                f"{query.by[0]} is not one tensor",
                f"ask for one tensor at a time, for example {query.y} / {query.by[0]}.weight",
            )
        answer = answer / differential(by, left)
    return answer


def names(query: Query, left: Left) -> dict[str, Any]:
    """What the script's variables are called, and the tensors that the question means, by their paths."""
    known = {name: one for name, one in left.variables.items() if not isinstance(one, NO_DATA)}
    for asked in (query.y, *query.by):
        if asked.time is not None or _only_recorded(asked, left):
            continue  # a recording knows its names
        path, found = ".".join(asked.path), _look_up(asked, left)
        known.setdefault(path, found)
        parameters = getattr(found, "named_parameters", None)
        known.update({f"{path}.{name}": one for name, one in parameters()} if callable(parameters) else {})
    return known


def differential(asked: Side, left: Left) -> Any:
    """`d(...)` of what a path leads to, with its indices."""
    found = _in_the_run(asked, left) if asked.time is not None or _only_recorded(asked, left) else _look_up(asked, left)
    indices = list(asked.indices)
    while indices and isinstance(found, (list, tuple)) and (place := _place(indices[0])) is not None:
        found = _item(found, place, asked)
        indices.pop(0)
    differential = d(found)
    for index in indices:
        differential = differential[index]
    return differential


def _look_up(asked: Side, left: Left) -> Any:
    """What the script's own variables hold there."""
    found: Any = left.variables
    for depth, name in enumerate(asked.path):
        found = _step(found, name, asked.path[:depth])
    return found


def _in_the_run(asked: Side, left: Left) -> Any:
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
            return getattr(obj, name)  # a property of the script's own class runs, as it would in the script
        except AttributeError:
            names = [one for one in _attributes(obj) if not one.startswith("_")]
        except Exception as error:
            where = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no words'}"
            raise UnknownName(f"{'.'.join((*walked, name))} cannot be read", where, "ask for something that can") from None
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
