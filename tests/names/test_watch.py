"""Names are noticed as they are bound: exactly, in the user's frames alone, and without a trace left behind."""

from __future__ import annotations

import bdb
import contextlib
import gc
import sys
import threading
import weakref
from functools import partial

import numpy as np
import pytest

from wrt._core.bindings import Binding, Bindings
from wrt._names.frame_names import visible_tensors
from wrt._names.observer import Observer
from wrt._names.settrace import SettraceWatch
from wrt._names.watch import Watcher

SETTRACE = sys.version_info < (3, 12)


box = partial(np.full, 1)  # stands for a tensor: arithmetic makes new ones, and none of its code is the user's


is_box = partial(type.__instancecheck__, np.ndarray)


class BySettrace:
    """The 3.11 way, whatever Python runs the test."""

    def __init__(self, is_tensor, on_bind):
        self.watch = SettraceWatch(Observer(is_tensor, on_bind))

    def __enter__(self):
        self.watch.start(sys._getframe(1))
        return self

    def __exit__(self, *exception):
        self.watch.stop()


@pytest.fixture(params=[Watcher, BySettrace] if not SETTRACE else [Watcher], ids=lambda kind: kind.__name__)
def watching(request):
    """`with watching() as seen:` collects the bindings of the block."""

    @contextlib.contextmanager
    def watching():
        seen: list[Binding] = []
        with request.param(is_box, seen.append):
            yield seen

    return watching


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before = sys.gettrace()
    yield
    assert sys.gettrace() is before
    if not SETTRACE:
        assert "wrt" not in [sys.monitoring.get_tool(number) for number in range(6)]


def names(seen):
    return [binding.name for binding in seen]


def pairs(seen):
    return [(binding.name, binding.object.item()) for binding in seen]


# What is a binding


def test_locals_of_the_watching_function_including_the_last_line(watching):
    x = box(1)
    with watching() as seen:
        h = x + 1
        y = h + 1
    assert pairs(seen) == [("h", 2), ("y", 3)]
    assert [b.object for b in seen] == [h, y]


def test_a_block_on_one_line(watching):
    with watching() as seen: h = box(1); h = h + 1  # noqa: E701, E702
    assert pairs(seen) == [("h", 1), ("h", 2)]


def test_a_name_bound_k_times_in_a_loop_gives_k_bindings(watching):
    with watching() as seen:
        h = box(0)
        for _ in range(5):
            h = h + 1
    assert pairs(seen) == [("h", value) for value in range(6)]
    assert [b.sequence for b in seen] == list(range(1, 7))


def test_a_loop_on_one_line(watching):
    with watching() as seen:
        h = box(0)
        for _ in range(3): h = h + 1  # noqa: E701
    assert pairs(seen) == [("h", 0), ("h", 1), ("h", 2), ("h", 3)]


def test_one_name_bound_twice_on_one_line(watching):
    def f(h):
        h = h + 1; h = h + 1; k = h  # noqa: E702
        return k

    with watching() as seen:
        f(box(0))
    assert pairs(seen) == [("h", 0), ("h", 1), ("h", 2), ("k", 2), ("f()", 2)]


def test_rebinding_the_same_object_is_not_a_new_binding(watching):
    with watching() as seen:
        h = box(1)
        h = h
        h += 1
        h[0] = 7
        for _ in range(3):
            h = h
    assert names(seen) == ["h"]


def test_what_was_bound_before_is_not_news(watching):
    h, xs = box(1), []
    with watching() as seen:
        for h in xs:
            pass
        if xs: h = box(2)  # noqa: E701
    assert not seen
    assert h[0] == 1


def test_a_new_tensor_at_the_address_of_an_old_one_is_a_new_binding(watching):
    def make():
        h = box(1)
        return None if h.any() else h

    with watching() as seen:
        for _ in range(50):
            make()
            g = box(2)
            del g
    assert names(seen) == ["h", "g"] * 50


def test_the_same_object_under_two_names(watching):
    with watching() as seen:
        a = b = box(1)
        c = a
    assert names(seen) == ["a", "b", "c"]
    assert seen[0].object is seen[2].object is b is c


def test_tuple_unpacking_star_and_walrus(watching):
    with watching() as seen:
        a, (b, *rest) = box(1), (box(2), box(3), box(4))
        if (w := a + 1).any():
            pass
    assert sorted(pairs(seen)[:4]) == [("a", 1), ("b", 2), ("rest[0]", 3), ("rest[1]", 4)]
    assert pairs(seen)[4:] == [("w", 2)]


def test_for_with_and_except_bind_too(watching):
    @contextlib.contextmanager
    def giving(box):
        yield box

    with watching() as seen:
        for x in (box(1), box(2)):
            pass
        with giving(box(3)) as y:
            pass
    assert [pair for pair in pairs(seen) if len(pair[0]) == 1] == [("x", 1), ("x", 2), ("y", 3)]


def test_function_arguments_and_returns(watching):
    def encode(x, *rest, scale, **more):
        return x + scale

    with watching() as seen:
        y = encode(box(1), box(2), scale=box(3), extra=box(4))
    assert pairs(seen) == [
        ("x", 1), ("scale", 3), ("rest[0]", 2), ("more['extra']", 4), ("encode()", 4), ("y", 4),
    ]  # fmt: skip


def test_an_argument_shared_with_an_inner_function(watching):
    def outer(x):
        def inner():
            nonlocal x
            x = x + 1

        inner()
        inner()
        return x

    with watching() as seen:
        outer(box(0))
    assert pairs(seen) == [("x", 0), ("x", 1), ("x", 2), ("outer()", 2)]
    assert seen[1].function.endswith("outer.inner")


def test_the_weights_of_a_repeated_call_are_reported_once(watching):
    def step(h, w, params):
        h = h + w
        return h + params["b"]

    with watching() as seen:
        w, params, h = box(1), {"b": box(1)}, box(0)
        for _ in range(3):
            h = step(h, w, params)
    assert names(seen).count("w") == 2  # by the block, by step
    assert names(seen).count("params['b']") == 2
    assert [b.object.item() for b in seen if b.name == "h"] == [0, 0, 1, 2, 2, 3, 4, 4, 5, 6]


def test_an_argument_is_news_again_when_its_name_meant_another_tensor(watching):
    def f(x): ...
    def g(x): ...

    a, b = box(1), box(2)
    with watching() as seen:
        f(a)
        g(b)
        f(a)
        f(a)
    assert pairs(seen) == [("x", 1), ("x", 2), ("x", 1)]


def test_attributes_set_on_self(watching):
    class Net:
        def forward(self, x):
            self.h = x + 1
            self.h = self.h + 1
            self.other = 3
            return self.h

    with watching() as seen:
        Net().forward(box(0))
    assert pairs(seen) == [("x", 0), ("self.h", 1), ("self.h", 2), ("forward()", 2)]
    assert seen[1].function.endswith("Net.forward")


def test_attributes_in_slots_in_dicts_of_modules_and_of_parts(watching):
    class Slotted:
        __slots__ = ("h",)

    class Module:
        def __init__(self):
            self._buffers = {}

        def __setattr__(self, name, value):
            (self._buffers if isinstance(value, np.ndarray) else self.__dict__)[name] = value

        def __getattr__(self, name):
            raise AssertionError("looking must run nothing")

    with watching() as seen:
        a, b = Slotted(), Module()
        a.h = box(1)
        b.h = box(2)
        b.part = a
        b.part.h = box(3)
    found = [pair for pair in pairs(seen) if pair[0][:2] in ("a.", "b.")]
    assert found == [("a.h", 1), ("b.h", 2), ("b.part.h", 3)]


def test_no_property_runs(watching):
    class Net:
        @property
        def h(self):
            raise AssertionError("looking must run nothing")

        @h.setter
        def h(self, value):
            self.kept = value

    with watching() as seen:
        net = Net()
        net.h = box(1)
    assert names(seen) == ["value", "self.kept"]


def test_items_of_lists_and_dicts(watching):
    with watching() as seen:
        outs, cache, i = [], {}, 1
        outs.append(box(0))
        outs.append(box(1))
        outs[i] = box(2)
        outs[i - 1] = box(3)
        outs[-1] = box(4)
        outs.extend([box(5), box(6)])
        cache["k"] = box(7)
        cache[f"{i}"] = box(8)
        cache.update(v=box(9))
        cache[i, "w"] = box(10)
    assert pairs(seen) == [
        ("outs[0]", 0), ("outs[1]", 1), ("outs[1]", 2), ("outs[0]", 3), ("outs[1]", 4), ("outs[2]", 5), ("outs[3]", 6),
        ("cache['k']", 7), ("cache['1']", 8), ("cache['v']", 9), ("cache[(1, 'w')]", 10),
    ]  # fmt: skip


def test_items_one_level_deeper_and_no_deeper(watching):
    with watching() as seen:
        states = []
        states.append((box(0), {"c": box(1)}))
        deep = [[[box(2)]]]
    assert pairs(seen) == [("states[0][0]", 0)]
    assert deep


def test_lists_on_self_and_in_globals(watching):
    class Net:
        def __init__(self):
            self.outs = []

        def forward(self, x):
            self.outs.append(x)
            GLOBAL_OUTS.append(x)

    with watching() as seen:
        net = Net()
        net.forward(box(1))
        net.forward(box(2))
    GLOBAL_OUTS.clear()
    assert pairs(seen) == [
        ("x", 1), ("self.outs[0]", 1), ("GLOBAL_OUTS[0]", 1), ("x", 2), ("self.outs[1]", 2), ("GLOBAL_OUTS[1]", 2),
    ]  # fmt: skip


GLOBAL_OUTS: list[np.ndarray] = []


def test_appends_beyond_the_first_items_and_after_a_pop(watching):
    with watching() as seen:
        outs = []
        for value in range(100):
            outs.append(box(value))
        outs.pop()
        outs.append(box(-1))
    assert names(seen) == [f"outs[{k}]" for k in range(100)] + ["outs[99]"]


def test_a_list_that_another_function_fills_is_named_when_its_owner_returns(watching):
    def fill(target):
        target.append(box(1))

    def owner():
        outs = []
        fill(outs)
        return len(outs)

    with watching() as seen:
        owner()
    assert pairs(seen) == [("target[0]", 1), ("outs[0]", 1)]


def test_comprehensions(watching):
    def model(xs):
        hs = [x + 1 for x in xs]
        table = {k: h + 1 for k, h in enumerate(hs)}
        last = [acc := h + 10 for h in hs][-1]
        return last, acc, table

    with watching() as seen:
        model((box(0), box(1)))
    found = [pair for pair in pairs(seen) if "()" not in pair[0]]
    assert [pair for pair in found if pair[0] == "x"] == [("x", 0), ("x", 1)]
    assert [pair for pair in found if pair[0].startswith("hs")] == [("hs[0]", 1), ("hs[1]", 2)]
    assert [pair for pair in found if pair[0].startswith("table")] == [("table[0]", 2), ("table[1]", 3)]
    assert [pair for pair in found if pair[0] == "acc"] == [("acc", 11), ("acc", 12)]
    assert {b.function.rpartition(".")[2] for b in seen} == {"model"}


def test_generator_expressions_generators_and_send(watching):
    def steps(h):
        for _ in range(3):
            h = h + 1
            yield h

    with watching() as seen:
        total = sum((int(h[0]) for h in steps(box(0))), 0)
    assert total == 6
    inside = [b.object.item() for b in seen if b.name == "h" and b.function.endswith("steps")]
    assert inside == [0, 1, 2, 3]
    assert [b.object.item() for b in seen if b.name == "steps()"] == [1, 2, 3]


def test_a_generator_that_began_before_the_watch(watching):
    def steps(h):
        while True:
            h = h + 1
            yield h

    running = steps(box(0))
    next(running)
    with watching() as seen:
        next(running)
        next(running)
    next(running)
    assert pairs(seen) == [("h", 2), ("steps()", 2), ("h", 3), ("steps()", 3)]


def test_two_generators_in_turns_do_not_mix(watching):
    def steps(h, times):
        for _ in range(times):
            if times > 99: h = box(-1)  # noqa: E701
            yield None

    with watching() as seen:
        for _ in zip(steps(box(1), 3), steps(box(2), 3)):
            pass
    assert pairs(seen) == [("h", 1), ("h", 2)]


def test_recursion(watching):
    def power(x, n):
        for x in (x + 1,):  # noqa: B020
            if n:
                power(x, n - 1)
        return None

    with watching() as seen:
        power(box(0), 2)
    assert pairs(seen) == [("x", 0), ("x", 1), ("x", 1), ("x", 2), ("x", 2), ("x", 3)]


def test_lambdas_and_class_bodies(watching):
    with watching() as seen:
        double = lambda x: x + x
        y = double(box(1))

        class Holder:
            inside = box(5)

    assert pairs(seen) == [("x", 1), ("y", 2), ("inside", 5)]
    assert seen[2].function.endswith("Holder")


def test_a_script_at_top_level(watching):
    source = "x = make(1)\nfor k in range(2):\n    x = x + 1\ndef f():\n    global y\n    y = x + 5\nf()\nouts = [x]\n"
    with watching() as seen:
        exec(compile(source, "/home/someone/script.py", "exec"), {"make": box})
    assert pairs(seen) == [("x", 1), ("x", 2), ("x", 3), ("y", 8), ("outs[0]", 3)]
    assert [str(b.where) for b in seen] == [f"script.py:{line}" for line in (1, 3, 3, 6, 8)]


def test_a_huge_namespace_costs_nothing(watching):
    asked = {"times": 0}

    def counting(value):
        asked["times"] += 1
        return isinstance(value, np.ndarray)

    space = {"Watcher": Watcher, "is_box": counting, "on_bind": lambda binding: None}
    space |= {f"v{k}": box(k) for k in range(20_000)}
    source = "with Watcher(is_box, on_bind):\n    v1 = v2\n    y = v3\n"
    exec(compile(source, "/home/someone/script.py", "exec"), space)
    assert asked["times"] < 200


def test_names_that_meant_a_tensor_before_the_block():
    x, unused, n = box(1), box(2), 3
    seen = visible_tensors(sys._getframe(), is_box)
    assert list(seen) == ["x"]
    assert seen["x"] is x
    assert n == 3


# Where


def test_each_binding_knows_the_line_that_made_it(watching):
    def f(x):
        h = (
            x
            + 1
        )
        return h

    first = f.__code__.co_firstlineno
    with watching() as seen:
        f(box(1))
    assert [(b.name, b.where.line - first) for b in seen] == [("x", 0), ("h", 1), ("f()", 5)]
    assert seen[1].where.text == "h = ("
    assert seen[1].where.function.endswith("f")


def test_libraries_are_not_watched(watching):
    import collections

    with watching() as seen:
        pairs_of = collections.OrderedDict(a=box(1))
        pairs_of.setdefault("b", box(2))
        sorted([box(1), box(2)], key=lambda array: array[0])
    assert [name for name in names(seen) if name not in ("array",)] == ["pairs_of['a']", "pairs_of['b']"]


def test_functions_behind_every_attribute_are_not_watched(watching):
    class Config:
        def __getattribute__(self, name):
            inside = box(1)
            return inside if name == "width" else object.__getattribute__(self, name)

    with watching() as seen:
        width = Config().width
    assert (names(seen), width[0]) == (["width"], 1)


# What goes wrong


def test_an_exception_goes_through_and_what_was_bound_before_it_is_known(watching):
    def fails(x):
        h = x + 1
        raise ValueError(h)

    with pytest.raises(ValueError, match="2"):
        with watching() as seen:
            a = box(1)
            fails(a)
    assert pairs(seen) == [("a", 1), ("x", 1), ("h", 2)]


def test_bindings_in_handlers_and_finally(watching):
    def f(x):
        try:
            y = x + 1
            raise KeyError
        except KeyError:
            y = x + 2
        finally:
            z = x + 3
        return y[0] + z[0]

    with watching() as seen:
        f(box(0))
    assert pairs(seen) == [("x", 0), ("y", 1), ("y", 2), ("z", 3)]


def test_keyboard_interrupt_inside_the_block_restores_everything(watching):
    with pytest.raises(KeyboardInterrupt):
        with watching():
            raise KeyboardInterrupt
    with watching() as seen:
        h = box(1)
    assert (names(seen), h[0]) == (["h"], 1)


def test_keyboard_interrupt_inside_the_watcher_restores_everything():
    def interrupting(binding):
        raise KeyboardInterrupt

    def tracer(frame, event, arg):
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(KeyboardInterrupt):
            with Watcher(is_box, interrupting):
                h = box(1)
                del h
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_a_proxy_that_refuses_to_be_looked_at(watching):
    class Proxy:
        @property
        def __class__(self):
            raise RuntimeError("not now")

    with watching() as seen:
        p = Proxy()
        h = box(1)
    assert names(seen) == ["h"]
    del p


def test_no_tensor_is_kept_alive():
    gone = []
    watcher = Watcher(is_box, lambda binding: None)
    with watcher:
        h = box(1)
        outs = [h]
        reference = weakref.ref(h)
        del h
        outs.clear()
        gone.append(reference() is None)
    assert gone == [True]


def test_nothing_of_a_watch_waits_for_the_garbage_collector():
    class Listener:
        def __call__(self, binding): ...

    def work(x):
        outs = []
        outs.append(x + 1)
        return [y + 1 for y in outs]

    gc.disable()
    try:
        listener = Listener()
        with Watcher(is_box, listener):
            work(box(1))
        gone = weakref.ref(listener)
        del listener
        assert gone() is None
    finally:
        gc.enable()


# Company


def test_nested_watchers_both_see_the_inner_block(watching):
    with watching() as outer:
        a = box(1)
        with watching() as inner:
            b = a + 1
        c = b + 1
    assert names(outer) == ["a", "b", "c"]
    assert names(inner) == ["b"]


def test_nested_watchers_in_a_called_function(watching):
    def f(x):
        with watching() as inner:
            y = x + 1
            g(y)
        return inner, y

    def g(z):
        return z

    with watching() as outer:
        inner, y = f(box(0))
    assert names(inner) == ["y", "z", "g()"]
    assert names(outer) == ["x", "y", "z", "g()", "f()[1]", "y"] or names(outer)[:4] == ["x", "y", "z", "g()"]


def test_watchers_that_end_in_the_wrong_order(watching):
    first, second = watching(), watching()
    seen_first = first.__enter__()
    seen_second = second.__enter__()
    a = box(1)
    first.__exit__(None, None, None)
    b = box(2)
    second.__exit__(None, None, None)
    c = a + b
    sys.settrace(sys.gettrace())
    assert names(seen_first) == ["a"]
    assert names(seen_second) == ["a", "b"]


def test_other_threads_are_neither_seen_nor_touched(watching):
    traces, wait, go = [], threading.Event(), threading.Event()

    def work():
        traces.append(sys.gettrace())
        wait.set()
        go.wait()
        h = box(1)
        traces.append(sys.gettrace())
        return h

    with watching() as seen:
        thread = threading.Thread(target=work)
        thread.start()
        wait.wait()
        x = box(2)
        go.set()
        thread.join()
    assert names(seen) == ["x"]
    assert traces[0] is traces[1]


def test_two_threads_watch_at_once(watching):
    found = {}

    def work(key):
        with watching() as seen:
            for _ in range(200):
                h = box(key)
        found[key] = (seen, h)

    threads = [threading.Thread(target=work, args=(key,)) for key in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key, (seen, _) in found.items():
        assert pairs(seen) == [("h", key)] * 200


def recorder(log, wanted="line"):
    def tracer(frame, event, arg):
        if frame.f_code.co_filename == __file__ and event == wanted:
            log.append((frame.f_code.co_name, frame.f_lineno))
        return tracer

    return tracer


@pytest.mark.parametrize("event", ["call", "line", "return", "exception", "opcode"])
def test_a_trace_function_gets_the_events_it_would_have_had(watching, event):
    def work(x):
        y = x + 1; y = y + 1  # noqa: E702
        with contextlib.suppress(KeyError):
            raise KeyError
        return [y + k for k in range(2)]

    def traced(log):
        sys.settrace(recorder(log, event))
        try:
            work(box(1))
        finally:
            sys.settrace(before)

    before = sys.gettrace()
    alone, together = [], []
    traced(alone)
    sys.settrace(recorder(together, event))
    try:
        with watching() as seen:
            work(box(1))
        installed = sys.gettrace()
    finally:
        sys.settrace(before)
    assert "y" in names(seen)
    assert installed.__qualname__ == "recorder.<locals>.tracer"
    # `traced` itself calls nothing but `work`; the block also belongs to this function
    assert [entry for entry in together if entry[0] in ("work", "<listcomp>", "__add__")] == [
        entry for entry in alone if entry[0] in ("work", "<listcomp>", "__add__")
    ]


def test_the_local_trace_function_of_a_waiting_frame_comes_back(watching):
    log = []
    tracer = recorder(log)
    frame, before, before_local = sys._getframe(), sys.gettrace(), sys._getframe().f_trace
    sys.settrace(tracer)
    frame.f_trace = tracer
    with watching() as seen:
        h = box(1)
    inside = len(log)
    after = box(2)
    local = frame.f_trace
    sys.settrace(before)
    frame.f_trace = before_local
    assert local is tracer
    assert names(seen) == ["h"]
    assert inside >= 2
    assert len(log) > inside


def test_a_tracer_that_puts_itself_back_in_place_does_not_end_the_watch(watching):
    """coverage's C tracer does so whenever it is called from Python."""
    calls = []

    class Stubborn:
        def __call__(self, frame, event, arg):
            calls.append(event)
            if event == "call":
                sys.settrace(self)
            return self

    def f(x):
        return x + 1

    stubborn, before = Stubborn(), sys.gettrace()
    sys.settrace(stubborn)
    try:
        with watching() as seen:
            y = f(box(1))
            z = f(y)
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert names(seen)[:3] == ["x", "f()", "y"]
    assert "z" in names(seen)
    assert after is stubborn
    assert calls.count("call") >= 2


def test_a_tracer_that_lets_go_inside_the_block_stays_gone(watching):
    def tracer(frame, event, arg):
        if frame.f_code.co_name == "last":
            sys.settrace(None)
            return None
        return tracer

    def last(x):
        return x + 1

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with watching() as seen:
            y = last(box(1))
            z = y + 1
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after is None
    assert names(seen) == ["x", "last()", "y", "z"]


def test_a_debugger_started_inside_the_block_is_left_in_place(watching):
    def tracer(frame, event, arg):
        return None

    before = sys.gettrace()
    with watching():
        sys.settrace(tracer)
    after = sys.gettrace()
    sys.settrace(before)
    assert after is tracer


def test_a_debugger_steps_through_a_watched_block(watching):
    class Quiet(bdb.Bdb):
        def user_line(self, frame):
            lines.append(frame.f_code.co_name)
            self.set_step()

    def work(x):
        y = x + 1
        return y

    before, lines = sys.gettrace(), []
    debugger = Quiet()
    try:
        debugger.reset()
        sys.settrace(debugger.trace_dispatch)
        with watching() as seen:
            work(box(1))
        kept = sys.gettrace()
    finally:
        sys.settrace(before)
    assert kept == debugger.trace_dispatch
    assert names(seen) == ["x", "y", "work()"]
    assert lines.count("work") == 2


# torch


def test_torch_a_recurrence_with_a_cell_function():
    torch = pytest.importorskip("torch")

    def cell(x, hc):
        h, c = hc
        i = torch.sigmoid(x + h)
        c2 = torch.tanh(x) * i + c
        return torch.tanh(c2) * i, c2

    def model(x):
        h = torch.zeros(3)
        c = torch.zeros(3)
        outs = []
        for t in range(4):
            h, c = cell(x[t], (h, c))
            outs.append(h)
        y = torch.stack(outs)
        return y

    bindings = Bindings()
    with Watcher(lambda value: isinstance(value, torch.Tensor), bindings.add):
        y = model(torch.randn(4, 3))
    assert bindings["y"].object is y
    assert len(bindings.all("model.h")) == 5
    assert len(bindings.all("h")) == 5
    assert len(bindings.all("cell.i")) == 4
    assert bindings["h", 4].object is bindings["outs[3]"].object


def test_torch_modules_are_seen_and_torch_itself_is_not():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.register_buffer("state", torch.zeros(3))

        def forward(self, x):
            h = self.linear(x).relu()
            self.state = h.detach()
            return h.sum()

    net, bindings = Net(), Bindings()
    with Watcher(lambda value: isinstance(value, torch.Tensor), bindings.add):
        loss = net(torch.ones(3))
    assert [name.rpartition("Net.")[2] for name in bindings] == ["x", "h", "self.state", "forward()", "loss"]
    assert bindings["self.state"].object is net.state
    assert bindings["Net.forward.h"].shape == (3,)
    assert bindings["loss"].object is loss
    gc.collect()
