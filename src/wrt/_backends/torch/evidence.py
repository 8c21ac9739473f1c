"""A recorded torch run under examination: flags, cotangents, one operation's own backward, one call made again."""

from __future__ import annotations

import dis
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat, sizes
from wrt._backends.torch.lines import operations_of_nodes
from wrt._backends.torch.saved import opened
from wrt._backends.torch.tensors import Entry
from wrt._core.evidence import Again, Event, Numbers
from wrt._core.graph import Graph, Node
from wrt._core.where import Where, function_name

if TYPE_CHECKING:
    from wrt._backends.torch.recording import TorchRecording

LINEAR_IN_EACH = frozenset(
    ["mul", "matmul", "mm", "bmm", "linear", "conv1d", "conv2d", "conv3d", "bilinear", "einsum", "mv", "dot", "addmm"]
)
"""The derivative by one input needs the other inputs only: what is saved of a plain input serves its partner alone."""


class TorchEvidence:
    """Everything `why` asks of one recording; built when it is asked, forgotten with the question."""

    def __init__(self, record: TorchRecording) -> None:
        self.record = record
        self.listener = record.listener
        graph = record.graph
        assert graph is not None
        self.graph: Graph = graph
        self.events: list[Event] = record.events.noted
        self._mutating: set[int] = set()
        self._objects = {entry.number: entry for entry in self.listener.values if isinstance(entry, Entry)}

    # ---------------------------------------------------------------- flags

    def moments(self, tensor: int) -> list[int]:
        found = [tensor]
        while found[-1] in self.listener.earlier:
            found.append(self.listener.earlier[found[-1]])
        return found

    def starts(self, tensor: int) -> int | None:
        """By the flag it had when it was first used; the flag may be set and cleared on the way."""
        followed = self.graph.tensors[tensor].requires_grad
        flips = [(operation, flag) for operation, value, flag in self.listener.flags if value == tensor]
        if not flips:
            return -1 if followed else None
        used = next((n.id for n in self.graph.nodes if tensor in n.inputs and n.outputs and n.id not in dict(flips)), None)
        for operation, flag in flips:
            if used is None or operation > used:
                break
            followed = flag
        if followed:
            return -1
        return next((operation for operation, flag in flips if flag), None)

    def look_from(self, y: int) -> None:
        """There is one engine."""

    def unfollowed(self, tensor: int) -> tuple[str, Where | None, str] | None:
        """Frozen by hand: the line that did it."""
        frozen = [operation for operation, value, flag in self.listener.flags if value == tensor and not flag]
        if not frozen or self.starts(tensor) is not None:
            return None
        return "not_requires_grad", self.graph.nodes[frozen[-1]].where, "requires_grad was switched off in this line"

    def consumed(self, y: int) -> tuple[Where | None, str] | None:
        return None

    def passes(self, node: Node, output: int) -> bool:
        if node.op.startswith("Parameter") or node.gradient == "none" or not self.graph.tensors[output].requires_grad:
            return False
        made = self.listener.values[output]
        if made.node is None and self._is_leaf(output):
            return False
        return node.op not in ("data", "detach", "detach_", "data=", "tensor", "grad", "__deepcopy__") and not self.off(node)

    def _is_leaf(self, output: int) -> bool:
        entry = self.listener.values[output]
        tensor = entry() if isinstance(entry, Entry) else None
        return tensor is None or tensor.is_leaf

    def off(self, node: Node) -> str:
        off = self.listener.operation(node.id).off
        return off[0] if off else ""

    def via(self, node: Node) -> str:
        off = self.listener.operation(node.id).off
        return " ".join(_library_name(code) for code in off[1]) if off else ""

    # ---------------------------------------------------------------- cotangents

    def edge(self, number: int) -> GradientEdge | None:
        """Where the gradient of a value enters the graph."""
        made = self.listener.values[number]
        if made.node is not None:
            return GradientEdge(made.node, made.output)
        tensor = self.tensor(number)
        return None if tensor is None else compat.edge_of(tensor)

    def tensor(self, number: int) -> Tensor | None:
        """The user's own tensor object behind a value, if it lives."""
        entry = self._objects.get(number)
        if entry is None:
            later = next((k for k, before in self.listener.earlier.items() if before == number), None)
            return None if later is None else self.tensor(later)
        return entry()

    def gradient(self, y: int, seed: Numbers, x: int) -> Numbers | None:
        out, into = self.edge(y), self.edge(x)
        if out is None or into is None:
            return None
        if compat.same_edge(out, into):
            return np.asarray(seed, dtype=np.float64)
        with _quiet():
            return _numbers(torch.autograd.grad([out], [into], [_like(seed, out)], retain_graph=True, allow_unused=True)[0])

    def largest(self, y: int, seed: Numbers, xs: Sequence[int]) -> list[float | None]:
        out, into = self.edge(y), [self.edge(x) for x in xs]
        asked = [edge for edge in into if edge is not None and out is not None and not compat.same_edge(edge, out)]
        if out is None or not asked:
            return [None] * len(xs)
        with _quiet():
            pulled = torch.autograd.grad([out], asked, [_like(seed, out)], retain_graph=True, allow_unused=True)
            sizes = iter(_largest(pulled))
        return [next(sizes) if edge is not None and not compat.same_edge(edge, out) else None for edge in into]

    def cotangents(self, y: int, seed: Numbers) -> dict[int, Numbers | None]:
        out = self.edge(y)
        if out is None:
            return {}
        numbers, edges = self._edges(out)
        seeds = _like(seed, out)
        with _quiet():
            pulled = torch.autograd.grad([out], edges, [seeds], retain_graph=True, allow_unused=True)
        found = _Lazy(zip(numbers, pulled, strict=True))
        found[y] = np.asarray(seed, dtype=np.float64)
        return found

    def measured(self, y: int, seed: Numbers, wanted: frozenset[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """How large the gradient of sum(seed * y) is at these values, by one pass; nothing is copied."""
        out = self.edge(y)
        if out is None:
            return
        found = [(k, edge) for k, edge in zip(*self._edges(out), strict=True) if k in wanted]
        with _quiet():
            seeds = _like(seed, out)
            edges = [edge for _, edge in found]
            pulled = torch.autograd.grad([out], edges, [seeds], retain_graph=True, allow_unused=True) if edges else ()
            yield from sizes.measured([y, *(k for k, _ in found)], [seeds, *pulled])

    def _edges(self, out: GradientEdge) -> tuple[list[int], list[GradientEdge]]:
        """Values whose edge can be reached from here."""
        reached = set(compat.reachable(out.node))
        numbers, edges = [], []
        for number in range(len(self.listener.values)):
            edge = self.edge(number)
            if edge is not None and edge.node in reached and not compat.same_edge(edge, out):
                numbers.append(number)
                edges.append(edge)
        return numbers, edges

    # ---------------------------------------------------------------- one operation

    @cached_property
    def _made_by(self) -> dict[Any, int]:
        return operations_of_nodes(self.listener)

    def local(self, node: Node, cotangents: Sequence[Numbers | None]) -> list[Numbers | None]:
        seeds = [self._seed(k, c) for k, c in zip(node.outputs, cotangents, strict=True)]
        with _quiet():
            return [_numbers(g) for g in self._pull(node, seeds)]

    def push(self, node: Node, place: int, tangent: Numbers) -> list[Numbers | None] | None:
        """By double backward: the pull is linear in its seed, and its derivative by the seed is the push."""
        seeds = [self._seed(k, np.zeros(self.graph.tensors[k].shape)) for k in node.outputs]
        live = [s.requires_grad_() for s in seeds if s is not None]
        try:
            with _quiet(), torch.enable_grad():
                pulled = self._pull(node, seeds)[place]
                if pulled is None or not pulled.requires_grad:
                    return None
                moved = torch.as_tensor(tangent).to(pulled.dtype).to(pulled.device).reshape(pulled.shape)
                pushed = iter(torch.autograd.grad(pulled, live, moved, allow_unused=True))
        except (RuntimeError, TypeError):
            return None
        return [None if s is None else _numbers(next(pushed)) for s in seeds]

    def _seed(self, number: int, cotangent: Numbers | None) -> Tensor | None:
        edge = self.edge(number)
        return None if edge is None or cotangent is None else _like(cotangent, edge)

    def _pull(self, node: Node, seeds: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Run the backward of each autograd node that the operation made, and of none besides."""
        asked = [self.edge(k) for k in node.inputs]
        ends = {(e.node, e.output_nr) for e in asked if e is not None}
        waiting: dict[Any, list[Tensor | None]] = {}
        arrived: dict[tuple[Any, int], Tensor] = {}
        for output, seed in zip(node.outputs, seeds, strict=True):
            edge = self.edge(output)
            if edge is not None and seed is not None and not any(_same(edge, a) for a in asked):
                _add(waiting, edge, seed)
        for inner in self._in_order(waiting):
            if self._made_by.get(inner) != node.id:
                for output, seed in enumerate(waiting[inner]):  # an alias: the result enters where an input does
                    if seed is not None:
                        arrived[inner, output] = seed
                continue
            pulled, mutated = _call(inner, waiting[inner])
            if mutated:
                self._mutating.add(node.id)
            for (source, output), gradient in zip(inner.next_functions, pulled, strict=False):
                if source is None or gradient is None:
                    continue
                gradient = _as_the_engine(gradient, source, output)
                if (source, output) not in ends and self._made_by.get(source) == node.id:
                    _add(waiting, GradientEdge(source, output), gradient)
                else:
                    known = arrived.get((source, output))
                    arrived[source, output] = gradient if known is None else known + gradient
        return [None if e is None else arrived.get((e.node, e.output_nr)) for e in asked]

    def value(self, tensor: int) -> Numbers | None:
        if tensor in self.record.kept:
            return _numbers(self.record.kept[tensor])
        entry = self._objects.get(tensor)
        live = None if entry is None else entry()
        if live is not None:
            return _numbers(live)
        producer = self.graph.producer(tensor)
        kept = self.saved(producer).get("result") if producer is not None and len(producer.outputs) == 1 else None
        return kept if kept is not None and kept.shape == self.graph.tensors[tensor].shape else None

    def _in_order(self, waiting: dict[Any, list[Tensor | None]]) -> Any:
        """Nodes as they fill up, those made last first."""
        done: set[Any] = set()
        while True:
            ready = [node for node in waiting if node not in done]  # grows while we go
            if not ready:
                return
            node = max(ready, key=lambda n: n._sequence_nr())
            done.add(node)
            yield node

    def saved(self, node: Node) -> dict[str, Numbers]:
        found: dict[str, Numbers] = {}
        for output in node.outputs:
            inner = self.listener.values[output].node
            if inner is None or hasattr(inner, "_forward_cls"):
                continue
            for name in dir(inner):
                if name.startswith("_saved_"):
                    kept = getattr(inner, name)
                    if isinstance(kept, Tensor):
                        numbers = _numbers(kept)
                        if numbers is not None:
                            found[name.removeprefix("_saved_")] = numbers
        return found

    def again(self, node: Node) -> Again | None:
        kept = self.listener.kept.get(node.id)
        if kept is None or self.listener.operation(node.id).written:
            return None
        func, args, kwargs = kept[0], opened(kept[1]), opened(kept[2])
        custom = isinstance(func, type) and issubclass(func, torch.autograd.Function)
        places = _places(args, kwargs)
        if any(t.layout != torch.strided for _, t in places):
            return None  # a sparse tensor has no fixed elements to move
        floats = [(k, t) for k, (_, t) in enumerate(places) if t.is_floating_point()]
        numbers = [node.inputs[k] for k, _ in floats]
        run = _Run(func.apply if custom else func, args, kwargs, [places[k][0] for k, _ in floats])
        inputs = tuple(t.detach().double().cpu().numpy().copy() for _, t in floats)
        rule = _last_return(func.backward) if custom else None
        name = func.__name__ if custom else ""
        return Again(inputs, tuple(numbers), run, name, rule, push=run.push)

    def mutates(self, node: Node) -> bool:
        return node.id in self._mutating

    def gradient_attribute(self, tensor: int) -> Numbers | None:
        found = self.tensor(tensor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return None if found is None else _numbers(found.grad)

    def outside(self, node: Node) -> Where | None:
        return node.where

    def refused(self, y: int, x: int, path: Sequence[Node]) -> list[tuple[str, Node, str]]:
        """Saved tensors that were written over before a backward of the user's had used them."""
        on_path = {node.id: node for node in path}
        done = [e.at for e in self.events if e.kind == "backward" and y in e.values]
        found = []
        for box_ref, number in self.listener.saved.overwritten:
            box = box_ref()
            if box is None or box.operation not in on_path or any(at <= number for at in done):
                continue
            reader, writer = on_path[box.operation], self.graph.nodes[number]
            if reader.id != number and self._needed(reader, box.tensor):
                words = f"{reader.op} at {reader.where} kept a tensor for its backward, and {writer.op} wrote over it"
                target = self.graph.producer(writer.inputs[0]) if writer.inputs else None
                hidden = target is not None and target.op == "data"  # autograd does not notice, and uses the new numbers
                found.append(("dot_data" if hidden else "inplace_saved_tensor", writer, words))
        return found

    def _needed(self, reader: Node, saved: Tensor) -> bool:
        """Whether torch alone would have kept this tensor: not if it only serves an input that needs no gradient."""
        flags = [self.starts(k) is not None for k in reader.inputs]
        return not (reader.op.strip("_") in LINEAR_IN_EACH and sum(flags) == 1 and self._is_flagged_one(reader, flags, saved))

    def _is_flagged_one(self, reader: Node, flags: list[bool], saved: Tensor) -> bool:
        return tuple(saved.shape) == self.graph.tensors[reader.inputs[flags.index(True)]].shape


class _Lazy(dict[int, "Numbers | None"]):
    """Gradients by value, made numbers of when they are looked at: most never are."""

    def __getitem__(self, number: int) -> Numbers | None:
        found: Any = dict.__getitem__(self, number)
        if isinstance(found, Tensor):
            found = self[number] = _numbers(found)
        return found

    def get(self, number: int, otherwise: Any = None) -> Any:
        try:
            return self[number]
        except KeyError:
            return otherwise

    def values(self) -> Any:
        return [self[number] for number in self]

    def items(self) -> Any:
        return [(number, self[number]) for number in self]


class _Run:
    """A call made again with some of its tensors replaced by double-precision numbers."""

    def __init__(self, func: Callable[..., Any], args: Any, kwargs: Any, places: list[tuple[Any, ...]]) -> None:
        self.func, self.args, self.kwargs, self.places = func, args, kwargs, places
        self.narrow = False

    def __call__(self, inputs: Sequence[Numbers]) -> list[Numbers | None]:
        results = self._results(inputs)
        self.narrow |= any(isinstance(r, Tensor) and r.dtype in (torch.float32, torch.float16, torch.bfloat16) for r in results)
        return [_numbers(r) if isinstance(r, Tensor) else None for r in results]


    def push(self, inputs: Sequence[Numbers], place: int, tangent: Numbers) -> list[Numbers | None]:
        """Forward mode of the call, from one of its inputs."""
        with forward_ad.dual_level():
            results = self._results(inputs, place, torch.from_numpy(np.ascontiguousarray(tangent)))
            moved = [forward_ad.unpack_dual(r).tangent if isinstance(r, Tensor) else None for r in results]
            return [_numbers(t) for t in moved]

    def _results(self, inputs: Sequence[Numbers], moving: int = -1, tangent: Tensor | None = None) -> Sequence[Any]:
        tensors = [torch.from_numpy(np.ascontiguousarray(array)).clone() for array in inputs]
        if tangent is not None:
            tensors[moving] = forward_ad.make_dual(tensors[moving], tangent)
        args = _replaced((self.args, self.kwargs), (), dict(zip(self.places, tensors, strict=True)))
        with _quiet(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            result = self.func(*args[0], **args[1])
        return result if isinstance(result, (tuple, list)) else [result]


def _places(args: Any, kwargs: Any) -> list[tuple[tuple[Any, ...], Tensor]]:
    """Every tensor among the arguments with the way to it, in the order in which a recording numbers them."""
    found: list[tuple[tuple[Any, ...], Tensor]] = []
    for k, arg in enumerate(args):
        found += [((0, k, *rest), t) for rest, t in _inside(arg)]
    for key, arg in kwargs.items():
        found += [((1, key, *rest), t) for rest, t in _inside(arg)]
    return found


def _inside(arg: Any) -> list[tuple[tuple[Any, ...], Tensor]]:
    if isinstance(arg, Tensor):
        return [((), arg)]
    if type(arg) in (list, tuple):
        return [((k,), item) for k, item in enumerate(arg) if isinstance(item, Tensor)]
    return []


def _replaced(tree: Any, way: tuple[Any, ...], given: dict[tuple[Any, ...], Tensor]) -> Any:
    if way in given:
        return given[way]
    if isinstance(tree, Tensor) and tree.is_floating_point():
        return tree.double().cpu()
    if isinstance(tree, dict):
        return {key: _replaced(item, (*way, key), given) for key, item in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_replaced(item, (*way, k), given) for k, item in enumerate(tree))
    return tree


def _call(node: Any, gradients: list[Tensor | None]) -> tuple[tuple[Tensor | None, ...], bool]:
    """The backward of one autograd node, without hooks; and whether it wrote into what it was given."""
    if not hasattr(node, "_forward_cls"):
        result = node(*gradients)
        return (result if isinstance(result, tuple) else (result,)), False
    filled = [
        torch.zeros(meta.shape, dtype=meta.dtype, device=meta.device) if g is None else g
        for g, meta in zip(gradients, node._input_metadata, strict=False)
    ]
    before = [g._version for g in filled]
    result = node.apply(*filled)
    mutated = before != [g._version for g in filled]
    return (tuple(result) if isinstance(result, (tuple, list)) else (result,)), mutated


def _as_the_engine(gradient: Tensor, source: Any, output: int) -> Tensor:
    """The engine sums a gradient that is larger than its input down to the input's shape."""
    shape = tuple(source._input_metadata[output].shape)
    if tuple(gradient.shape) == shape:
        return gradient
    try:
        return gradient.sum_to_size(shape)
    except RuntimeError:
        return gradient


def _add(waiting: dict[Any, list[Tensor | None]], edge: GradientEdge, gradient: Tensor) -> None:
    slots = waiting.setdefault(edge.node, [None] * len(edge.node._input_metadata))
    known = slots[edge.output_nr]
    slots[edge.output_nr] = gradient if known is None else known + gradient


def _same(edge: GradientEdge, other: GradientEdge | None) -> bool:
    return other is not None and compat.same_edge(edge, other)


def _like(cotangent: Numbers, edge: GradientEdge) -> Tensor:
    meta = edge.node._input_metadata[edge.output_nr]
    return torch.as_tensor(cotangent).to(meta.dtype).to(meta.device).reshape(tuple(meta.shape))


def _numbers(tensor: Tensor | None) -> Numbers | None:
    if tensor is None or not isinstance(tensor, Tensor):
        return None
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.to("cpu", torch.float64).numpy()


def _largest(gradients: Sequence[Tensor | None]) -> list[float | None]:
    """The largest absolute element of each; NaN where one is NaN."""
    ends: list[Tensor] = []
    for gradient in gradients:
        if gradient is not None and gradient.numel():
            dense = gradient.detach() if gradient.layout == torch.strided else gradient.detach().to_dense()
            low, high = torch.aminmax(dense.abs() if dense.is_complex() else dense)  # ten times as fast as a norm
            ends += [low.double(), high.double()]
    found = torch.stack(ends).abs().reshape(-1, 2).amax(1).tolist() if ends else []
    sizes = iter(found)
    return [None if g is None else next(sizes) if g.numel() else 0.0 for g in gradients]


class _quiet:
    """Outside the user's modes, hooks of ours included; nothing is noted."""

    def __enter__(self) -> None:
        self._undisturbed = compat.Undisturbed()
        self._undisturbed.__enter__()
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *reason: Any) -> None:
        self._caught.__exit__(*reason)
        self._undisturbed.__exit__(*reason)


def _library_name(code: CodeType) -> str:
    """`torch.distributions.normal.Normal.sample`."""
    path = code.co_filename.removesuffix(".py").replace("\\", "/").rpartition("/torch/")[2].replace("/", ".")
    return f"torch.{path}.{code.co_qualname}"


def _last_return(function: Any) -> Where | None:
    """The line in which a rule written by hand returns."""
    code: CodeType | None = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if code is None:
        return None
    lines = [i.positions.lineno for i in dis.get_instructions(code) if i.opname.startswith("RETURN") and i.positions]
    return Where(code.co_filename, lines[-1], function=function_name(code)) if lines and lines[-1] else None
