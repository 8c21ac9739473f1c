"""The run as the page shows it: names of its values, a node for each in the user's modules and lines, pictures, a first view."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wrt._core.graph import Graph, Node, downstream, upstream
from wrt._core.where import Where
from wrt._microscope import encode
from wrt._notation.trace import Handle, Trace
from wrt._study.tensors import numbers
from wrt._why.causes import by_operation, causes, key
from wrt._why.paths import SHAPE_ONLY
from wrt.errors import WrtError


class Names:
    """Every value's names, the best first, and what each value is in the run; built once for a recording."""

    def __init__(self, t: Trace) -> None:
        self.t = t
        self.graph = graph = t.graph
        self.modules = _modules(graph)
        self._of: dict[int, list[str]] = {}
        self._number: dict[str, int] = {}
        for number, name in _texts(t):
            if number in graph.tensors and name not in self._number:
                self._number[name] = number
                self._of.setdefault(number, []).append(name)
        for number, found in self._of.items():
            leaf = graph.tensors[number].node is None
            found.sort(key=self._rank if leaf else lambda name: (*self._rank(name), len(name)))
        self.given: set[int | None] = {self.numbered(handle) for _, handle in ends(t.inputs, "inputs")}
        self._ends: dict[str, Handle] = {}
        for text, handle in (*ends(t.output, "output"), *ends(t.inputs, "inputs")):
            at = self.numbered(handle)
            if at is not None and at in graph.tensors and not self.of(at) and text not in self._number:
                self._ends[text] = handle
                self._number[text] = at
                self._of[at] = [text]

    def of(self, number: int) -> list[str]:
        return self._of.get(number, [])

    def best(self, number: int) -> str | None:
        found = self.of(number)
        return found[0] if found else None

    def handle(self, name: str) -> Handle:
        """The value itself: by its name, or as what the function gave where that has none."""
        return self._ends[name] if name in self._ends else self.t[name]

    def python(self, name: str) -> str:
        """How a user reaches it: `t["conv1"]`, `t.output[0]`."""
        return f"t.{name}" if name in self._ends else f"t[{_quote(name)}]"

    def number(self, name: str) -> int | None:
        """The value behind a text; None where the graph has no such value."""
        return self._number.get(name)

    def numbered(self, handle: Handle) -> int | None:
        """Which tensor of the graph a handle is."""
        return self.t._one.numbered(handle.__wrt_differential__()[0])

    def shape_and_dtype(self, number: int) -> tuple[tuple[int, ...], str]:
        """Of a variable of TensorFlow, which is a handle in the graph, what the handle stands for."""
        tensor, name = self.graph.tensors[number], self.best(number)
        if tensor.dtype != "resource" or name is None:
            return tensor.shape, tensor.dtype
        held = self.handle(name)
        return held.shape, str(held.dtype).removeprefix("<dtype: '").removesuffix("'>")

    def is_float(self, number: int) -> bool:
        return is_float(self.shape_and_dtype(number)[1])

    def kind(self, number: int) -> str:
        """What a value is in the run: an input, a parameter, a constant, the output of a module, any other value."""
        tensor, name = self.graph.tensors[number], self.best(number)
        if tensor.node is None:
            if number in self.given:
                return "input"
            if tensor.requires_grad and name is not None and (self.given or self._owned(name)):
                return "parameter"  # a function was given none of its parameters, a block of code has modules that own them
            return "input" if name is not None and number in self.graph.inputs and not self.given else "constant"
        node = self.graph.nodes[tensor.node]
        if node.op.startswith("Parameter") or (node.write is not None and name is not None and self._owned(name)):
            return "parameter"  # made, filled or updated within the run
        return "module-output" if name in self.modules else "value"

    def _owned(self, name: str) -> bool:
        owner, _, last = name.rpartition(".")
        return owner in self.modules or last in ("weight", "bias", "kernel", "gamma", "beta")

    def _rank(self, name: str) -> tuple[bool, bool, bool, bool]:
        """Module paths and variables bound once, then earlier meanings of a variable, then words of wrt's.

        What a function gave `f()` and what a module was given `fc.input` are such words. Of what went in the first name is
        the user's own, later ones are those of the functions it was handed to; of what was computed the shortest reads best.
        """
        return name.endswith(("()", ".input")), name.endswith("]"), "#" in name, name not in self.modules


def _quote(name: str) -> str:
    """A name as a Python text with double quotes, whatever is in it: a text of JSON is one of Python.

    >>> print(_quote('say "hi"'), _quote("conv1"))
    "say \\"hi\\"" "conv1"
    """
    return json.dumps(name, ensure_ascii=False)


def ends(tree: Any, text: str) -> Iterator[tuple[str, Handle]]:
    """What a function gave or was given, leaf by leaf, as it is written behind `t.`."""
    if isinstance(tree, Handle):
        yield text, tree
    elif isinstance(tree, Mapping):
        for key, one in tree.items():
            yield from ends(one, f"{text}[{_quote(key) if isinstance(key, str) else repr(key)}]")
    elif isinstance(tree, (list, tuple)):
        for place, one in enumerate(tree):
            yield from ends(one, f"{text}[{place}]")


def _modules(graph: Graph) -> set[str]:
    """Every module path of the run, and the paths around it."""
    found: set[str] = set()
    for node in graph:
        parts = node.module.split(".") if node.module else []
        found.update(".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
    return found


def _texts(t: Trace) -> Iterator[tuple[int, str]]:
    """Values and the texts for them, as `t[...]` would read them."""
    numbers: dict[int, int | None] = {}
    recording: Any = t._one
    for name in t.names:
        bindings = t.names.all(name)
        for k, binding in enumerate(bindings):
            key = id(binding.object)
            if key not in numbers:
                numbers[key] = recording.numbered(recording.bound(binding))
            number = numbers[key]
            if number is not None:
                yield number, name if k == len(bindings) - 1 else f"{name}#{k}"


# ---- one node for each value ----


def drawing(names: Names, *, sources: bool) -> dict[str, Any]:
    """The reply to `graph`; `sources` puts the user's lines into it."""
    graph, read = names.graph, _variables_read(names.graph)
    nodes = [_value(names, k, read, sources) for k in graph.tensors if k not in read]
    nodes += [_end(node, read, sources) for node in graph if not node.outputs and node.gradient == "cut"]
    return {"nodes": nodes, "modules": sorted(names.modules), "inputs": list(graph.inputs), "outputs": list(graph.outputs)}


def _value(names: Names, number: int, read: Mapping[int, int], sources: bool) -> dict[str, Any]:
    node, name, what = names.graph.producer(number), names.best(number), names.kind(number)
    shape, dtype = names.shape_and_dtype(number)
    given = () if node is None else node.inputs
    return {
        "id": number,
        "name": name,
        "names": names.of(number),
        "label": label(name, what) or (node.op if node is not None else "constant"),
        "op": "" if node is None else node.op,
        "kind": what,
        "module": _module(names, node, name, what),
        "shape": list(shape),
        "dtype": dtype,
        "inputs": list(dict.fromkeys(read.get(k, k) for k in given if k != number)),
        "gradient": "yes" if node is None else _gradient(node),
        "writes": node.write.k if node is not None and node.write is not None else 0,
        "ask": name is not None and is_float(dtype),
        **_place(node, sources),
    }


def _end(node: Node, read: Mapping[int, int], sources: bool) -> dict[str, Any]:
    """Where a number leaves the framework: an operation without a result."""
    return {
        "id": -1 - node.id, "name": None, "names": [], "label": node.op, "op": node.op, "kind": "value", "module": node.module,
        "shape": None, "dtype": "", "inputs": [read.get(k, k) for k in node.inputs], "gradient": "cut", "writes": 0,
        "ask": False, **_place(node, sources),
    }  # fmt: skip


def _module(names: Names, node: Node | None, name: str | None, what: str) -> str:
    """A value lies in the module that made it, a parameter in the one that owns it, an input in none."""
    if what == "module-output":
        return str(name)
    if node is not None:
        return node.module
    owner = (name or "").rpartition(".")[0]
    return owner if what == "parameter" and owner in names.modules else ""


def _place(node: Node | None, sources: bool) -> dict[str, Any]:
    where = None if node is None else node.where
    return {
        "line": None if where is None else where.line,
        "file": None if where is None else base_name(where),
        "function": None if where is None else where.function or None,
        "text": where.text if where is not None and sources else None,
        "finding": _blame(node) if node is not None and _gradient(node) == "cut" else None,
    }


def _gradient(node: Node) -> str:
    """Whether the gradient goes where the value goes; what reads only a shape passes neither."""
    return "none" if node.gradient == "cut" and key(node.op) in SHAPE_ONLY else node.gradient


def _blame(node: Node) -> dict[str, Any]:
    """The cut in a sentence; `why` says more where a question is about it."""
    slug = by_operation("stops").get(key(node.op), "")
    words = causes()[slug].means if slug else f"{node.op} passes the value on, and not the gradient"
    return {"cause": slug or "cut", "sentence": words, "line": None if node.where is None else node.where.line}


def _variables_read(graph: Graph) -> dict[int, int]:
    """What was read of a variable -> the variable: nobody wants to see the reading."""
    found = {}
    for node in graph:
        if node.op == "ReadVariableOp" and len(node.inputs) == 1:
            found.update(dict.fromkeys(node.outputs, node.inputs[0]))
    return found


def label(name: str | None, what: str) -> str:
    """A name as it is shown: which of its bindings is meant can be seen from the place in the graph.

    >>> label("x#2", "value"), label("stem.input", "input"), label("Net.forward.x", "input")
    ('x', 'input', 'x')
    """
    told = (name or "").split("#")[0].removesuffix("()")
    return told.rpartition(".")[2] if what == "input" else told


def is_float(dtype: str) -> bool:
    return any(word in dtype for word in ("float", "double", "half", "complex"))


def base_name(where: Where) -> str:
    """The file without its folders: no page says where on a machine it lies."""
    return str(where).rpartition(":")[0] or os.path.basename(where.file)


# ---- which picture fits a tensor ----


COLORS = frozenset((1, 3, 4))  # gray, color, color with transparency


@dataclass(frozen=True, slots=True)
class View:
    """A kind of picture, and which axis of the tensor is which in it; axes without a role get a slider."""

    kind: str
    rows: int | None = None
    columns: int | None = None
    channel: int | None = None
    batch: int | None = None
    tokens: int | None = None

    def to_dict(self) -> dict[str, Any]:
        axes = asdict(self)
        return {"view": axes.pop("kind"), "axes": axes}


def view(shape: Sequence[int], *, integer: bool = False, tokens: int = 0, last: bool = False, given: bool = False) -> View:
    """The picture for a shape.

    `tokens` is the length of the run's sequence of tokens (0: none), `last` where the framework puts channels, `given`
    whether this is what went in.

    >>> view((1, 8, 16, 16)).kind, view((1, 16, 16, 8), last=True).channel, view((10,)).kind
    ('planes', 3, 'series')
    >>> view((1, 12, 64), tokens=12)
    View(kind='tokens', rows=1, columns=2, channel=None, batch=0, tokens=1)
    """
    wide = [axis for axis, length in enumerate(shape) if length > 1]
    if not wide:
        return View("scalar")
    if tokens > 1 and tokens in shape:
        found = _along_tokens(shape, tokens)
        if found is not None:
            return found
    if len(shape) == 1:
        return View("series", columns=0)
    if len(shape) == 2:
        return View("series" if len(wide) == 1 and not integer else "matrix", rows=0, columns=1)
    return _planes(shape, last, given)


def _along_tokens(shape: Sequence[int], tokens: int) -> View | None:
    """Sequences: (T,), (N, T), (N, T, D), (T, D), (N, heads, T, T)."""
    rank = len(shape)
    if rank >= 2 and shape[-1] == shape[-2] == tokens:
        lead = rank - 2
        return View(
            "planes" if lead else "matrix", rank - 2, rank - 1,
            rank - 3 if lead else None, 0 if lead > 1 else None, rank - 2,
        )  # fmt: skip
    at = next((axis for axis in range(min(rank, 2)) if shape[axis] == tokens), None)
    if at is None:
        at = rank - 2 if rank >= 2 and shape[rank - 2] == tokens else None
    if at is None or rank - at > 2:
        return None
    batch = 0 if at >= 1 else None
    if at == rank - 1:
        return View("tokens", columns=at, batch=batch, tokens=at)
    return View("tokens", at, rank - 1, at - 1 if at > 1 else None, batch, at)


def _planes(shape: Sequence[int], last: bool, given: bool) -> View:
    """Images and feature maps: planes of rows and columns, one for each channel."""
    rank = len(shape)
    if _channels_last(shape[-3:], last):
        rows, columns, channel = rank - 3, rank - 2, rank - 1
    else:
        rows, columns, channel = rank - 2, rank - 1, rank - 3
    batch = 0 if rank > 3 else None
    image = given and shape[channel] in COLORS and min(shape[rows], shape[columns]) > 1
    flat = rank == 3 and shape[channel] == 1
    return View("image" if image else "matrix" if flat else "planes", rows, columns, channel, batch)


def _channels_last(three: Sequence[int], last: bool) -> bool:
    """Where the channels of (a, b, c) stand: squares and few colors give it away, otherwise the framework's habit."""
    first_square, last_square = three[1] == three[2], three[0] == three[1]
    if first_square != last_square:
        return last_square
    if (three[0] in COLORS) != (three[2] in COLORS):
        return three[2] in COLORS
    return last


# ---- the first view ----


@dataclass(frozen=True, slots=True)
class Start:
    """The first view: names of values, and the run's tokens where it has any."""

    title: str
    target: str | None
    source: str | None
    index: list[int] | None
    targets: list[str]
    sources: list[str]
    tokens: list[int] | None
    after: frozenset[int]
    note: str | None


def start(names: Names) -> Start:
    """Outputs and what follows from everything are targets; inputs and whatever goes on to them are sources."""
    graph = names.graph
    floats = {k: name for k in graph.tensors if (name := names.best(k)) and names.is_float(k)}
    used = {k for node in graph for k in node.inputs}
    made = [k for k in floats if graph.tensors[k].node is not None]
    tokens, token_ids = _tokens(names)
    target = _target(names, made)
    source = _source(names, list(floats), target, token_ids)
    order = {k: {"input": 0, "module-output": 1, "value": 1, "parameter": 2}.get(names.kind(k), 3) for k in floats}
    ranked = sorted(floats, key=lambda k: (k != source, k not in used, order[k], k))
    return Start(
        title=_title(names),
        target=None if target is None else floats[target],
        source=None if source is None else floats[source],
        index=None if target is None else _first_element(names, floats[target], target, tokens),
        targets=[floats[k] for k in sorted(made, key=lambda k: (k != target, order[k] == 2, -k))][:2000],  # as a menu can hold
        sources=[floats[k] for k in ranked][:2000],
        tokens=tokens,
        after=frozenset() if source is None else frozenset(downstream(graph, source) - {source}),
        note=None if floats else "no floating-point value of this run has a name: bind what you want to see to a variable",
    )


def _target(names: Names, made: list[int]) -> int | None:
    """What the run returned; in a block of code the last thing it made, a loss before others."""
    graph = names.graph
    for _, handle in ends(names.t.output, "output"):
        number = names.numbered(handle)
        if number is not None and names.best(number) is not None and is_float(graph.tensors[number].dtype):
            return number
    for event in reversed(names.t._one.evidence().events):  # what the program itself went backward from, the last first
        for number in event.values if event.kind == "backward" else ():
            if number in made:
                return number
    read = {k for node in graph for k in node.inputs}
    computed = [k for k in made if names.kind(k) != "parameter"]
    last = [k for k in computed if k not in read] or computed
    return last[-1] if last else None


def _source(names: Names, floats: list[int], target: int | None, token_ids: set[int]) -> int | None:
    """What the function was given; of tokens, which have no derivative, their embedding; otherwise the first leaf."""
    graph = names.graph
    reaching = set(graph.tensors) if target is None else upstream(graph, target)
    possible = [k for k in floats if k in reaching and k != target]
    given = (names.numbered(handle) for _, handle in ends(names.t.inputs, "inputs"))
    embedded = (made for node in graph if token_ids.intersection(node.inputs) for made in node.outputs)
    for number in (*given, *embedded):
        if number in possible:
            return number

    def rank(number: int) -> tuple[int, int]:
        """Leaves that are no parameters come first, for they are what a block of code starts from."""
        node = graph.producer(number)
        return 2 if names.kind(number) == "parameter" else 0 if node is None or not node.inputs else 1, number

    return min(possible, key=rank) if possible else next((k for k in floats if k != target), None)


def _tokens(names: Names) -> tuple[list[int] | None, set[int]]:
    """Whole numbers among the inputs that look like a sequence of tokens: (T,) or (N, T), of up to 4096 tokens."""
    for _, handle in ends(names.t.inputs, "inputs"):
        number = names.numbered(handle)
        tensor = None if number is None else names.graph.tensors.get(number)
        if number is None or tensor is None or "int" not in tensor.dtype or not 1 <= len(tensor.shape) <= 2:
            continue
        if not 1 < tensor.shape[-1] <= 4096:
            continue
        try:
            ids = numbers(handle)
        except WrtError:
            continue
        return [int(one) for one in np.asarray(ids).reshape(-1, tensor.shape[-1])[0]], _copies(names.graph, number)
    return None, set()


def _copies(graph: Graph, number: int) -> set[int]:
    """The same whole numbers after reshapes and casts."""
    found = {number}
    for node in graph:
        if found.intersection(node.inputs) and all("int" in graph.tensors[k].dtype for k in node.outputs):
            found.update(node.outputs)
    return found


def _first_element(names: Names, name: str, number: int, tokens: list[int] | None) -> list[int] | None:
    """The element to look at first: the largest logit of one sample, the middle of a map, the last of a sequence."""
    shape = names.graph.tensors[number].shape
    if not shape:
        return []
    if any(length == 0 for length in shape):
        return None
    middle = [length // 2 for length in shape]
    if len(shape) > 2:
        middle[0] = 0
    try:
        data: Any = encode.real(numbers(names.handle(name)))
    except WrtError:
        return middle
    if len(shape) <= 2:
        at = int(np.nanargmax(np.where(np.isfinite(data), data, -np.inf))) if data.size else 0
        return [int(k) for k in np.unravel_index(at, shape)]
    if tokens is not None and len(shape) == 3 and shape[1] == len(tokens):
        return [0, shape[1] - 1, int(np.nanargmax(data[0, -1]))] if np.isfinite(data[0, -1]).any() else middle
    return middle


def _title(names: Names) -> str:
    """What ran, in the words of the code: the function that was called, of a model its class; otherwise the file."""
    known = names.t.names
    for number in sorted(k for k in names.given if k is not None):
        name = names.best(number)
        binding = known[name] if name is not None and name in known else None
        if binding is not None and binding.function and not binding.function.endswith("wrapper"):
            called = binding.function.removesuffix(".forward").removesuffix(".__call__").removesuffix(".call")
            return f"{called} in {base_name(binding.where)}"
    place = next((node.where for node in names.graph if node.where is not None), None)
    return f"a run in {names.graph.framework}" if place is None else base_name(place)
