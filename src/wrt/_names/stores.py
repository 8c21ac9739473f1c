"""Which names can one line bind? Read once per function from its bytecode.

A watcher that looked at every variable after every line would be slow, and lost in a notebook with thousands of names.
With this table it looks at the two or three names the line can have changed, and at nothing after most lines.
"""

from __future__ import annotations

import dis
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any, Literal, TypeAlias

from wrt._core.where import PerCode

# Bytecode in the few words that naming needs, the same words for every Python version.
Kind: TypeAlias = Literal[
    "LOAD",         # a variable, whatever its scope
    "CONST",        # a value written in the source
    "ATTR",         # an attribute or a method of what was just loaded
    "STORE",        # bind a variable
    "DELETE",       # unbind a variable
    "STORE_ATTR",   # bind an attribute
    "STORE_ITEM",   # container[key] = value
    "STORE_SLICE",  # container[a:b] = value
    "BACK",         # jump to an earlier offset: a loop
    "SILENT",       # prefixes and padding
    "OTHER",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One word: what is done, to which name or value, by the instruction at which offset, on which line."""

    kind: Kind
    value: Any
    offset: int
    line: int


def steps(code: CodeType) -> Iterator[Step]:
    """The whole code object, word by word.

    >>> [(step.kind, step.value) for step in steps(compile("h.x = y", "", "exec")) if step.value]
    [('LOAD', 'y'), ('LOAD', 'h'), ('STORE_ATTR', 'x')]
    """
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        positions = instruction.positions
        line = (positions.lineno if positions else None) or line
        for kind, value in _words(instruction):
            yield Step(kind, value, instruction.offset, line)


_KINDS: dict[str, Kind] = {
    "CACHE": "SILENT",
    "EXTENDED_ARG": "SILENT",
    "NOP": "SILENT",
    "NOT_TAKEN": "SILENT",
    "PRECALL": "SILENT",
    "RESUME": "SILENT",
    "LOAD_CONST": "CONST",
    "LOAD_SMALL_INT": "CONST",
    "LOAD_ATTR": "ATTR",
    "LOAD_METHOD": "ATTR",
    "STORE_ATTR": "STORE_ATTR",
    "STORE_SUBSCR": "STORE_ITEM",
    "STORE_SLICE": "STORE_SLICE",
    "JUMP_BACKWARD": "BACK",
    "POP_JUMP_BACKWARD_IF_FALSE": "BACK",
    "POP_JUMP_BACKWARD_IF_TRUE": "BACK",
}
_VARIABLE = re.compile(r"(LOAD|STORE|DELETE)_(FAST|NAME|GLOBAL|DEREF|CLASSDEREF)")


def _words(instruction: dis.Instruction) -> list[tuple[Kind, Any]]:
    name, value = instruction.opname, instruction.argval
    kinds: list[Kind] = [found[0] for found in _VARIABLE.findall(name)]
    if len(kinds) == 2:  # two instructions in one, such as STORE_FAST_LOAD_FAST
        return list(zip(kinds, value))
    return [(kinds[0] if kinds else _KINDS.get(name, "OTHER"), value)]


Path: TypeAlias = tuple[str, ...]
How: TypeAlias = Literal["bind", "append", "item", "fill", "drop"]

FILLERS = frozenset({"extend", "insert", "update", "setdefault", "reverse", "sort"})
"""Methods of lists and dicts that can put a tensor at any place."""

PROTOCOL = frozenset({"__getattr__", "__getattribute__", "__setattr__"})
"""Functions not worth watching: they run at every touch of an attribute, and nobody asks for a name inside them."""

# From 3.12 on, a loop that stays on its line makes no event per round; comprehensions are such loops.
_LOOPS_ARE_SILENT = sys.version_info >= (3, 12)


@dataclass(frozen=True, slots=True)
class Constant:
    """A key written in the source: `cache["k"]`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Store:
    """One way in which a line can name a tensor.

    "bind": `h = ...`, `self.h = ...`; "append": `outs.append(...)`; "item": `cache[key] = ...`, the key a constant or a
    variable; "fill": a container that may have changed anywhere; "drop": `del h`.
    """

    label: str
    path: Path
    how: How
    offset: int
    key: Constant | str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Where to look after a line or an instruction: variables with the offset of their store, and all other stores.

    `crowded`: the line may bind a name more than once before the next line starts, so that only a look after each
    instruction tells the bindings apart.
    """

    names: tuple[tuple[str, int], ...]
    others: tuple[Store, ...]
    crowded: bool = False


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores of a code object: by line, and by the offset of the instruction that runs right after the store."""

    arguments: tuple[str, ...]
    lines: dict[int, Look]
    after: dict[int, Look]
    returns: str
    loaded: frozenset[str]
    crowded: bool


@dataclass(slots=True)
class _Reading:
    """What has been read so far: the operands just loaded, and everything loaded on this line."""

    operands: list[Path | Constant] = field(default_factory=list)
    line: int = -1
    on_line: list[Path] = field(default_factory=list)


def _read(code: CodeType) -> Stores:
    words, reading = list(steps(code)), _Reading()
    found: dict[int, list[Store]] = {}
    for step in words:
        if step.line != reading.line:
            reading.line, reading.on_line = step.line, []
        found.setdefault(step.line, []).extend(_stores_of(step, reading))
    looping = _lines_that_loop(words) if _LOOPS_ARE_SILENT else set()
    crowded = {line for line, stores in found.items() if stores and (line in looping or _twice(stores))}
    return Stores(
        arguments=_arguments(code),
        lines={line: _look(stores, line in crowded) for line, stores in found.items() if stores},
        after=_after(words, {line: found[line] for line in crowded}),
        returns="" if code.co_name.startswith("<") else code.co_name + "()",
        loaded=frozenset(step.value for step in words if step.kind == "LOAD"),
        crowded=bool(crowded),
    )


stores_of: PerCode[Stores] = PerCode(_read)
"""The table of a code object, made the first time it is asked for."""


def _stores_of(step: Step, reading: _Reading) -> Iterator[Store]:
    operands = reading.operands
    if step.kind == "LOAD":
        operands.append((step.value,))
        reading.on_line.append((step.value,))
    elif step.kind == "CONST":
        operands.append(Constant(step.value))
    elif step.kind == "ATTR" and operands and isinstance(operands[-1], tuple):
        yield from _method(operands[-1], step)
        operands[-1] += (step.value,)
        reading.on_line.append(operands[-1])
    elif step.kind != "SILENT":
        yield from _end_of_expression(step, reading)
        operands.clear()


def _method(path: Path, step: Step) -> Iterator[Store]:
    if step.value == "append":
        yield _store(path, "append", step)
    elif step.value in FILLERS:
        yield _store(path, "fill", step)


def _end_of_expression(step: Step, reading: _Reading) -> Iterator[Store]:
    operands = reading.operands
    if step.kind == "STORE":
        if not step.value.startswith("."):  # `.0` is the hidden argument of a comprehension
            yield _store((step.value,), "bind", step)
    elif step.kind == "DELETE":
        yield _store((step.value,), "drop", step)
    elif step.kind == "STORE_ATTR":
        if operands and isinstance(operands[-1], tuple):
            yield _store((*operands[-1], step.value), "bind", step)
    elif step.kind == "STORE_ITEM" and len(operands) >= 2 and isinstance(operands[-2], tuple):
        key = operands[-1]
        if isinstance(key, Constant) or len(key) == 1:
            yield _store(operands[-2], "item", step, key if isinstance(key, Constant) else key[0])
        else:
            yield _store(operands[-2], "fill", step)
    elif step.kind in ("STORE_ITEM", "STORE_SLICE"):
        # The key was computed: any container named on the line may be meant.
        for path in dict.fromkeys(reading.on_line):
            yield _store(path, "fill", step)


def _store(path: Path, how: How, step: Step, key: Constant | str | None = None) -> Store:
    return Store(".".join(path), path, how, step.offset, key)


def _look(stores: list[Store], crowded: bool = False) -> Look:
    names = {store.label: store.offset for store in stores if store.how == "bind" and len(store.path) == 1}
    return Look(tuple(names.items()), tuple(store for store in stores if store.label not in names), crowded)


def _after(words: list[Step], crowded: dict[int, list[Store]]) -> dict[int, Look]:
    """Which stores of crowded lines may just have happened when an instruction is about to run."""
    after: dict[int, Look] = {}
    just: list[Store] = []
    for step in words:
        stores = crowded.get(step.line, [])
        if step.kind == "BACK":  # the end of a round: a method that was called in it is over too
            after[step.offset] = _look(stores)
        elif just and just[0].offset != step.offset:
            after[step.offset] = _look(just)
        if step.kind != "SILENT":  # an event may point at the prefix of an instruction or at the instruction itself
            just = [store for store in stores if store.offset == step.offset]
    return after


def _arguments(code: CodeType) -> tuple[str, ...]:
    stars = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def _twice(stores: list[Store]) -> bool:
    return any(times > 1 for times in Counter(store.path for store in stores if store.how == "bind").values())


def _lines_that_loop(words: list[Step]) -> set[int]:
    """Lines with a loop that never leaves them."""
    looping: set[int] = set()
    for end, jump in enumerate(words):
        if jump.kind == "BACK":
            start = end
            while start > 0 and words[start - 1].offset >= jump.value and words[start - 1].line == jump.line:
                start -= 1
            if start == 0 or words[start - 1].offset < jump.value:
                looping.add(jump.line)
    return looping
