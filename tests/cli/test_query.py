"""The language of `wrt ask`: what it reads, and the words it refuses with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wrt._cli.query import read
from wrt.errors import WrongQuery

READS = {
    "y / x": (("y",), (), ("x",), ()),
    "y[0] / x[2]": (("y",), ((0,),), ("x",), ((2,),)),
    " y [ 0 ]/x": (("y",), ((0,),), ("x",), ()),
    "y[-1, ..., None] / x": (("y",), ((-1, ..., None),), ("x",), ()),
    "y[1:5:2, ::-1, :] / x": (("y",), ((slice(1, 5, 2), slice(None, None, -1), slice(None)),), ("x",), ()),
    "y[0,] / x": (("y",), ((0,),), ("x",), ()),
    "y[0][1] / x": (("y",), ((0,), (1,)), ("x",), ()),
    "loss / model.fc.weight[:, 2]": (("loss",), (), ("model", "fc", "weight"), ((slice(None), 2),)),
    "loss / model.0.weight": (("loss",), (), ("model", "0", "weight"), ()),
    "d(y)[0] / d(x)[2]": (("y",), ((0,),), ("x",), ((2,),)),
    "d / dd": (("d",), (), ("dd",), ()),
    "größe / x_1": (("größe",), (), ("x_1",), ()),
}


@pytest.mark.parametrize("text", READS)
def test_a_question_is_read(text: str) -> None:
    query = read(text)
    (by,) = query.by
    assert (query.y.path, query.y.indices, by.path, by.indices) == READS[text]


def test_several_slashes_are_higher_orders() -> None:
    query = read("z / x[0] / w[1]")
    assert [str(side) for side in query.by] == ["x[0]", "w[1]"]


def test_a_time_is_which_meaning_of_a_name() -> None:
    query = read("z / net.h#3[0]")
    assert (query.y.time, query.by[0].time, query.by[0].path, query.by[0].indices) == (None, 3, ("net", "h"), ((0,),))


REFUSED = {
    "y / x#": ("a number is missing after #", "y / x# →"),
    "": ("a name is missing here", "→"),
    "y": ("the question has no denominator", "y →"),
    "y /": ("a name is missing here", "y / →"),
    "/ x": ("a name is missing here", "→ / x"),
    "y / 3": ("a name is missing here", "y / → 3"),
    "y[0 / x": ("the index is not closed", "y[0 → / x"),
    "y[] / x": ("an index is missing or not a number", "y[ → ] / x"),
    "y[i] / x": ("an index is missing or not a number", "y[ → i] / x"),
    "y[-] / x": ("a number is missing after the minus", "y[- → ] / x"),
    "y[0].w / x": ("a name after an index", "y[0] → .w / x"),
    "d(y / x": ("d( is not closed", "d(y → / x"),
    "y x": ("only a derivative can be asked for", "y → x"),
    "y / x + 1": ("+ has no meaning in a question", "y / x → + 1"),
    "y() / x": ("only a derivative can be asked for", "y → () / x"),
    "__import__('os') / x": ("' has no meaning in a question", "__import__( → 'os') / x"),
    "__builtins__ / x": ("__builtins__ belongs to Python, not to your script", "→ __builtins__ / x"),
    "y.__class__ / x": ("__class__ belongs to Python, not to your script", "y. → __class__ / x"),
    "y[1.5] / x": ("the index is not closed", "y[1 → .5] / x"),
    "y[(0)] / x": ("an index is missing or not a number", "y[ → (0)] / x"),
    "y; x": ("; has no meaning in a question", "y → ; x"),
    "lambda: x": ("only a derivative can be asked for", "lambda → : x"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_question_is_refused_at_its_spot(text: str) -> None:
    with pytest.raises(WrongQuery) as caught:
        read(text)
    assert (caught.value.what, caught.value.where) == REFUSED[text]
    assert len(str(caught.value).splitlines()) == 3


NUMBERS = st.integers(-99, 99)
MAYBE = st.none() | NUMBERS
ITEMS = NUMBERS | st.builds(slice, MAYBE, MAYBE, MAYBE) | st.just(...) | st.none()


def written(item: object) -> str:
    if isinstance(item, slice):
        parts = ["" if part is None else str(part) for part in (item.start, item.stop, item.step)]
        return ":".join(parts if item.step is not None else parts[:2])
    return "..." if item is ... else str(item)


@given(st.lists(ITEMS, min_size=1, max_size=5))
def test_indices_are_read_as_python_reads_them(items: list[object]) -> None:
    text = f"y[{', '.join(map(written, items))}]"
    read_here = read(f"{text} / x").y.indices[0]
    in_python = eval(text, {"y": np.s_})
    assert read_here == (in_python if isinstance(in_python, tuple) else (in_python,))


@given(st.text(alphabet="yx d()[]./:#,-0129 Non…_'\"+*", max_size=20))
def test_any_text_is_read_or_refused_in_three_lines(text: str) -> None:
    words = ""
    try:
        assert read(text).by
    except WrongQuery as error:
        words = str(error)
    assert not words or len(words.split("\n  ")) == 3
