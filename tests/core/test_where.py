"""Places: the user's own lines, noted cheaply and spelled out on demand."""

from __future__ import annotations

import collections
import dataclasses
import gc
import json
import os
import sys
import timeit
import weakref

import pytest

from wrt._core.where import PerCode, Where, _judge, function_name, is_user_code, place, spot, user_frame, user_frames

SITE = "/opt/python/lib/python3.11/site-packages"


def here():
    return spot()


def line_of_caller():
    return sys._getframe(1).f_lineno


def test_a_where_reads_like_an_editor_link():
    assert str(Where("/home/me/train.py", 12)) == "train.py:12"
    assert str(Where("<stdin>", 3)) == "<stdin>:3"
    assert str(Where("<ipython-input-7-c0ffee>", 2)) == "In[7]:2"
    assert str(Where("/tmp/ipykernel_41/1234.py", 2)) == "cell:2"


def test_a_where_is_plain_data():
    where = place(*here())
    assert Where(**json.loads(json.dumps(dataclasses.asdict(where)))) == where


def test_a_spot_becomes_the_very_columns_of_the_expression():
    where = place(*spot()); expected = line_of_caller()  # noqa: E702
    assert (where.file, where.line, where.end_line) == (__file__, expected, expected)
    assert where.text[where.column - 4 : where.end_column - 4] == "spot()"
    assert where.function == "test_a_spot_becomes_the_very_columns_of_the_expression"


def test_an_expression_over_several_lines():
    where = place(
        *spot(
        )
    )
    assert where.end_line == where.line + 1
    assert where.text == "*spot("


def test_the_same_spot_is_the_same_place():
    found = {id(place(*here())) for _ in range(3)}
    assert len(found) == 1


def test_a_place_without_source_has_no_text():
    space = {"spot": spot}
    exec(compile("where = spot()", "/nowhere/at/all.py", "exec"), space)
    where = place(*space["where"])
    assert (str(where), where.text, where.function) == ("all.py:1", "", "<module>")


def test_code_that_looks_alike_in_two_files_keeps_its_file():
    codes = [compile("x = 1", file, "exec") for file in ("/a/one.py", "/a/two.py")]
    assert codes[0] == codes[1]
    assert [str(place(code, 0)) for code in codes] == ["one.py:1", "two.py:1"]


def test_a_frame_that_has_not_started_stands_at_its_first_line():
    def generator():
        yield

    assert place(generator.__code__, -1).line == generator.__code__.co_firstlineno


def test_memory_of_places_goes_with_the_code():
    lengths = PerCode(lambda code: len(code.co_code))
    code = compile("x = 1", "/a/one.py", "exec")
    lengths(code)
    place(code, 0)
    gone = weakref.ref(code)
    del code
    gc.collect()
    assert gone() is None
    assert not lengths._made


@pytest.mark.parametrize("file", [
    "/home/me/train.py", "/home/me/project/model/net.py", "<stdin>", "<ipython-input-3-abc>", "<python-input-0>",
    "/tmp/ipykernel_12/345.py", "<doctest readme[3]>", "<eval_with_key>.1", __file__,
    f"{SITE}/transformers/models/gpt2/modeling_gpt2.py", f"{SITE}/timm/models/resnet.py",
    f"{SITE}/torchvision/ops/misc.py", f"{SITE}/my_model.py", "/home/me/torch/train.py",
])  # fmt: skip
def test_the_users_own_code(file):
    assert is_user_code(file)


@pytest.mark.parametrize("file", [
    f"{SITE}/torch/nn/modules/linear.py", f"{SITE}/tensorflow/python/ops/math_ops.py",
    f"{SITE}/keras/src/layers/layer.py", f"{SITE}/jax/_src/numpy/ufuncs.py", f"{SITE}/numpy/_core/numeric.py",
    f"{SITE}/typing_extensions.py",
    "/usr/lib/python3/dist-packages/numpy/fft/helper.py", f"{SITE}/_pytest/python.py", f"{SITE}/IPython/core/run.py",
    r"C:\Python\Lib\site-packages\torch\functional.py", "<frozen importlib._bootstrap>",
    "<__array_function__ internals>", os.__file__, collections.__file__,
    sys.modules["wrt._core.where"].__file__,
])  # fmt: skip
def test_nobodys_own_code(file):
    assert not is_user_code(file)


@pytest.mark.parametrize(("started", "own"), [(["-c"], True), (["train.py"], False)])
def test_a_string_is_own_code_only_under_python_dash_c(started, own, monkeypatch):
    monkeypatch.setattr(sys, "argv", started)
    monkeypatch.setattr(sys, "orig_argv", ["python", *started])
    assert _judge("<string>") is own


def test_a_framework_imported_from_a_source_checkout(monkeypatch):
    class Checkout:
        __file__ = "/home/dev/src/haiku/__init__.py"

    monkeypatch.setitem(sys.modules, "haiku", Checkout)
    assert not is_user_code("/home/dev/src/haiku/_src/basic.py")
    assert is_user_code("/home/dev/src/haiku_experiments/run.py")




def test_library_frames_are_skipped():
    space = {}
    exec(compile("def call(f): return f()", f"{SITE}/torch/library.py", "exec"), space)
    frame = space["call"](user_frame)
    assert frame is sys._getframe()
    code, _ = space["call"](spot)
    assert code is sys._getframe().f_code


def test_no_user_frame_at_all():
    space = {"spot": spot, "user_frame": user_frame}
    source = "import sys\nframe = sys._getframe()\nclass Alone:\n    f_code, f_back = frame.f_code, None\n"
    exec(compile(source, f"{SITE}/torch/library.py", "exec"), space)
    assert spot(space["Alone"]) is None
    assert user_frame(space["Alone"]) is None


def test_user_frames_are_innermost_first():
    def inner():
        return [place(frame.f_code, frame.f_lasti) for frame in user_frames(sys._getframe())]

    def outer():
        return inner()

    stack = outer()
    assert [where.function.rpartition(".")[2] for where in stack[:3]] == [
        "inner", "outer", "test_user_frames_are_innermost_first",
    ]  # fmt: skip
    assert all(is_user_code(where.file) for where in stack)


def test_functions_are_named_as_their_author_would():
    class Net:
        def forward(self):
            return {spot()[0] for _ in range(1)}

    prefix = "test_functions_are_named_as_their_author_would"
    assert function_name(Net.forward.__code__) == f"{prefix}.Net.forward"
    (comprehension,) = Net().forward()  # from 3.12 on it has no code of its own
    assert function_name(comprehension) == f"{prefix}.Net.forward"


def test_noting_a_place_is_cheap():
    """About 0.2 µs; the bound is loose, because this machine may be busy."""
    assert min(timeit.repeat(spot, number=2000, repeat=5)) / 2000 < 5e-6
