"""Which names a line can bind, read from bytecode: the same answer on every Python version."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from wrt._names.stores import Constant, stores_of


def looks(source):
    """line -> what to look at, in words"""
    found = {}
    for line, look in stores_of(compile(dedent(source), "/home/me/x.py", "exec")).lines.items():
        found[line] = sorted([name for name, _ in look.names] + [words(store) for store in look.others])
    return found


def words(store):
    key = f" {store.key.value!r}" if isinstance(store.key, Constant) else f" {store.key}" if store.key else ""
    return f"{store.how} {store.label}{key}"


@pytest.mark.parametrize(("line", "expected"), [
    ("h = f(x)", ["h"]),
    ("a, (b, *c) = x", ["a", "b", "c"]),
    ("a = b = x", ["a", "b"]),
    ("(w := f(x)) + 1", ["w"]),
    ("for t in range(3): pass", ["t"]),
    ("h += 1", ["h"]),
    ("import torch", ["torch"]),
    ("self.h = x", ["bind self.h"]),
    ("self.a.b = x", ["bind self.a.b"]),
    ("outs.append(x)", ["append outs"]),
    ("self.outs.append(f(x, y))", ["append self.outs"]),
    ("cache['k'] = x", ["item cache 'k'"]),
    ("outs[3] = x", ["item outs 3"]),
    ("outs[t] = x", ["item outs t"]),
    ("self.cache[t] = x", ["item self.cache t"]),
    ("outs.extend(xs)", ["fill outs"]),
    ("table.update(k=x)", ["fill table"]),
    ("del h", ["drop h"]),
    ("f(x, y).z", []),
    ("print(h)", []),
])  # fmt: skip
def test_one_line(line, expected):
    assert looks(line).get(1, []) == expected


def test_a_computed_key_means_any_container_on_the_line():
    assert "fill outs" in looks("outs[t - 1] = x")[1]
    assert "fill outs" in looks("outs[1:] = xs")[1]


def test_a_statement_belongs_to_the_line_that_stores():
    assert looks("h = f(\n    x,\n    y,\n)\n") == {1: ["h"]}


def test_most_lines_have_nothing_to_look_at():
    assert looks("def f(): pass\nif x:\n    print(1)\nh = 1\n") == {1: ["f"], 4: ["h"]}


def test_a_name_bound_twice_on_a_line_makes_it_crowded():
    lines = stores_of(compile("h = 1; h = 2\nk = 3\n", "/home/me/x.py", "exec")).lines
    assert (lines[1].crowded, lines[2].crowded) == (True, False)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before 3.12 every round of a loop makes a line event")
def test_a_loop_that_stays_on_its_line_makes_it_crowded():
    source = "for t in x: h = t\nfor t in x:\n    h = t\nh = [k for k in x]\n"
    lines = stores_of(compile(source, "/home/me/x.py", "exec")).lines
    assert [lines[k].crowded for k in (1, 2, 3, 4)] == [True, False, False, True]


def test_arguments_and_what_a_return_is_called():
    def encode(a, /, b, *c, d, **e): ...

    stores = stores_of(encode.__code__)
    assert sorted(stores.arguments) == ["a", "b", "c", "d", "e"]
    assert stores.returns == "encode()"
    assert stores_of((lambda x: x).__code__).returns == ""
