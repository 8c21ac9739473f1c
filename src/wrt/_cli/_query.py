"""The small language of `wrt ask`: `y[0] / model.fc.weight[:, 2] / x`. It is read here, and never evaluated as Python.

    query  = side "/" side { "/" side }
    side   = path { "[" item { "," item } "]" }        also  d(path)[...], as in Python
    path   = name { "." (name | whole number) } [ "#" whole number ]        h#3 is what h was the fourth time
    item   = whole number | slice | "..." | "None"
    slice  = [number] ":" [number] [ ":" [number] ]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import EllipsisType
from typing import NoReturn

from wrt.errors import WrongQuery

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


class Reader:
    """One pass over the tokens, from left to right; every method reads what it is named after."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [*_tokens(text), Token("end", "", len(text.rstrip()))]
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
        self.position += 1
        value = int(self.tokens[self.position - 1].text)
        return -value if minus else value

    def refuse(self, what: str, write: str) -> NoReturn:
        """Raise with the spot marked in the question."""
        raise WrongQuery(what, _marked(self.text, self.next.at), write)


def _tokens(text: str) -> list[Token]:
    found = []
    for match in TOKEN.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        token = Token(kind, match[kind], match.start(kind))
        if kind == "other":
            raise WrongQuery(
                f"{token.text} has no meaning in a question",
                _marked(text, token.at),
                f"write names, dots, indices and /, as in {EXAMPLE}; a question is not Python",
            )
        found.append(token)
    return found


def _marked(text: str, at: int) -> str:
    """The question with an arrow at the spot.

    >>> _marked("y[0 / x", 4)
    'y[0 → / x'
    """
    return f"{text[:at].rstrip()} → {text[at:]}".strip()
