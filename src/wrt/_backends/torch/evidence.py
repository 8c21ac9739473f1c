"""A recorded torch run under examination: flags, cotangents, one operation's own backward, one call made again."""

from __future__ import annotations

import warnings
from collections import UserDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat
from wrt._backends.torch.one_operation import as_numbers, like, pull, quiet, rerun
from wrt._backends.torch.recording.entries import Entry
from wrt._backends.torch.recording.graph import operations_of_nodes
from wrt._core.evidence import Again, Event, Numbers
from wrt._core.graph import Graph, Node, upstream
from wrt._core.where import Where, place

if TYPE_CHECKING:
    from wrt._backends.torch.recording.recording import TorchRecording

LINEAR_IN_EACH = frozenset(
    ["mul", "matmul", "mm", "bmm", "linear", "conv1d", "conv2d", "conv3d", "bilinear", "einsum", "mv", "dot", "addmm"]
)
"""The derivative by one input needs the other inputs only: what is saved of a plain input serves its partner alone."""


class TorchEvidence:
    """Everything `why` asks of one recording; built when it is asked, forgotten with the question."""

    def __init__(self, record: TorchRecording) -> None:
        self.record = record
        self.recorder = record.recorder
        graph = record.graph
        assert graph is not None
        self.graph: Graph = graph
        self.events: list[Event] = record.events.noted
        self._mutating: set[int] = set()
        self._objects = {entry.number: entry for entry in self.recorder.values if isinstance(entry, Entry)}

    # ---------------------------------------------------------------- flags

    def moments(self, tensor: int) -> list[int]:
        found = [tensor]
        while found[-1] in self.recorder.earlier:
            found.append(self.recorder.earlier[found[-1]])
        return found

    def starts(self, tensor: int) -> int | None:
        """By the flag it had when it was first used; the flag may be set and cleared on the way."""
        followed = self.graph.tensors[tensor].requires_grad
        flips = [(operation, flag) for operation, value, flag in self.recorder.flags if value == tensor]
        if not flips:
            return -1 if followed else None
        uses = (n for n in self.graph.nodes if tensor in n.inputs and n.outputs and n.op not in ("backward", "grad"))
        used = next((n.id for n in uses if n.id not in dict(flips)), None)
        for operation, flag in flips:
            if used is None or operation > used:
                break
            followed = flag
        if followed:
            return -1
        return next((operation for operation, flag in flips if flag), None)

    def requests(self) -> Sequence[tuple[list[int], list[int]]]:
        return ()  # there are no tapes

    def unrecorded(self, y: int, x: int) -> Sequence[Where | None]:
        """Where y takes what nobody saw being made: in code that no recording looks into, which has no line."""
        found = self.recorder.open_channel(self.graph, upstream(self.graph, y))
        return [] if found is None else [None if found.spot is None else place(*found.spot)]

    def look_from(self, y: int) -> None:
        """There is one engine."""

    def unfollowed(self, tensor: int) -> tuple[str, Where | None, str] | None:
        """Frozen by hand: the line that did it."""
        frozen = [operation for operation, value, flag in self.recorder.flags if value == tensor and not flag]
        if not frozen or self.starts(tensor) is not None:
            return None
        return "not_requires_grad", self.graph.nodes[frozen[-1]].where, "requires_grad was switched off in this line"

    def consumed(self, y: int) -> tuple[Where | None, str] | None:
        return None

    def passes(self, node: Node, output: int) -> bool:
        made, tensors = self.recorder.values[output], self.graph.tensors
        on_shadows = made.node is not None and not any(tensors[k].requires_grad for k in node.inputs)
        if node.op.startswith("Parameter") or node.gradient == "none" or not (tensors[output].requires_grad or on_shadows):
            return False
        if made.node is None and self._is_leaf(output):
            return False
        return node.op not in (
            "data", "detach", "detach_", "data=", "outside", "backward", "tensor", "grad", "__deepcopy__",
        ) and not self.off(node)

    def _is_leaf(self, output: int) -> bool:
        entry = self.recorder.values[output]
        tensor = entry() if isinstance(entry, Entry) else None
        return tensor is None or tensor.is_leaf

    def off(self, node: Node) -> str:
        off = self.recorder.operation(node.id).off
        return off[0] if off else ""

    def via(self, node: Node) -> str:
        off = self.recorder.operation(node.id).off
        return " ".join(_library_name(code) for code in off[1]) if off else ""

    # ---------------------------------------------------------------- cotangents

    def edge(self, number: int) -> GradientEdge | None:
        """Where the gradient of a value enters the graph."""
        made = self.recorder.values[number]
        if made.node is not None:
            return GradientEdge(made.node, made.output)
        tensor = self.tensor(number)
        return None if tensor is None else compat.edge_of(tensor)

    def tensor(self, number: int) -> Tensor | None:
        """The user's own tensor object behind a value, if it lives."""
        entry = self._objects.get(number)
        if entry is None:
            later = next((k for k, before in self.recorder.earlier.items() if before == number), None)
            return None if later is None else self.tensor(later)
        return entry()

    def gradient(self, y: int, seed: Numbers, x: int) -> Numbers | None:
        out, into = self.edge(y), self.edge(x)
        if out is None or into is None:
            return None
        if compat.same_edge(out, into):
            return np.asarray(seed, dtype=np.float64)
        with quiet():
            return as_numbers(_gradients(out, seed, [into])[0])

    def largest(self, y: int, seed: Numbers, xs: Sequence[int]) -> list[float | None]:
        out, into = self.edge(y), [self.edge(x) for x in xs]
        asked = [edge for edge in into if edge is not None and out is not None and not compat.same_edge(edge, out)]
        if out is None or not asked:
            return [None] * len(xs)
        with quiet():
            sizes = iter(_largest(_gradients(out, seed, asked)))
        return [next(sizes) if edge in asked else None for edge in into]

    def cotangents(self, y: int, seed: Numbers, xs: frozenset[int] | None = None) -> dict[int, Numbers | None]:
        out = self.edge(y)
        if out is None:
            return {}
        pairs = [(k, edge) for k, edge in self._edges(out) if xs is None or k in xs]
        with quiet():
            pulled = _gradients(out, seed, [edge for _, edge in pairs])
            found = _Lazy((k, gradient) for (k, _), gradient in zip(pairs, pulled, strict=True))
        found[y] = np.asarray(seed, dtype=np.float64)
        return cast(Any, found)

    def _edges(self, out: GradientEdge) -> Iterator[tuple[int, GradientEdge]]:
        """Values whose edge can be reached from here."""
        reached = set(compat.reachable(out.node))
        for number in range(len(self.recorder.values)):
            edge = self.edge(number)
            if edge is not None and edge.node in reached and not compat.same_edge(edge, out):
                yield number, edge

    # ---------------------------------------------------------------- one operation

    @cached_property
    def _made_by(self) -> dict[Any, int]:
        return operations_of_nodes(self.recorder)

    def local(self, node: Node, cotangents: Sequence[Numbers | None]) -> list[Numbers | None]:
        seeds = [self._seed(k, c) for k, c in zip(node.outputs, cotangents, strict=True)]
        with quiet():
            return [as_numbers(g) for g in self._pull(node, seeds)]

    def push(self, node: Node, place: int, tangent: Numbers) -> list[Numbers | None] | None:
        """By double backward: the pull is linear in its seed, and its derivative by the seed is the push."""
        seeds = [self._seed(k, np.zeros(self.graph.tensors[k].shape)) for k in node.outputs]
        live = [s.requires_grad_() for s in seeds if s is not None]
        try:
            with quiet(), torch.enable_grad():
                pulled = self._pull(node, seeds)[place]
                if pulled is None or not pulled.requires_grad:
                    return None
                moved = torch.as_tensor(tangent).to(pulled.dtype).to(pulled.device).reshape(pulled.shape)
                pushed = iter(torch.autograd.grad(pulled, live, moved, allow_unused=True))
        except (RuntimeError, TypeError):
            return None
        return [None if s is None else as_numbers(next(pushed)) for s in seeds]

    def _seed(self, number: int, cotangent: Numbers | None) -> Tensor | None:
        edge = self.edge(number)
        return None if edge is None or cotangent is None else like(cotangent, edge)

    def _pull(self, node: Node, seeds: Sequence[Tensor | None]) -> list[Tensor | None]:
        edges = [self.edge(k) for k in node.inputs], [self.edge(k) for k in node.outputs]
        pulled = pull(node.id, self._made_by, *edges, seeds)
        if pulled.mutated:
            self._mutating.add(node.id)
        return pulled.gradients

    def value(self, tensor: int) -> Numbers | None:
        if tensor in self.record.kept:
            return as_numbers(self.record.kept[tensor])
        entry = self._objects.get(tensor)
        live = None if entry is None else entry()
        if live is not None:
            return as_numbers(live)
        producer = self.graph.producer(tensor)
        kept = self.saved(producer).get("result") if producer is not None and len(producer.outputs) == 1 else None
        return kept if kept is not None and kept.shape == self.graph.tensors[tensor].shape else None

    def saved(self, node: Node) -> dict[str, Numbers]:
        found: dict[str, Numbers] = {}
        for output in node.outputs:
            inner = self.recorder.values[output].node
            if inner is not None and not compat.is_custom(inner):
                found.update((name, n) for name, kept in compat.saved_tensors(inner) if (n := as_numbers(kept)) is not None)
        return found

    def again(self, node: Node) -> Again | None:
        kept = self.recorder.kept.get(node.id)
        return None if kept is None or self.recorder.operation(node.id).written else rerun(kept, node.inputs)

    def mutates(self, node: Node) -> bool:
        return node.id in self._mutating

    def gradient_attribute(self, tensor: int) -> Numbers | None:
        found = self.tensor(tensor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return None if found is None else as_numbers(found.grad)

    def outside(self, node: Node) -> Where | None:
        return node.where

    def refused(self, y: int, x: int, path: Sequence[Node]) -> list[tuple[str, Node, str]]:
        """Saved tensors that were written over before a backward of the user's had used them."""
        on_path = {node.id: node for node in path}
        done = [e.at for e in self.events if e.kind == "backward" and y in e.values]
        found = []
        for box_ref, number in self.recorder.saved.overwritten:
            box = box_ref()
            if box is None or box.operation not in on_path or any(at <= number for at in done):
                continue
            reader, writer = on_path[box.operation], self.graph.nodes[number]
            if self._needed(reader, box.tensor):
                words = f"{reader.op} at {reader.where} kept a tensor for its backward, and {writer.op} wrote over it"
                target = self.graph.producer(writer.inputs[0]) if writer.inputs else None
                hidden = target is not None and target.op == "data"  # autograd does not notice, and uses the new numbers
                found.append(("dot_data" if hidden else "inplace_saved_tensor", writer, words))
        return found

    def _needed(self, reader: Node, saved: Tensor) -> bool:
        """Whether torch alone would have kept this tensor: not if it only serves an input that needs no gradient."""
        flags = [self.starts(k) is not None for k in reader.inputs]
        if reader.op.strip("_") not in LINEAR_IN_EACH or sum(flags) != 1:
            return True
        return tuple(saved.shape) != self.graph.tensors[reader.inputs[flags.index(True)]].shape

def _library_name(code: CodeType) -> str:
    """`torch.distributions.normal.Normal.sample`."""
    path = code.co_filename.removesuffix(".py").replace("\\", "/").rpartition("/torch/")[2].replace("/", ".")
    return f"torch.{path}.{code.co_qualname}"


def _gradients(out: GradientEdge, seed: Numbers, edges: list[GradientEdge]) -> Sequence[Tensor | None]:
    """One pass of the engine from here to these edges."""
    found: Sequence[Tensor | None] = ()
    if edges:
        found = torch.autograd.grad([out], edges, [like(seed, out)], retain_graph=True, allow_unused=True)
    return found


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


class _Lazy(UserDict[int, Any]):
    """Gradients by value, made numbers of when they are looked at: most never are."""

    def __getitem__(self, number: int) -> Numbers | None:
        found: Any = self.data[number]
        if isinstance(found, Tensor):
            found = self.data[number] = as_numbers(found)
        return found
