"""Any small program: the watcher sees what a scan of all names after every statement sees."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wrt._names.watch import Watcher

box = partial(np.full, 1)
is_box = partial(type.__instancecheck__, np.ndarray)

NAMES = ("a", "b", "c")
name = st.sampled_from(NAMES)


@st.composite
def simple(draw):
    """One statement without a block."""
    x, y, z = draw(st.permutations(NAMES))
    return draw(st.sampled_from([
        f"{x} = box(1)", f"{x} = {y}", f"{x} = {y} + 1", f"{x} += 1", f"{x}, {y} = {z}, box(2)", f"{x} = {y} = box(3)",
        f"{x}, *rest = ({y}, {z}, box(4))", f"del {x}; {x} = box(5)", f"outs.append({x})", f"outs[0] = {x}",
        f"outs[len(outs) - 1] = {x}", f"table['k'] = {x}", f"table[k] = {x}", f"table.update(u={x})",
        f"outs = [{x}, {y}]", f"outs = [q + k for q in ({y}, {z})]", f"part.h = {x}", "part.h = part.h + 1",
        f"{x}[0] = 7", f"({x} := {y} + 1).any()", f"{x} = {y}; {x} = box(6)", "k = 8", f"{x} = helper({y})",
    ]))  # fmt: skip


@st.composite
def program(draw, depth=2):
    """Statements and blocks of statements, as (text, block) pairs."""
    lines = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["simple", "simple", "simple", "for", "if", "one line"]))
        if kind == "simple" or depth == 0:
            lines.append((draw(simple()), None))
        elif kind == "one line":
            lines.append((f"for {draw(name)} in (box(1), box(2)): {draw(simple())}", None))
        else:
            head = draw(st.sampled_from(["for k in range(3):", f"for {draw(name)} in (a, b):"] if kind == "for" else
                                        ["if k % 2:", "if k:", "while k < 2:"]))
            block = draw(program(depth - 1))
            lines.append((head, [*block, ("k += 1", None)] if head.startswith("while") else block))
    return lines


def source(lines, check, indent=1):
    """The program as text; with `check`, a scan after everything that can bind."""
    out = []
    pad = "    " * indent
    for text, block in lines:
        if block is not None:
            scan_first = ["    " * (indent + 1) + "scan()"] if check else []
            out += [pad + text, *scan_first, *source(block, check, indent + 1)]
        elif check and text.startswith("for "):
            head, body = text.split(": ", 1)
            out += [f"{pad}{head}:", f"{pad}    scan()"]
            out += [line for part in body.split("; ") for line in (f"{pad}    {part}", f"{pad}    scan()")]
        elif check:
            out += [line for part in text.split("; ") for line in (pad + part, f"{pad}scan()")]
        else:
            out.append(pad + text)
    return out


HEAD = ["def run(a, b, c, k, part, outs, table, scan):", "    rest = []"]


class Part:
    def __init__(self):
        self.h = box(0)


def run(lines, check, scan_with):
    space = {"box": box, "helper": partial(np.add, 1)}
    text = "\n".join([*HEAD, *source(lines, check), "    return None"])
    exec(compile(text, "/home/someone/program.py", "exec"), space)
    arguments = box(10), box(20), box(30), 0, Part(), [box(40)], {"k": box(50)}
    return scan_with(space["run"], arguments)


def by_watching(function, arguments):
    seen = []
    with Watcher(is_box, seen.append):
        function(*arguments, None)
    return [(binding.name, binding.object) for binding in seen if binding.name != "q"]


def by_scanning(function, arguments):
    import sys

    seen, last = [], {}

    def scan():
        scope = sys._getframe(1).f_locals
        for label, value in labels(scope):
            if last.get(label) is not value:
                last[label] = value
                seen.append((label, value))

    def first(*given):
        for label, value in labels(dict(zip(("a", "b", "c", "k", "part", "outs", "table"), given))):
            last[label] = value
            if label != "part.h":
                seen.append((label, value))

    first(*arguments)
    function(*arguments, scan)
    return seen


def labels(scope):
    for label in NAMES:
        if isinstance(scope.get(label), np.ndarray):
            yield label, scope[label]
    yield "part.h", scope["part"].h
    for label in ("outs", "rest"):
        yield from ((f"{label}[{k}]", value) for k, value in enumerate(scope.get(label, ())))
    yield from ((f"table[{key!r}]", value) for key, value in scope["table"].items())


def sequences(seen):
    """For each name the values it had, by content: the two runs make different objects."""
    found = {}
    for label, value in seen:
        found.setdefault(label, []).append(value.item())
    return found


@settings(max_examples=300, deadline=None)
@given(program())
def test_every_program(lines):
    watched = sequences(run(lines, False, by_watching))
    scanned = sequences(run(lines, True, by_scanning))
    assert watched == scanned, "\n" + "\n".join(source(lines, False))
