"""Where a page opens: what was computed, from what, and which element of it to look at first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wrt._core.graph import Graph
from wrt._core.value import Value
from wrt._microscope import encode
from wrt._microscope.graph import base_name, is_float, kind, shape_and_dtype
from wrt._microscope.naming import Names, ends
from wrt._notation.trace import Handle, Trace
from wrt._study.tensors import numbers
from wrt.errors import WrtError

LISTED = 2000  # names a menu can hold
LONGEST = 4096  # tokens in a row that are still read one by one


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


def start(t: Trace, graph: Graph, names: Names) -> Start:
    """Outputs and what follows from everything are targets; inputs and whatever goes on to them are sources."""
    floats = [k for k, one in graph.tensors.items() if (name := names.best(k)) and is_float(shape_and_dtype(names, one, name)[1])]
    used = {k for node in graph for k in node.inputs}
    made = [k for k in floats if graph.tensors[k].node is not None]
    tokens, token_ids = _tokens(t, graph)
    target = _target(t, graph, names, made)
    source = _source(t, graph, names, floats, target, token_ids)
    ranked = sorted(floats, key=lambda k: (k != source, k not in used, _order(graph, names, k), k))
    best = {k: str(names.best(k)) for k in floats}
    return Start(
        title=_title(t, graph, names),
        target=None if target is None else best[target],
        source=None if source is None else best[source],
        index=None if target is None else _first_element(names, graph, best[target], target, tokens),
        targets=[best[k] for k in sorted(made, key=lambda k: (k != target, _order(graph, names, k) == 2, -k))][:LISTED],
        sources=[best[k] for k in ranked][:LISTED],
        tokens=tokens,
        after=_after(graph, source),
        note=None if floats else "no floating-point value of this run has a name: bind what you want to see to a variable",
    )


def _order(graph: Graph, names: Names, number: int) -> int:
    """Inputs first, then values, then parameters."""
    what = kind(graph, graph.tensors[number], names.best(number), names)
    return {"input": 0, "module-output": 1, "value": 1, "parameter": 2}.get(what, 3)


def _target(t: Trace, graph: Graph, names: Names, made: list[int]) -> int | None:
    """What the run returned; in a block of code the last thing it made, a loss before others."""
    for value in _values(t, "output"):
        number = t._one.numbered(value)
        if number is not None and names.best(number) is not None and is_float(graph.tensors[number].dtype):
            return number
    for number in _losses(t):
        if number in made:
            return number
    read = {k for node in graph for k in node.inputs}
    computed = [k for k in made if kind(graph, graph.tensors[k], names.best(k), names) != "parameter"]
    ends = [k for k in computed if k not in read] or computed
    return ends[-1] if ends else None


def _losses(t: Trace) -> Iterator[int]:
    """What the program itself went backward from, the last first."""
    for event in reversed(t._one.evidence().events):
        if event.kind == "backward":
            yield from event.values


def _source(
    t: Trace, graph: Graph, names: Names, floats: list[int], target: int | None, token_ids: set[int]
) -> int | None:
    """What the function was given; of tokens, which have no derivative, their embedding; otherwise the first leaf."""
    reaching = _before(graph, target)
    for value in _values(t, "inputs"):
        number = t._one.numbered(value)
        if number in floats and number in reaching and number != target:
            return number
    for node in graph:
        if token_ids.intersection(node.inputs):
            for made in node.outputs:
                if made in floats and made in reaching and made != target:
                    return made
    order = sorted((k for k in floats if k in reaching and k != target), key=lambda k: (_first(graph, names, k), k))
    return order[0] if order else next((k for k in floats if k != target), None)


def _first(graph: Graph, names: Names, number: int) -> int:
    """Leaves that are no parameters come first, for they are what a block of code starts from."""
    tensor = graph.tensors[number]
    node = graph.producer(number)
    if kind(graph, tensor, names.best(number), names) == "parameter":
        return 2
    return 0 if node is None or not node.inputs else 1


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


def _values(t: Trace, which: str) -> Iterator[Value]:
    """Values among what the function was given, or gave; a block of code was given nothing."""
    for _, one in ends(t, which):
        yield one.__wrt_differential__()[0]


def _tokens(t: Trace, graph: Graph) -> tuple[list[int] | None, set[int]]:
    """Whole numbers among the inputs that look like a sequence of tokens: (T,) or (N, T)."""
    for value in _values(t, "inputs"):
        number = t._one.numbered(value)
        tensor = None if number is None else graph.tensors.get(number)
        if number is None or tensor is None or "int" not in tensor.dtype or not 1 <= len(tensor.shape) <= 2:
            continue
        if not 1 < tensor.shape[-1] <= LONGEST:
            continue
        try:
            ids = numbers(Handle(t._one, value))
        except WrtError:
            continue
        return [int(one) for one in np.asarray(ids).reshape(-1, tensor.shape[-1])[0]], {number, *_copies(graph, number)}
    return None, set()


def _copies(graph: Graph, number: int) -> set[int]:
    """The same whole numbers after reshapes and casts."""
    found = {number}
    for node in graph:
        if found.intersection(node.inputs) and all("int" in graph.tensors[k].dtype for k in node.outputs):
            found.update(node.outputs)
    return found


def _first_element(names: Names, graph: Graph, name: str, number: int, tokens: list[int] | None) -> list[int] | None:
    """The element to look at first: the largest logit of one sample, the middle of a map, the last of a sequence."""
    shape = graph.tensors[number].shape
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


def _title(t: Trace, graph: Graph, names: Names) -> str:
    """What ran, in the words of the code: the function that was called, of a model its class; otherwise the file."""
    for number in sorted(k for k in names.given if k is not None):
        name = names.best(number)
        binding = t.names[name] if name is not None and name in t.names else None
        if binding is not None and binding.function and not binding.function.endswith("wrapper"):
            called = binding.function.removesuffix(".forward").removesuffix(".__call__").removesuffix(".call")
            return f"{called} in {base_name(binding.where)}"
    place = next((node.where for node in graph if node.where is not None), None)
    return f"a run in {graph.framework}" if place is None else base_name(place)
