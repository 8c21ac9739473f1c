"""The user's own names: variables outside `jit` by their stand-ins, variables inside by the tracers JAX used there.

JAX reads a jitted function or a loop body once and keeps what it read. The names seen while it was read are kept with
it, and given to the arrays of every call, and of every iteration.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.models import named_arrays
from wrt._backends.jax.program import Var
from wrt._backends.jax.recorder import Recorded, Recorder
from wrt._core.bindings import Binding, Bindings
from wrt._core.where import user_frame
from wrt._names.settrace import CLOSED
from wrt._names.watch import Watcher

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord

Inner = list[tuple[Any, Binding]]  # a variable of a jaxpr, and what bound a name to it; in order

_KNOWN: weakref.WeakKeyDictionary[Any, Inner] = weakref.WeakKeyDictionary()


class Names:
    """Collects bindings while the function runs."""

    def __init__(self, record: JaxRecord) -> None:
        self.record = record
        self.bindings = Bindings()
        self._inside: dict[int, list[tuple[Any, Binding]]] = {}
        self._of: dict[Var, set[str]] = {}

    def watching(self) -> AbstractContextManager[Any]:
        return Watcher(lambda thing: isinstance(thing, compat.Tracer), self._bound)

    def _bound(self, binding: Binding) -> None:
        thing = binding.object
        while thing is not None and not isinstance(thing, (Recorded, compat.JitTracer)):
            thing = compat.underneath(thing)
        if isinstance(thing, Recorded):
            if thing.recorder is self.record.recorder:
                self.add(binding, thing.stands_for)
        elif thing is not None:
            self._inside.setdefault(id(thing.val), []).append((thing.val, binding))

    def add(self, binding: Binding, var: Var) -> None:
        self.bindings.add(replace(binding, object=self.record.value_of(var)))
        self._of.setdefault(var, set()).add(binding.name)

    def tap(self, name: str, thing: Any, frame: Any) -> None:
        """Name an array by hand."""
        self._bound(Binding(name, thing, frame.f_code, frame.f_lasti, len(self._of)))

    def called(self, path: str, made: Any) -> None:
        """A part of a model returned."""
        for place, leaf in jax.tree_util.tree_flatten_with_path(made)[0]:
            self._here(path + jax.tree_util.keystr(place), leaf)

    def parameters(self, trees: Sequence[Any]) -> None:
        """The arrays of the models that go in, by their paths."""
        for tree in trees:
            for path, leaf in named_arrays(tree):
                self._here(path, leaf)

    def _here(self, name: str, thing: Any) -> None:
        frame = user_frame()
        if isinstance(thing, compat.Tracer) and frame is not None:
            self.tap(name, thing, frame)

    def inside(self, jaxpr: Any) -> Inner:
        """The names of the variables of a jaxpr, in the order they were bound when it was read."""
        known = _KNOWN.get(jaxpr)
        if known is None:
            found = [
                (var, replace(binding, object=None))
                for var in _variables(jaxpr)
                for seen, binding in self._inside.get(id(var), ())
                if seen is var
            ]
            known = sorted(found, key=lambda pair: pair[1].sequence)
            _KNOWN[jaxpr] = known
        return known

    def inlined(self, jaxpr: Any, env: Mapping[Any, Var]) -> None:
        """A call was replaced by what it contains: its variables are arrays of the run now."""
        for var, binding in self.inside(jaxpr):
            if var in env:
                self.add(binding, env[var])

    def of(self, var: Var) -> set[str]:
        """Every name a Var was bound to."""
        return self._of.get(var, set())


def _variables(jaxpr: Any) -> Iterator[Any]:
    yield from jaxpr.constvars
    yield from jaxpr.invars
    for eqn in jaxpr.eqns:
        yield from eqn.outvars


# ---------------------------------------------------------------- functions of JAX's own

# A jitted function of JAX's own is read when it is first called: thousands of calls, none of them the user's. The watch for
# names is off from there until the recorder is given it as an operation.

PLAIN = (bool, int, float, complex, str, type(None), np.generic, np.ndarray, np.dtype, jax.Array)
"""What calls nothing of the user's when it is used, and neither does a tuple of it."""


def _calls_its_own(frame: FrameType) -> bool:
    """Whether a function of JAX's own is called and recorded, given nothing that could call the user's code."""
    called, given, words = (frame.f_locals.get(name) for name in ("fun", "args", "kwargs"))
    if not isinstance(compat.CONTEXT.trace, Recorder) or not isinstance(called, FunctionType):
        return False
    of_jax = called.__module__.startswith("jax.") and called.__closure__ is None  # a transformed function holds on to another
    return of_jax and _plain((*(given or ()), *(words or {}).values()))


def _plain(thing: Any) -> bool:
    return all(map(_plain, thing)) if type(thing) in (tuple, list) else isinstance(thing, PLAIN)


if compat.CALLS is not None:
    CLOSED[compat.CALLS] = _calls_its_own
