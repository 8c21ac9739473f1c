"""`wrt.trace(f, x)` and `with wrt.record() as t:`: a run that remembers names, lines and writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from inspect import unwrap
from math import prod
from pathlib import Path
from types import CellType, ModuleType
from typing import Any, NoReturn

import numpy as np

from wrt import _backends
from wrt._core.bindings import Bindings
from wrt._core.finding import Findings
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements, Shape
from wrt._core.protocol import Recording
from wrt._core.value import Value, stays_here
from wrt._core.where import Where
from wrt._names.peek import forget_locals
from wrt._notation.again import Again
from wrt.errors import NotATensor, NotRecorded, WrongShape


class Handle:
    """One value of a recorded run: index it to select elements, `d()` it to differentiate."""

    __slots__ = ("_elements", "_recording", "_value")

    def __init__(self, recording: Recording, value: Value, elements: Elements | None = None) -> None:
        self._recording = recording
        self._value = value
        self._elements = Elements.all(value.shape) if elements is None else elements

    def __wrt_differential__(self) -> tuple[Value, Elements]:
        return self._value, self._elements

    @property
    def name(self) -> str:
        return self._value.name

    @property
    def shape(self) -> Shape:
        return self._elements.shape

    @property
    def dtype(self) -> Any:
        return self._value.dtype

    @property
    def value(self) -> Any:
        """The numbers it had."""
        arrays = self._value.record.backend.arrays
        whole = self._recording.value(self._value)
        if self._elements.everything:
            return arrays.reshape(whole, self.shape)
        return arrays.reshape(arrays.take(arrays.reshape(whole, (-1,)), self._elements.positions, 0), self.shape)

    def numpy(self) -> Any:
        """The numbers it had, as a NumPy array."""
        return self._value.record.backend.arrays.numpy(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.numpy(), dtype=dtype)

    def __float__(self) -> float:
        if prod(self.shape) != 1:
            raise WrongShape(
                f"float() of {self.name or 'a value'} of shape {self.shape}", "it is not one number",
                f"pick one: float({self.name or 't.output'}[{', '.join('0' * len(self.shape))}])",
            )  # fmt: skip
        return float(self.numpy().reshape(()))

    @property
    def line(self) -> Where | None:
        """The user's line that made it."""
        return self._recording.where(self._value)

    @property
    def writes(self) -> list[Write]:
        """In-place writes of its memory, in order: which, where, what region."""
        return self._recording.writes(self._value)

    def at(self, k: int) -> Handle:
        """The same elements after k writes; `.at(0)` is before the first."""
        value, elements = self._recording.at(self._value, k)
        return Handle(self._recording, value, elements)

    def __getitem__(self, index: Any) -> Handle:
        return Handle(self._recording, self._value, self._elements.pick(index))

    def __copy__(self) -> Handle:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Handle:
        return self

    def __reduce__(self) -> NoReturn:
        raise stays_here("a handle")

    def __repr__(self) -> str:
        where = f" at {self.line}" if self.line else ""
        return f"{self.name or 'tensor'}  shape {self.shape}, {_dtype_words(self.dtype)}{where}"


class Trace:
    """One recorded run. `t["h"]` finds values by the user's own names and module paths."""

    def __init__(self, recordings: dict[str, Recording]) -> None:
        self._recordings = recordings
        self._only = next(iter(recordings.values())) if len(recordings) == 1 else None
        self._known: dict[Value, Handle] = {}

    @property
    def _one(self) -> Recording:
        if self._only is not None:
            return self._only
        used = [recording for recording in self._recordings.values() if len(recording.names)]
        return used[-1] if used else next(iter(self._recordings.values()))

    def __getitem__(self, name: str | tuple[str, int]) -> Handle:
        found: Exception | None = None
        for recording in [self._one, *self._recordings.values()]:
            try:
                binding = recording.names[name]
            except KeyError as error:
                found = found or error
            else:
                return Handle(recording, recording.bound(binding))
        assert found is not None
        raise found

    @property
    def names(self) -> Bindings:
        """Every name: how often it was bound, shape, dtype, line."""
        return self._one.names

    @property
    def output(self) -> Any:
        """What f returned, with a handle in the place of every tensor."""
        one = self._one
        return self._handles(one, one.output)

    @property
    def inputs(self) -> list[Any]:
        """What f was given, with handles in the places of tensors."""
        one = self._one
        return [self._handles(one, each) for each in one.inputs]

    def _handles(self, one: Recording, tree: Any) -> Any:
        """A container of the run with a handle in the place of every tensor."""
        if type(tree) is not Value:
            return one.map_tree(tree, partial(Handle, one))
        known = self._known.get(tree)
        if known is None:
            known = self._known[tree] = Handle(one, tree)
        return known

    @property
    def graph(self) -> Graph:
        """The run as plain data: no tensors, no framework."""
        graph = self._one.graph
        if graph is None:
            raise NotRecorded("no graph was recorded", "the run is empty", "compute something inside the recording")
        return graph

    def line(self, made: Any) -> Where | None:
        """The user's line that made a tensor, a handle, or (torch) an autograd node."""
        return made.line if isinstance(made, Handle) else self._one.line_of(made)

    def why(self) -> Findings:
        """Everything that looks wrong in this run: parameters and inputs without a proper gradient, and the reason."""
        from wrt._why.survey import survey  # rarely asked, and not small

        return survey(self._one.evidence())

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON; `wrt.load_graph(path)` reads it without the framework."""
        self.graph.save(path)

    # ---------------------------------------------------------------- to look at

    def show(
        self, *, target: Any = None, source: Any = None, tokens: Sequence[str] = (), title: str = "",
        browser: bool = True, wait: bool | None = None, port: int = 0, token: str | None = None,
    ) -> Any:  # fmt: skip
        """Open the run as a page that computes what is clicked, on this machine alone.

        It opens at `target`, `t["conv2"][0, 5, 3, 3]`, by `source`; left out, at the output by the input. `tokens` are
        the words behind whole numbers that went in. In a script it waits until Ctrl-C, at a prompt it returns at once;
        `wait` says otherwise. `port` and `token` are random unless given.
        """
        options = {"tokens": tokens, "title": title, "browser": browser, "wait": wait, "port": port, "token": token}
        return _microscope().show(self, target=target, source=source, **options)

    def save_html(
        self, path: str | Path, *, rows: Sequence[Any] | None = None, by: Sequence[Any] = (),
        tokens: Sequence[str] = (), title: str = "", sources: bool = False, limit: str | int = "20 MB",
    ) -> Any:  # fmt: skip
        """Write the run as a page in one file, with derivatives computed beforehand; returns what it carries.

        `rows` are names, or handles with an index: `rows=["fc", t["conv2"][0, 5]]`; `by` what they are differentiated
        by. Left out, the output and the layers by the input, as far as `limit` allows. Lines of source only with
        `sources`.
        """
        return _microscope().save_html(
            self, path, rows=rows, by=by, tokens=tokens, title=title, sources=sources, limit=limit
        )

    def widget(
        self, *, target: Any = None, source: Any = None, tokens: Sequence[str] = (), title: str = ""
    ) -> Any:
        """The page in a notebook cell (Jupyter, VS Code, marimo); needs anywidget."""
        return _microscope().widget(self, target=target, source=source, tokens=tokens, title=title)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return _microscope().in_notebook(self, kwargs)

    def _display_(self) -> Any:
        return _microscope().in_marimo(self)

    def __copy__(self) -> Trace:
        return self  # a run happened once

    def __deepcopy__(self, memo: dict[int, Any]) -> Trace:
        return self

    def __reduce__(self) -> NoReturn:
        raise stays_here("a recording")

    def __repr__(self) -> str:
        graph = self.graph
        return f"Trace  {len(self.names)} names, {len(graph)} operations ({graph.framework})"


def trace(f: Callable[..., Any], *args: Any, values: bool = False, **kwargs: Any) -> Trace:
    """Run f once, for real, and remember it: names, lines, writes, cuts; with `values` also every number.

    >>> import torch
    >>> def f(x):
    ...     h = x * 3
    ...     return h**2
    >>> t = trace(f, torch.tensor(2.0))
    >>> from wrt import d
    >>> float(d(t.output) / d(t["h"]))
    12.0
    """
    backend = _backend_for(f, args, kwargs)
    try:
        recording = backend.trace(f, args, kwargs, **({"values": True} if values else {}))
    finally:
        forget_locals(sys._getframe(1))
    recording.again = Again(f, args, kwargs)
    return Trace({backend.name: recording})


@contextmanager
def record(**options: Any) -> Iterator[Trace]:
    """Remember what the block does with tensors, in every framework that is imported.

    >>> import torch
    >>> from wrt import d
    >>> with record() as t:
    ...     h = torch.zeros(4, dtype=torch.float64)
    ...     h[0] = 0.5
    ...     for k in range(1, 4):
    ...         h[k] = 3 * h[k - 1]
    >>> float(d(h)[3] / d(h)[1])
    9.0
    """
    with ExitStack() as stack:
        recordings: dict[str, Recording] = {}
        for backend in _backends.loaded():
            if "record" not in backend.capabilities():
                recordings[backend.name] = stack.enter_context(backend.record(**options))
        if not recordings:
            raise NotRecorded(
                "nothing to record",
                "neither torch nor tensorflow is imported, and JAX has no block recording",
                "import the framework first; in JAX write t = wrt.trace(f, x)",
            )
        t = Trace(recordings)
        try:
            yield t
        finally:
            del t, recordings, backend
            stack.close()
            forget_locals(sys._getframe(1))


def tap(name: str, tensor: Any) -> Any:
    """Give a tensor a name in the recording that is running; returns the tensor, and does nothing outside one."""
    backend = _backends.owner(tensor)
    if backend is not None:
        backend.tap(name, tensor, sys._getframe(1))
    return tensor


def load_graph(path: str | Path) -> Graph:
    """Read a graph that `Trace.save` wrote; needs no framework."""
    return Graph.load(path)


def _backend_for(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The framework of the function or, failing that, of what it is given."""
    if not callable(f):
        raise NotATensor(
            f"trace() of a {type(f).__name__}",
            "it cannot be called, so there is no run to record",
            "write wrt.trace(f, x) with a function or a model f, and what it is to be given",
        )
    backends = _backends.loaded()
    for backend in backends:
        if backend.owns(f):
            return backend
    for candidate in (*args, *kwargs.values()):
        for backend in backends:
            if backend.owns(candidate):
                return backend
            tree = backend.tree(candidate)
            if tree is not None and any(backend.owns(leaf) for leaf in tree[0]):
                return backend
    by_package = {backend.name: backend for backend in backends}
    for package in _packages(f):
        if package in by_package:
            return by_package[package]
    for candidate in _held(f):
        for backend in backends:
            package = candidate.__name__.split(".")[0] if isinstance(candidate, ModuleType) else ""
            if package == backend.name or (not package and backend.owns(candidate)):
                return backend
    numbers = any(isinstance(given, (float, complex)) for given in (*args, *kwargs.values()))
    able = [backend for backend in backends if numbers and backend.takes_numbers]
    if len(able) == 1 or len(backends) == 1:
        return (able or backends)[0]
    raise NotATensor(
        "trace() of a function whose framework is not known",
        f"none of its {len(args) + len(kwargs)} arguments is a tensor, and {len(backends)} frameworks are imported",
        "give it tensors as arguments, or use `with wrt.record() as t:`",
    )


def _packages(f: Any) -> list[str]:
    """Where a function that a framework offers or wraps (`jnp.tanh`, `jax.jit(f)`) comes from, the package first."""
    named = (getattr(f, "__module__", None), type(f).__module__)
    return [name.split(".")[0].removesuffix("lib") for name in named if isinstance(name, str)]


def _held(f: Any) -> list[Any]:
    """What a function without arguments works on: what it closes over, and the globals it names."""
    f = f.func if isinstance(f, partial) else unwrap(f)
    code = getattr(f, "__code__", None)
    if code is None:
        return []
    cells = [cell.cell_contents for cell in f.__closure__ or () if cell != CellType()]
    return cells + [f.__globals__[name] for name in code.co_names if name in f.__globals__]


def _microscope() -> Any:
    """The layer above, by name: imports still only go down, and a run that nobody looks at does not load it."""
    return import_module("wrt._microscope.open")


def _dtype_words(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.").removeprefix("<dtype: '").removesuffix("'>")

