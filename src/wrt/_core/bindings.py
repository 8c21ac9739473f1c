"""The table of names: which tensors a name was bound to, in order, and how to find them again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

from wrt._core.where import Where, function_name, place
from wrt.errors import UnknownName


@dataclass(slots=True, eq=False, repr=False)
class Binding:
    """One moment at which a name came to mean a tensor.

    `object` is the tensor, or whatever stands for it: the same tensor must have the same stand-in.
    """

    name: str
    object: Any
    code: CodeType
    offset: int
    sequence: int

    @property
    def function(self) -> str:
        """The function whose code made the binding; empty at the top level of a script or notebook."""
        name = function_name(self.code)
        return "" if name == "<module>" else name

    @property
    def where(self) -> Where:
        return place(self.code, self.offset)

    @property
    def shape(self) -> tuple[int, ...] | None:
        shape = getattr(self.object, "shape", None)
        return None if shape is None else tuple(shape)

    @property
    def dtype(self) -> str:
        words = str(getattr(self.object, "dtype", ""))  # torch.float32, <dtype: 'float32'>, float32
        return words.removeprefix("torch.").removeprefix("<dtype: '").removesuffix("'>")

    def __repr__(self) -> str:
        return f"Binding  {self.name} at {self.where}"


Noted: TypeAlias = tuple[str, Any, CodeType, int]  # name, object, code, offset: a Binding in the making


class Bindings:
    """Names in the order they were bound; `h`, `block.h` and `Net.forward.h` all find what was bound there.

    `bindings["h"]` is the last binding, `bindings["h", 3]` and `bindings["h#3"]` the fourth, `bindings["h", -2]` the
    last but one. The same tensor bound twice in a row to the same name counts once: handing `h` to a function whose
    argument is called `h` does not change what `h` means.
    """

    __slots__ = ("_filed", "_files", "_noted", "_read_so_far", "add", "note")

    def __init__(self) -> None:
        # A run binds thousands of names: nothing is faster than the list's own method, and a bare tuple (name, object,
        # code, offset) is noted sooner than a Binding is made. Recording only appends, the first question reads.
        self._noted: list[Binding | Noted] = []
        self.add: Callable[[Binding], None] = self._noted.append
        self.note: Callable[[Noted], None] = self._noted.append
        self._read_so_far: list[Binding] = []
        self._files: dict[str, list[Binding]] = {}
        self._filed = 0  # how many of them are in `_files`

    @property
    def _bound(self) -> list[Binding]:
        known = self._read_so_far
        for sequence, row in enumerate(self._noted[len(known) :], start=len(known) + 1):
            known.append(Binding(*row, sequence) if isinstance(row, tuple) else row)
        return known

    def __getitem__(self, asked: str | tuple[str, int]) -> Binding:
        name, occurrence = asked if isinstance(asked, tuple) else self._read(asked)
        found = self.all(name)
        if not -len(found) <= occurrence < len(found):
            times = "once" if len(found) == 1 else f"{len(found)} times"
            raise UnknownName(
                f"no binding {occurrence} of {name!r} was recorded",
                f"{name} was bound {times}, last at {found[-1].where}",
                f"write ({name!r}, {len(found) - 1}) for the last one; counting starts at 0",
            )
        return found[occurrence]

    def __contains__(self, asked: object) -> bool:
        try:
            return bool(self[asked])  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            return False

    def __iter__(self) -> Iterator[str]:
        """The shortest name that tells each variable from all others, in the order they were first bound."""
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())

    def __repr__(self) -> str:
        if not self._bound:
            return "no tensor was bound to a name"
        rows = [("name", "times", "shape", "dtype", "line")]
        for name, found in self._rows().items():
            last = found[-1]
            shape = "" if last.shape is None else str(last.shape).replace(" ", "")
            rows.append((name, str(len(found)), shape, last.dtype, str(last.where)))
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)

    def all(self, name: str) -> tuple[Binding, ...]:
        """Every binding of a name, first to last."""
        self._file()
        if name not in self._files:
            raise _unknown(name, list(self._files), len(self))
        return tuple(self._files[name])

    def objects(self) -> list[Any]:
        """Everything that was ever given a name, once each."""
        named = [row[1] if isinstance(row, tuple) else row.object for row in self._noted]
        return list({id(thing): thing for thing in named}.values())

    def of(self, thing: Any) -> tuple[Binding, ...]:
        """Every binding of one tensor, whatever its name."""
        return tuple(binding for binding in self._bound if binding.object is thing)

    def _read(self, asked: str) -> tuple[str, int]:
        self._file()
        numbered = re.fullmatch(r"(.+)#(-?\d+)", asked)
        if asked in self._files or not numbered:  # a dict key may contain a `#` of its own
            return asked, -1
        return numbered[1], int(numbered[2])

    def _file(self) -> None:
        bound = self._bound
        for binding in bound[self._filed :]:
            for name in _names(binding):
                found = self._files.setdefault(name, [])
                if not found or found[-1].object is not binding.object:
                    found.append(binding)
        self._filed = len(bound)

    def _rows(self) -> dict[str, tuple[Binding, ...]]:
        self._file()
        homes: dict[str, set[str]] = {}  # every name -> the fully qualified ones it can mean
        for binding in self._bound:
            names = _names(binding)
            for name in names:
                homes.setdefault(name, set()).add(names[-1])
        rows: dict[str, tuple[Binding, ...]] = {}
        for binding in self._bound:
            names = _names(binding)
            shortest = next((name for name in names if len(homes[name]) == 1), names[-1])
            if shortest not in rows:
                rows[shortest] = self.all(shortest)
        return rows


def _names(binding: Binding) -> list[str]:
    """All names of a binding, the shortest first: h, forward.h, Net.forward.h."""
    scopes = binding.function.split(".") if binding.function else []
    if scopes and binding.name.startswith(scopes[-1] + "()"):
        scopes.pop()  # what forward returned is Net.forward(), not Net.forward.forward()
    return [".".join((*scopes[start:], binding.name)) for start in range(len(scopes), -1, -1)]


def _unknown(name: str, known: list[str], count: int) -> UnknownName:
    what = f"no tensor named {name!r} was recorded"
    if not known:
        return UnknownName(what, "no name at all was bound to a tensor", "bind it to a variable inside the recording")
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if not close:
        return UnknownName(what, f"{_names_were(count)}, the last one is {known[-1]}", "print .names to see them all")
    return UnknownName(what, f"{_names_were(count)}, the closest: {', '.join(close)}", f"did you mean {close[0]!r}?")


def _names_were(count: int) -> str:
    return "one name was" if count == 1 else f"{count} names were"
