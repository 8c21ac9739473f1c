"""Running a traced function once more: whether y moves with an x that no path leads from, and what a run must not change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import numpy as np

from wrt import _backends
from wrt._core.protocol import Recording
from wrt._core.value import Value
from wrt.errors import NoPath


@contextmanager
def kept(*objects: Any) -> Iterator[None]:
    """Run models inside: running statistics and random states are afterwards what they were before."""
    with ExitStack() as stack:
        for one in _backends.loaded():
            stack.enter_context(_backends.part(one.name, "training").kept(objects))
        yield


class Again:
    """The function behind a recording, to be run at another x; what was found is kept for each y and x."""

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.f, self.given = f, (args, kwargs)
        self.known: dict[Any, str | NoPath] = {}

    def __call__(self, y: Value, x: Value) -> str | NoPath:
        """What to say of it; the error where y moves."""
        record = cast(Recording, y.record)
        key = record.numbered(y), record.numbered(x)
        if key not in self.known:
            self.known[key] = self._found(record, y, *key)
        return self.known[key]

    def _found(self, record: Recording, y: Value, output: int | None, source: int | None) -> str | NoPath:
        backend = record.backend
        tree = backend.tree(self.given)
        leaves, rebuild = tree if tree is not None else ([], lambda leaves: self.given)
        values = [record.find(leaf) if backend.owns(leaf) else None for leaf in leaves]
        at = [k for k, value in enumerate(values) if value is not None and record.numbered(value) == source]
        ends: list[Value] = []
        record.map_tree(record.output, ends.append)
        place = next((k for k, one in enumerate(ends) if record.numbered(one) == output), None)
        if not at or place is None or record.changes:
            why = record.changes or "y is not returned by it, or x was not given to it"
            return f"the function was not run again to see whether y moves: {why}"

        def run(step: float) -> Any:
            moved = list(leaves)
            for k in at:
                numbers, value = np.asarray(backend.arrays.numpy(leaves[k])), values[k]
                assert value is not None
                moved[k] = backend.arrays.from_numpy(numbers + step * (1 + np.abs(numbers)), value) if step else leaves[k]
            states = random.getstate(), np.random.get_state()
            try:
                with kept(self.f, *leaves):
                    args, kwargs = rebuild(moved)
                    found = self.f(*args, **kwargs)
            finally:
                random.setstate(states[0])
                np.random.set_state(states[1])
            whole = backend.tree(found)
            return np.array(backend.arrays.numpy(([found] if whole is None else [t for t in whole[0] if backend.owns(t)])[place]))

        try:
            here, there = run(0.0), run(2.0**-6)
            same = np.array_equal(here, np.asarray(backend.arrays.numpy(record.value(y))), equal_nan=True)
        except Exception as error:
            return f"the function could not be run again to see whether y moves: {type(error).__name__}"
        if not same:
            return "the function was run again, and gave another y at the same x: whether y moves with x is not known"
        if np.array_equal(here, there, equal_nan=True):
            return "the function was run once more at a moved x: y did not move"
        a, b = y.name or "y", "x"
        return NoPath(
            f"no gradient path from {b} to {a}",
            f"nothing that was recorded leads from {b} to {a}, yet {a} is another one where the function is run at a moved {b}",
            f"compute {a} by operations of the framework alone; wrt.options(run_again=False) leaves this check out",
        )
