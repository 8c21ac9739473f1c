"""Any scalar of named values, found again in every run: an element, a sum of elements, a weighted sum of such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._core.value import Value
from wrt._notation.d import d
from wrt._notation.trace import Handle, Trace
from wrt._study.tensors import Numbers, numbers
from wrt.errors import NotATensor, NotRecorded

Finder = Callable[[Trace], Handle]


@dataclass(frozen=True, slots=True)
class Target:
    """Terms of a weighted sum; each finds its handle in a new run. A handle of many elements stands for their sum."""

    terms: tuple[tuple[float, Finder], ...]
    words: str

    def value(self, run: Trace) -> float:
        return float(sum(weight * numbers(find(run)).astype(np.float64).sum() for weight, find in self.terms))

    def gradient(self, run: Trace, x: Handle) -> Numbers:
        """With respect to a handle of the same run, in its shape; one pull for each term."""
        total = np.zeros(x.shape)
        for weight, find in self.terms:
            handle = find(run)
            total = total + numbers(np.full(handle.shape, weight) @ (d(handle) / d(x))).astype(np.float64)
        return total


def target(asked: Any) -> Target:
    """Read what a user may mean by a target: a handle, a name, a function of the run, or weights of handles."""
    if isinstance(asked, Mapping):
        terms = tuple((float(weight), finder(one)) for one, weight in asked.items())
        return Target(terms, " + ".join(f"{weight:g} {_words(one)}" for one, weight in asked.items()))
    return Target(((1.0, finder(asked)),), _words(asked))


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
    for before, now in zip(_leaves(recording.output), _leaves(run.output)):
        if isinstance(before, Value) and recording.same(before, value):
            return _with(now, elements)
    for before, now in zip(_leaves(recording.inputs), _leaves(run.inputs)):
        if isinstance(before, Value) and recording.same(before, value):
            return _with(now, elements)
    if not value.name:
        raise NotRecorded(
            "the target has no name", "it cannot be found in another run", "bind it to a variable, or use wrt.tap"
        )
    bindings = recording.names.all(value.name)
    time = next((k for k, one in enumerate(bindings) if recording.same(recording.bound(one), value)), -1)
    return _with(run[value.name, time], elements)


def _with(handle: Handle, elements: Any) -> Handle:
    return Handle(handle._recording, handle._value, elements)


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, Mapping):
        for one in tree.values():
            yield from _leaves(one)
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from _leaves(one)
    else:
        yield tree


def _handle(found: Any) -> Handle:
    """One handle: of a container, the first that has one."""
    for leaf in _leaves(found):
        if isinstance(leaf, Handle):
            return leaf
    raise NotATensor("the run gave no tensor", f"it gave a {type(found).__name__}", "name a value: t['h'][0]")


def _words(asked: Any) -> str:
    if isinstance(asked, Handle):
        _, elements = asked.__wrt_differential__()
        index = "" if elements.everything else f"[{_place(elements)}]"
        return f"{asked.name or 'output'}{index}"
    return asked if isinstance(asked, str) else "the target" if callable(asked) else f"output[{asked}]"


def _place(elements: Any) -> str:
    if elements.size == 1:
        return ", ".join(str(int(k)) for k in np.unravel_index(int(elements.positions[0]), elements.of))
    return f"{elements.size} elements"
