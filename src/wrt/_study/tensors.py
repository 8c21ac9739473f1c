"""Values of a run that is of no particular framework: their numbers, their names, and how to find them in another run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from wrt import _backends
from wrt._core.graph import downstream, upstream
from wrt._core.value import Value
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle, Trace
from wrt.errors import NotATensor, NotRecorded, WrtError

Numbers = npt.NDArray[Any]
Finder = Callable[[Trace], Handle]
"""Finds a value in any run of the same program."""


def numbers(obj: Any) -> Numbers:
    """The numbers of a handle, a Derivative, a tensor of any framework, or what NumPy makes of anything else.

    >>> numbers([1.0, 2.0]).tolist()
    [1.0, 2.0]
    """
    if isinstance(obj, Derivative):
        return obj.numpy()
    tensor = obj.value if isinstance(obj, Handle) else obj
    backend = _backends.owner(tensor)
    return np.asarray(tensor) if backend is None else backend.arrays.numpy(tensor)


def tensor_like(array: Numbers, handle: Handle) -> Any:
    """Numbers as a tensor of the handle's framework, in its dtype, where it lives."""
    value, _ = handle.__wrt_differential__()
    return value.record.backend.arrays.native(array, value)


def precision(handle: Handle) -> float:
    """Machine epsilon of the dtype in which the handle's derivatives are computed."""
    value, _ = handle.__wrt_differential__()
    return value.record.backend.arrays.precision(value)


def is_float(handle: Any) -> bool:
    """Whether a handle has floating-point numbers, in the words of any framework."""
    return "float" in str(handle.dtype).lower()


def named(answers: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a tree with its path."""
    if isinstance(answers, Mapping):
        for key, one in answers.items():
            yield from named(one, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(answers, (list, tuple)):
        for place, one in enumerate(answers):
            yield from named(one, f"{prefix}[{place}]")
    else:
        yield prefix or "x", answers


def tensors_of(run: Trace, handle: Handle) -> set[int]:
    """Which tensor of the graph a handle is; empty where the run did not use it."""
    value, _ = handle.__wrt_differential__()
    number = handle._recording.numbered(value)
    return set() if number is None or number not in run.graph.tensors else {number}


def handle_of(run: Trace, tensor: int) -> Handle | None:
    """The handle of one tensor of the graph, by any of its names; None where it has none."""
    for name in run.graph.tensors[tensor].names:
        try:
            bindings = run.names.all(name)
        except WrtError:
            continue
        for k in range(len(bindings)):
            handle = run[name, k]
            if tensors_of(run, handle) == {tensor}:
                return handle
    return None


def narrow_places(run: Trace, x: set[int], y: set[int]) -> list[int]:
    """Tensors through which everything from x to y passes, in the order of the run.

    After each operation, count the tensors that come from x and are still read on the way to y: one alone is narrow.
    """
    graph = run.graph
    on_the_way = downstream(graph, *x) & upstream(graph, *y)
    last_read = dict.fromkeys(on_the_way & y, len(graph))
    for node in graph:
        if on_the_way.intersection(node.outputs):
            for read in on_the_way.intersection(node.inputs):
                last_read[read] = max(last_read.get(read, -1), node.id)
    found: list[int] = []
    alive = {tensor for tensor in x if tensor in last_read}
    for node in graph:
        alive |= {made for made in node.outputs if made in last_read}
        alive = {tensor for tensor in alive if last_read[tensor] > node.id}
        if len(alive) == 1 and (only := next(iter(alive))) not in found and only not in x:
            found.append(only)
    return found


def finder(asked: Any) -> Finder:
    """How to find a value in another run."""
    if isinstance(asked, Handle):
        return lambda run: again(asked, run)
    if isinstance(asked, str):
        return lambda run: run[asked]
    if callable(asked):
        return lambda run: _handle(asked(run))
    if asked is None or isinstance(asked, (int, slice, tuple, list, np.ndarray, type(...))):
        return lambda run: _handle(run.output)[... if asked is None else asked]
    raise NotATensor(
        f"a {type(asked).__name__} is not a value of a run",
        "a target is found again in every run, so a bare tensor cannot stand for it",
        'write t["fc2"][0, 10] with t = wrt.trace(model, x), an index of the output, or lambda t: t["fc2"][0, 10]',
    )


def again(handle: Handle, run: Trace) -> Handle:
    """The same elements of the same value, in another run of the same program."""
    value, elements = handle.__wrt_differential__()
    recording = handle._recording
    for then, now in ((recording.output, run.output), (recording.inputs, run.inputs)):
        for (_, before), (_, after) in zip(named(then), named(now)):
            if isinstance(before, Value) and recording.same(before, value):
                return _with(after, elements)
    if not value.name:
        raise NotRecorded(
            "the target has no name", "it cannot be found in another run", "bind it to a variable, or use wrt.tap"
        )
    bindings = recording.names.all(value.name)
    time = next((k for k, one in enumerate(bindings) if recording.same(recording.bound(one), value)), -1)
    return _with(run[value.name, time], elements)


def _with(handle: Handle, elements: Any) -> Handle:
    return Handle(handle._recording, handle._value, elements)


def _handle(found: Any) -> Handle:
    """One handle: of a container, the first that has one."""
    for _, leaf in named(found):
        if isinstance(leaf, Handle):
            return leaf
    raise NotATensor("the run gave no tensor", f"it gave a {type(found).__name__}", "name a value: t['h'][0]")
