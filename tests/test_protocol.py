"""The protocol is true: the layers above ask backends for what is declared, sniff nothing, and backends have all of it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wrt
from tests.finite.reference.backend import BACKEND
from wrt import d
from wrt._core import evidence, protocol

PACKAGE = Path(__file__).parents[1] / "src" / "wrt"

DECLARED: dict[str, tuple[type, ...]] = {
    "record": (protocol.Record, protocol.Recording),
    "arrays": (protocol.Arrays,),
    "sheet": (protocol.Sheet,),
    "engine": (protocol.Engine,),
    "backend": (protocol.Backend,),
    "patches": (protocol.Patches,),
    "recorded function": (protocol.RecordedFunction,),
    "evidence": (evidence.Evidence,),
}
KINDS = {
    "record": "record", "recording": "record", "arrays": "arrays", "sheet": "sheet", "engine": "engine", "backend": "backend",
    "patches": "patches", "evidence": "evidence",
}  # fmt: skip
"""What a name, or the last name of an expression such as `ask.y.record`, stands for; a leading underscore is left out."""
MADE_BY = {
    "engine": "engine", "evidence": "evidence", "patches": "patches", "sheet": "sheet", "trace": "record",
    "recorded_function": "recorded function",
}  # fmt: skip
"""Methods of backend objects that return another one."""
OTHERWISE = {"finding"}
"""Names whose attributes are called like backend objects and are none: the evidence of a finding is a sentence."""
ANNOTATED = {kind.__name__: name for name, kinds in DECLARED.items() for kind in kinds}

STILL_SNIFFED: set[str] = set()
STILL_UNDECLARED: set[str] = set()
STILL_DIFFERENT: set[str] = set()
"""What is known to be wrong; what is mended has to go from here too."""


def members(kind: str) -> set[str]:
    """Everything that is declared for one kind of backend object."""
    found: set[str] = set()
    for one in DECLARED[kind]:
        for parent in one.__mro__[:-1]:
            if parent.__module__.startswith("wrt."):
                found |= {name for name in (*vars(parent), *vars(parent).get("__annotations__", ())) if not name.startswith("_")}
    return found


class Reader(ast.NodeVisitor):
    """Attributes of backend objects that one file uses, and those it sniffs for."""

    def __init__(self) -> None:
        self.used: list[tuple[str, str, int]] = []
        self.sniffed: list[tuple[str, int]] = []
        self.known: list[dict[str, str | None]] = [{}]

    # ---- which expression is what

    def kind(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            for names in reversed(self.known):
                if node.id in names:
                    return names[node.id]
            return KINDS.get(node.id.lstrip("_"))
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            return None if owner in OTHERWISE else KINDS.get(node.attr.lstrip("_"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return MADE_BY.get(node.func.attr) if self.kind(node.func.value) else None
        return None

    # ---- names that are something else here

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        names = {one.arg: ANNOTATED.get(ast.unparse(one.annotation)) for one in given if one.annotation is not None}
        self.known.append({name: kind for name, kind in names.items() if kind or (KINDS.get(name) and not _is_any(given, name))})
        self.generic_visit(node)
        self.known.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for one in node.names:  # a module or a function of that name
            self.known[-1][(one.asname or one.name).split(".")[0]] = None

    visit_ImportFrom = visit_Import

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                called = node.value.func if isinstance(node.value, ast.Call) else None
                loaded = isinstance(called, ast.Name) and called.id in ("needs", "import_module")
                self.known[-1][target.id] = None if loaded else self.kind(node.value) or KINDS.get(target.id.lstrip("_"))
        self.generic_visit(node)

    # ---- what is used

    def visit_Attribute(self, node: ast.Attribute) -> None:
        kind = self.kind(node.value)
        if kind is not None and not node.attr.startswith("__"):
            self.used.append((kind, node.attr, node.lineno))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and self.kind(node.args[0]):
            self.sniffed.append((ast.unparse(node), node.lineno))
        self.generic_visit(node)


def _is_any(given: tuple[ast.arg, ...], name: str) -> bool:
    """An annotation that says nothing leaves the name to speak."""
    words = [ast.unparse(one.annotation) for one in given if one.arg == name and one.annotation is not None]
    return words in (["Any"], ["object"])


def read(source: str) -> Reader:
    reader = Reader()
    reader.visit(ast.parse(source))
    return reader


def undeclared(source: str) -> list[str]:
    return [f"{kind}.{name}" for kind, name, _ in read(source).used if name not in members(kind)]


def above() -> Iterator[tuple[str, str]]:
    """Every file above the backends."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE).as_posix()
        if not where.startswith("_backends/"):
            yield where, path.read_text()


def test_every_method_that_is_used_is_declared(record_property: Any) -> None:
    used: set[tuple[str, str]] = set()
    missing: set[str] = set()
    for where, source in above():
        for kind, name, _ in read(source).used:
            used.add((kind, name))
            if name not in members(kind):
                missing.add(f"{where}: {kind}.{name}")
    record_property("told", f"protocol: {len(used)} members of backend objects used above them, {len(missing)} undeclared")
    assert missing == STILL_UNDECLARED


def test_nothing_is_sniffed() -> None:
    sniffed = {f"{where}: {words}" for where, source in above() for words, _ in read(source).sniffed}
    assert sniffed == STILL_SNIFFED


OFFENDERS = {
    "a method of a record": "def f(ask):\n  return ask.y.record.fast_road(ask)",
    "of its arrays": "def f(ask):\n  arrays = ask.y.record.backend.arrays\n  return arrays.at_hand(1)",
    "of arrays by another name": "def f(ask):\n  made = ask.y.record.backend.arrays\n  return made.at_hand(1)",
    "of what it returned": "def f(record, y, xs):\n  return record.engine(y, xs).pull_at_once(1)",
    "of an engine in a slot": "class A:\n  def f(self):\n    return self._engine.rungs",
    "of an argument": "def f(run: Recording):\n  return run.halves",
    "of the evidence": "def f(recording):\n  return recording.evidence().measured(1)",
}


@pytest.mark.parametrize("name", OFFENDERS)
def test_an_undeclared_method_is_found(name: str) -> None:
    assert undeclared(OFFENDERS[name])


@pytest.mark.parametrize(
    "source",
    [
        "def f(ask):\n  return getattr(ask.y.record, 'weights', None)",
        "def f(arrays):\n  return hasattr(arrays, 'at_hand')",
        "def f(record):\n  evidence = record.evidence()\n  return getattr(evidence, 'measured', None)",
    ],
)
def test_sniffing_is_found(source: str) -> None:
    assert read(source).sniffed


@pytest.mark.parametrize(
    "source",
    [
        "def f(ask):\n  return ask.y.record.backend.arrays.zeros((1,), ask.y)",
        "def f(record, y):\n  return record.evidence().graph.nodes",
        "import wrt.record as record\nrecord.anything()",
        "def f(engine: tuple[float, ...]):\n  return engine.count(1)",
        "def f(x):\n  return getattr(x, 'shape', None)",
    ],
)
def test_what_is_declared_or_no_backend_object_passes(source: str) -> None:
    assert not undeclared(source)
    assert not read(source).sniffed


# ---------------------------------------------------------------- backends have all of it


def torch_objects() -> Iterator[tuple[tuple[type, ...], Any]]:
    x = torch.randn(1, 1, 9, 9, requires_grad=True)
    layer = torch.nn.Conv2d(1, 1, 3)
    ask = (d(layer(x)) / d(x)).ask
    some = (d(layer(x))[0, 0, 2, :3] / d(x)[0, 0, 2, :3]).ask
    recording = (d((t := wrt.trace(layer, x, values=True)).output) / d(t.inputs[0])).ask.y.record
    arrays = ask.y.record.backend.arrays
    yield (protocol.Record,), ask.y.record
    yield (protocol.Record, protocol.Recording), recording
    yield (protocol.Engine,), ask.y.record.engine(ask.y, ask.x.values)
    yield (protocol.Patches,), some.y.record.patches(some.y, some.rows, some.x.values[0], some.x.parts[0].elements)
    yield (protocol.Arrays,), arrays
    yield (protocol.Sheet,), arrays.sheet((2, 3), ask.y)
    yield (protocol.Backend,), ask.y.record.backend
    yield (evidence.Evidence,), recording.evidence()


def finite_objects() -> Iterator[tuple[tuple[type, ...], Any]]:
    backend = BACKEND
    recording = backend.trace(np.sin, (np.ones(3),), {})
    y = recording.output
    yield (protocol.Record, protocol.Recording), recording
    yield (protocol.Engine,), recording.engine(y, recording.inputs)
    yield (protocol.Arrays,), backend.arrays
    yield (protocol.Sheet,), backend.arrays.sheet((2, 3), y)
    yield (protocol.Backend,), backend


@pytest.mark.parametrize("objects", [torch_objects, finite_objects])
def test_backends_have_every_member_that_is_declared_with_the_same_arguments(objects: Any) -> None:
    lacking = []
    for kinds, thing in objects():
        for kind in kinds:
            lacking += [f"{type(thing).__name__}.{words}" for words in differences(kind, thing)]
    assert not set(lacking) - STILL_DIFFERENT


def differences(kind: type, thing: Any) -> Iterator[str]:
    """What a backend object lacks of one protocol."""
    nothing = object()
    for name in (*vars(kind), *vars(kind).get("__annotations__", ())):
        if name.startswith("_"):
            continue
        here = inspect.getattr_static(thing, name, nothing)
        if here is nothing:
            yield f"{name} is missing"
        elif inspect.isfunction(declared := vars(kind).get(name)) and inspect.isfunction(here):
            asked, got = arguments(declared), arguments(here)
            if asked != got:
                yield f"{name} takes {got}, declared are {asked}"


def arguments(function: Any) -> list[str]:
    """Names in order, `*` before those that are given by name; what has a default of its own beside them may be more."""
    found = []
    for one in inspect.signature(function).parameters.values():
        found.append(f"*{one.name}" if one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD) else one.name)
    return found


def test_a_backend_that_lacks_a_member_is_found() -> None:
    class Half:
        can_pull = can_push = True
        push_cost = 1.0

        def plain(self, seed: Any) -> Any: ...

    found = list(differences(protocol.Engine, Half()))
    assert "pull is missing" in found
    assert "plain takes ['self', 'seed'], declared are ['self', 'seed', '*then_push']" in found
