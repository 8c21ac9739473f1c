"""What the user's own tape followed: which tensors, from when on, and why not the others."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.examined import HOST
from wrt._backends.tensorflow.tapes import UserTape
from wrt._core.graph import Node
from wrt._core.where import Where, function_name, place

if TYPE_CHECKING:
    from wrt._backends.tensorflow.examined import Examined


class Followed:
    """One question: which tape is meant, and what it saw. Without a tape of the user's the recording's own counts."""

    def __init__(self, examined: Examined, y: int | None = None) -> None:
        self.examined = examined
        self.recording = examined.recording
        self.log = examined.log
        self.graph = examined.graph
        self.y = y
        self.tape: UserTape | None = None if y is None else self._chosen(y)
        self._watched: set[int] | None = None

    def _chosen(self, y: int) -> UserTape | None:
        """The last tape that was open when y was made, or else before."""
        node = self.graph.producer(y)
        made = self.examined.at[node.id] if node is not None else len(self.log.operations)
        earlier = [t for t in self.recording.notes_for_why.tapes if t.start <= made]
        around = [t for t in earlier if t.covers(made)]
        return next(reversed(around or earlier), None)

    @property
    def watched(self) -> set[int]:
        """Tensors that the user's tape follows."""
        if self._watched is None:
            self._watched = set()
            if self.tape is not None:
                for node in self.graph.nodes:
                    self._watch(self.tape, node, self._watched)
                self._watched.update(number for _, number, _ in self.tape.watched)
        return self._watched

    def _watch(self, tape: UserTape, node: Node, watched: set[int]) -> None:
        at = self.examined.at[node.id]
        if not tape.covers(at):
            return
        watched.update(number for when, number, _ in tape.watched if when <= at)
        if (node.op in compat.READS_VARIABLE or node.op == HOST) and tape.watches_variables:
            watched.update(k for k in node.inputs if self._is_variable(k) and self._trainable(k))
        if not watched.isdisjoint(node.inputs) and node.gradient in ("yes", "custom"):
            watched.update(node.outputs)

    def _is_variable(self, number: int) -> bool:
        return self.log.tensors[number][1] == compat.RESOURCE

    def _trainable(self, number: int) -> bool:
        for moment in self.recording.moments.variables():
            if number in (moment.number, self.log.number(moment.number)):
                return bool(moment.variable.trainable)
        return True

    def starts(self, tensor: int) -> int | None:
        if self.tape is None:
            return -1
        when = [w for w, number, _ in self.tape.watched if number == tensor]
        if when:
            nodes = self.graph.nodes
            return next((n.id - 1 for n in nodes if self.examined.at[n.id] >= when[0]), len(nodes))
        return -1 if tensor in self.watched else None

    def off(self, node: Node) -> str:
        return "tape_closed" if self.tape is not None and not self.tape.covers(self.examined.at[node.id]) else ""

    def unfollowed(self, tensor: int) -> tuple[str, Where | None, str] | None:
        """Why the user's tape does not follow a tensor."""
        tape = self.tape
        if tape is None:
            return None
        late = [spot for _, number, spot in tape.watched if number == tensor]
        if late:
            return "late_requires_grad", place(*late[0]) if late[0] else None, "it had been used before it was watched"
        if not self._trainable(tensor):
            return "not_requires_grad", None, "the variable has trainable=False, so no tape watches it by itself"
        if self._is_variable(tensor):
            led = self.log.ancestors([self.y])[0] if self.y is not None else set()
            read = next((n for n in self.graph.nodes if tensor in n.inputs and not led.isdisjoint(n.outputs)), None)
            if read is not None:
                return "tape_closed", self.outside(read), "the variable was read where the tape does not look"
        reassigned = self._was_variable(tensor)
        if reassigned is not None:
            return "variable_reassigned_to_tensor", reassigned, "the name meant a tf.Variable before, and means a tensor since"
        where = place(*tape.where) if tape.where else None
        return "unwatched", where, "no tape.watch() names it, and it is no variable"

    def _was_variable(self, tensor: int) -> Where | None:
        """Where a name that meant a variable came to mean this tensor."""
        for name in self.recording.names:
            for earlier, later in pairwise(self.recording.names.all(name)):
                if earlier.object.variable is not None and later.object.number == tensor:
                    return later.where
        return None

    def outside(self, node: Node) -> Where | None:
        """The line, in the function that opened the tape, in which something was computed after the tape had closed."""
        tape = self.tape
        if tape is None or tape.where is None or node.where is None:
            return None
        code = tape.where[0]
        if node.where.function == function_name(code) and node.where.file == code.co_filename:
            return node.where
        after = set(node.outputs)
        for later in self.graph.nodes[node.id :]:
            if not after.isdisjoint(later.inputs):
                after.update(later.outputs)
        bound = [b for name in self.recording.names for b in self.recording.names.all(name) if b.code is code]
        found = [b for b in bound if b.object.number in after]
        return min(found, key=lambda b: b.where.line).where if found else node.where

    def consumed(self, y: int) -> tuple[Where | None, str] | None:
        """A tape that answers once has answered for something else."""
        tape = self.tape
        if tape is None or tape.persistent or not tape.asked or any(y in asked.targets for asked in tape.asked):
            return None
        spot = tape.asked[0].where
        return (place(*spot) if spot else None), "this call uses the tape up, and it is not persistent"
