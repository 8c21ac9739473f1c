"""Names and what they meant: found by name, by function, by number; unknown ones answer with the closest."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wrt._core.bindings import Binding, Bindings
from wrt.errors import UnknownName

SOURCE = """
class Net:
    def forward(self, h):
        h = h + 1
        return h

def block(h):
    return [h for _ in h]

def outer():
    def inner(h): ...
"""


def functions(code):
    for inner in code.co_consts:
        if hasattr(inner, "co_code"):
            yield inner.co_qualname, inner
            yield from functions(inner)


MODULE = compile(SOURCE, "/home/me/train.py", "exec")
CODES = {"": MODULE} | {name.replace(".<locals>", ""): code for name, code in functions(MODULE)}


def tensor(*shape, dtype="torch.float32"):
    return SimpleNamespace(shape=shape, dtype=dtype)


@pytest.fixture
def table():
    """`table("h", x, "block")` notes one binding; `table.names` is the result."""
    names = Bindings()

    def add(name, thing, function=""):
        names.add(Binding(name, thing, CODES[function], 0, len(names) + 1))
        return thing

    add.names = names
    return add


def test_a_name_means_its_last_binding(table):
    table("h", tensor())
    last = table("h", tensor())
    assert table.names["h"].object is last


def test_bindings_are_counted_from_both_ends(table):
    things = [table("h", tensor(k)) for k in range(5)]
    for k in range(-5, 5):
        assert table.names["h", k].object is things[k]
        assert table.names[f"h#{k}"].object is things[k]
    assert [binding.object for binding in table.names.all("h")] == things


def test_functions_classes_and_the_plain_name(table):
    a = table("h", tensor(1), "Net.forward")
    b = table("h", tensor(2), "block")
    c = table("h", tensor(3), "outer.inner")
    names = table.names
    assert names["h"].object is c
    assert names["h", 0].object is a
    assert names["forward.h"].object is names["Net.forward.h"].object is a
    assert names["block.h"].object is names["block.h#0"].object is b
    assert names["inner.h"].object is names["outer.inner.h"].object is c


def test_attributes_items_and_returns(table):
    a = table("self.h", tensor(), "Net.forward")
    b = table("outs[3]", tensor(), "block")
    c = table("forward()", tensor(), "Net.forward")
    d = table("block()[0]", tensor(), "block")
    names = table.names
    assert names["self.h"].object is names["forward.self.h"].object is a
    assert names["outs[3]"].object is names["block.outs[3]"].object is b
    assert names["forward()"].object is names["Net.forward()"].object is c
    assert names["block()[0]"].object is d


def test_the_same_tensor_twice_in_a_row_counts_once(table):
    h = table("h", tensor())
    table("h", h, "block")
    table("h", h)
    k = table("h", tensor())
    again = table("h", h)
    assert [binding.object for binding in table.names.all("h")] == [h, k, again]
    assert len(table.names.all("block.h")) == 1


def test_a_comprehension_belongs_to_its_function(table):
    comprehension = [name for name in CODES if name.endswith("comp>")]
    x = table("h", tensor(), comprehension[0] if comprehension else "block")
    assert table.names["block.h"].object is x


def test_a_key_with_a_hash_sign(table):
    a = table("cache['a#1']", tensor())
    assert table.names["cache['a#1']"].object is a
    assert table.names["cache['a#1']#0"].object is a


def test_all_names_of_a_tensor(table):
    x = table("x", tensor())
    table("h", tensor())
    table("y", x, "block")
    assert [binding.name for binding in table.names.of(x)] == ["x", "y"]


def test_membership(table):
    table("h", tensor(), "block")
    names = table.names
    assert "h" in names
    assert "block.h" in names
    assert "h#0" in names
    assert ("h", -1) in names
    assert "h#1" not in names
    assert "g" not in names
    assert 3 not in names


def test_names_can_be_added_after_a_question(table):
    table("h", tensor())
    assert len(table.names.all("h")) == 1
    table("h", tensor())
    assert len(table.names.all("h")) == 2


def test_unknown_names_answer_with_the_closest(table):
    table("hidden", tensor())
    table("logits", tensor())
    with pytest.raises(UnknownName) as caught:
        table.names["hiden"]
    assert str(caught.value) == (
        "no tensor named 'hiden' was recorded\n"
        "  2 names were, the closest: hidden\n"
        "  did you mean 'hidden'?"
    )  # fmt: skip
    assert isinstance(caught.value, KeyError)


def test_nothing_close_shows_what_there_is(table):
    table("hidden", tensor())
    with pytest.raises(UnknownName, match="one name was, the last one is hidden"):
        table.names["zzz"]


def test_nothing_recorded_at_all(table):
    with pytest.raises(UnknownName, match="no name at all was bound to a tensor"):
        table.names["h"]


def test_a_binding_that_did_not_happen(table):
    table("h", tensor())
    table("h", tensor())
    with pytest.raises(UnknownName) as caught:
        table.names["h", 7]
    assert str(caught.value) == (
        "no binding 7 of 'h' was recorded\n"
        "  h was bound 2 times, last at train.py:1\n"
        "  write ('h', 1) for the last one; counting starts at 0"
    )  # fmt: skip


def test_the_table_lists_each_variable_under_its_shortest_name(table):
    table("x", tensor(4, 3))
    table("h", tensor(3, dtype="<dtype: 'float64'>"), "Net.forward")
    table("h", tensor(5, dtype="int32"), "Net.forward")
    table("h", tensor(), "block")
    assert list(table.names) == ["x", "forward.h", "block.h"]
    assert len(table.names) == 3
    assert repr(table.names) == (
        "name       times  shape  dtype    line\n"
        "x          1      (4,3)  float32  train.py:1\n"
        "forward.h  2      (5,)   int32    train.py:3\n"
        "block.h    1      ()     float32  train.py:7"
    )  # fmt: skip


def test_an_empty_table(table):
    assert repr(table.names) == "no tensor was bound to a name"


def test_a_binding_says_where(table):
    table("h", tensor(), "Net.forward")
    binding = table.names["h"]
    assert repr(binding) == "Binding  h at train.py:3"
    assert (binding.function, binding.shape, binding.dtype) == ("Net.forward", (), "float32")
