"""Where a page opens (what was computed, from what, which element first), and which picture fits a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wrt._core.graph import Graph
from wrt._microscope import encode
from wrt._microscope.graph import Names, base_name, ends, is_float
from wrt._study.tensors import numbers
from wrt.errors import WrtError

COLORS = (1, 3, 4)  # gray, color, color with transparency


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
        after=_after(graph, source),
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
    reaching = _before(graph, target)
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


def _before(graph: Graph, target: int | None) -> set[int]:
    """Everything the target was computed from."""
    needed = {target} if target is not None else set(graph.tensors)
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
    return {k for k in needed if k is not None}


def _after(graph: Graph, source: int | None) -> frozenset[int]:
    """Everything that was computed from the source."""
    reached = {source}
    for node in graph:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
    return frozenset(k for k in reached if k is not None and k != source)


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
