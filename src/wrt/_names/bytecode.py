"""Bytecode in the few words that naming needs, the same words for every Python version."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, TypeAlias

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
