"""The graph of a run as `why` sees it: its operations, and among them what the log keeps apart.

A gradient written by hand stands among the operations as one more, from its inputs to its outputs; numbers that were
read into Python, and Python that was called with arrays, as operations without a gradient.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.events import Custom, Host
from wrt._backends.tensorflow.work import Payload, Work
from wrt._core.graph import Graph, Node
from wrt._core.where import place

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

HOST = "numpy_function"


class Examined:
    """`graph`, and for each of its nodes how many operations had run before it (`at`)."""

    def __init__(self, recording: TensorFlowRecording) -> None:
        self.recording = recording
        self.log = recording.log
        self.kept = Work(recording.log)
        plain = recording.graph
        self.graph = Graph("tensorflow", [], dict(plain.tensors), plain.inputs, plain.outputs)
        self.at: list[int] = []
        self._made_by: list[int | Custom | None] = []  # an operation of the log, or a rule written by hand
        self._interleave(plain)
        self._give_variables_their_shapes()

    def work(self, node: Node) -> Payload | Custom | None:
        """The tensors of a node, where it has some and they can be had."""
        made_by = self._made_by[node.id]
        return self.kept.payload(made_by) if isinstance(made_by, int) else made_by

    def via(self, node: Node) -> str:
        """The library function that the user's line called."""
        made_by = self._made_by[node.id]
        return self.log.operations[made_by].via.removesuffix("_v2") if isinstance(made_by, int) else ""

    def _interleave(self, plain: Graph) -> None:
        notes = self.recording.notes_for_why
        extra: list[tuple[int, int, Any]] = [(c.at, 0, c) for c in notes.customs]
        extra += [(leak.after, 1, leak) for leak in self.log.leaks]
        extra += [(host.at, 2, host) for host in notes.hosts]
        extra.sort(key=lambda item: item[:2])
        for index, node in enumerate(plain.nodes):
            while extra and extra[0][0] <= index:
                self._insert(extra.pop(0)[2], index)
            self._append(replace(node, id=len(self.graph.nodes)), index, index)
        for _, _, item in extra:
            self._insert(item, len(plain.nodes))
        for node in self.graph.nodes:
            for output in node.outputs:
                known = self.graph.tensors[output]
                self.graph.tensors[output] = replace(known, node=node.id)

    def _insert(self, item: Any, at: int) -> None:
        where = place(*item.spot) if item.spot else None
        number = len(self.graph.nodes)
        known = self.graph.tensors
        if isinstance(item, Custom):
            made = tuple(k for t in item.outputs if (k := compat.number(t)) in known)
            given = tuple(self.log.number(compat.number(t)) for t in item.inputs)
            if made and all(k in known for k in given):
                self._stand_for(made)
                self._append(Node(number, item.name, given, made, where, gradient="custom"), item, at)
        elif isinstance(item, Host):
            given = tuple(k for t in item.inputs if (k := self.log.number(compat.number(t))) in known)
            made = tuple(k for t in item.outputs if (k := compat.number(t)) in known)
            self._append(Node(number, HOST, given, made, where, gradient="cut"), None, at)
        elif item.number in known:
            self._append(Node(number, item.how, (item.number,), (), where, gradient="cut"), None, at)

    def _stand_for(self, made: tuple[int, ...]) -> None:
        """What is inside a rule is not followed: the rule stands for it."""
        self.graph.nodes[:] = [
            replace(node, gradient="cut") if not set(made).isdisjoint(node.outputs) else node for node in self.graph.nodes
        ]

    def _append(self, node: Node, made_by: int | Custom | None, at: int) -> None:
        self.graph.nodes.append(node)
        self._made_by.append(made_by)
        self.at.append(at)

    def _give_variables_their_shapes(self) -> None:
        """A handle has no shape; what is read through it has."""
        tensors = self.graph.tensors
        for node in self.graph.nodes:
            if node.op == "ReadVariableOp":
                read, handle = tensors[node.outputs[0]], tensors[node.inputs[0]]
                tensors[handle.id] = replace(handle, shape=read.shape, dtype=read.dtype)
        for moment in self.recording.moments.variables():
            number = self.log.number(moment.number)
            if number in tensors:
                tensors[number] = replace(tensors[number], shape=moment.shape, dtype=moment.dtype.name)
