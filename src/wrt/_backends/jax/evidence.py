"""A recorded JAX run under examination: every operation can be run again, so everything is known."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.program import Op, Var
from wrt._core.evidence import Again, Event, Numbers, cotangents, last_line, user_codes
from wrt._core.graph import Graph, Node
from wrt._core.value import Value
from wrt._core.where import Where, function_name, user_files

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord

WRAPPERS = frozenset(
    ["reraise_with_filtered_traceback", "cache_miss", "op", "meth", "__call__", "bind", "call_wrapped", "_getitem", "wrapper",
     "_run_python_pjit", "tree_map", "<lambda>", "<genexpr>", "fun", "deferring_binary_op", "_operator_matmul", "_method"]
)  # fmt: skip
JIT = frozenset(["cache_miss", "_run_python_pjit"])
HOW = {"float": "__float__", "int": "__int__", "bool": "__bool__", "index": "__index__", "array": "__array__",
       "complex": "__complex__"}  # fmt: skip


class JaxEvidence:
    """Everything `why` asks of one recording."""

    events: Sequence[Event] = ()

    def __init__(self, record: JaxRecord, ops: list[Op] | None = None, plain: Graph | None = None) -> None:
        self.record = record
        self.ops: list[Op] = record._recorded if ops is None else ops
        plain = plain or record.graph
        self.graph = Graph("jax", list(plain.nodes), plain.tensors, plain.inputs, plain.outputs)
        self.vars: dict[int, Var] = {}
        for node, op in zip(plain.nodes, self.ops, strict=True):
            self.vars.update(zip((*node.inputs, *node.outputs), (*op.inputs, *op.outputs), strict=True))
        known = [v.key for v in jax.tree.leaves((record.inputs, record.keywords)) if isinstance(v, Value)]
        self.vars.update(zip(plain.inputs, known, strict=True))
        self.numbers = {var: number for number, var in self.vars.items()}
        for left in record.recorder.left:  # a value that Python asked for: an operation without a result
            if left.var in self.numbers:
                how = HOW.get(left.how, left.how)
                given = (self.numbers[left.var],)
                self.graph.nodes.append(Node(len(self.graph.nodes), how, given, (), left.where, gradient="cut"))

    # ---------------------------------------------------------------- flags

    def moments(self, tensor: int) -> list[int]:
        return [tensor]

    def starts(self, tensor: int) -> int | None:
        return -1 if self.vars[tensor].differentiable else None

    def look_from(self, y: int) -> None:
        """There is one engine."""

    def unfollowed(self, tensor: int) -> tuple[str, Where | None, str] | None:
        return None

    def requests(self) -> Sequence[tuple[list[int], list[int]]]:
        return ()  # there are no tapes

    def unrecorded(self, y: int, x: int) -> Sequence[Where | None]:
        return ()  # a run of JAX is seen whole

    def consumed(self, y: int) -> tuple[Where | None, str] | None:
        return None

    def passes(self, node: Node, output: int) -> bool:
        return not self.ops[node.id].cuts and self.vars[output].differentiable

    def off(self, node: Node) -> str:
        return ""

    def via(self, node: Node) -> str:
        """The function of JAX that the user's line called."""
        if node.id >= len(self.ops):
            return ""
        op = self.ops[node.id]
        inner = compat.name_of(compat.sub_jaxpr(op.params)[0]) if op.name.startswith("custom_") else ""
        if inner:
            return inner
        frames = []
        for code, _ in compat.raw_frames(op.source):
            if user_files[code.co_filename]:
                break
            frames.append(code.co_name)
        for name in reversed(frames):  # from the user's line inwards, as far as the first jitted function
            if name in JIT and op.calls:
                break
            if name not in WRAPPERS and not name.startswith("_"):
                return name
        return op.calls[0].lstrip("_") if op.calls else ""

    # ---------------------------------------------------------------- numbers

    def value(self, tensor: int) -> Numbers | None:
        found = np.asarray(self.record.program.value(self.vars[tensor]))
        return found.astype(np.float64) if found.dtype.kind in "fiub" else None

    def saved(self, node: Node) -> dict[str, Numbers]:
        first = self.value(node.inputs[0]) if node.inputs and self.vars[node.inputs[0]].differentiable else None
        return {} if first is None else {"self": first}

    def mutates(self, node: Node) -> bool:
        return False

    def gradient_attribute(self, tensor: int) -> Numbers | None:
        return None

    def gradient(self, y: int, seed: Numbers, x: int) -> Numbers | None:
        return self.cotangents(y, seed).get(x)

    def largest(self, y: int, seed: Numbers, xs: Sequence[int]) -> list[float | None] | None:
        return None

    def cotangents(self, y: int, seed: Numbers, xs: frozenset[int] | None = None) -> dict[int, Numbers | None]:
        nodes = reversed(self.graph.nodes[: len(self.ops)])
        return cotangents(nodes, y, seed, self.local, lambda node: not self.ops[node.id].cuts)

    def local(self, node: Node, cotangents: Sequence[Numbers | None]) -> list[Numbers | None]:
        op = self.ops[node.id]
        run, moving = self._function(op)
        if not moving:
            return [None] * len(node.inputs)
        with compat.outside():
            made, pull = jax.vjp(run, *(self.record.program.value(op.inputs[k]) for k in moving))
            floating = [c for c, v in zip(cotangents, op.outputs, strict=True) if v.differentiable]
            seeds = [
                np.zeros(m.shape, m.dtype) if c is None else np.asarray(c).astype(m.dtype).reshape(m.shape)
                for m, c in zip(made, floating, strict=True)
            ]
            pulled = pull(list(seeds))
        found: list[Numbers | None] = [None] * len(node.inputs)
        for k, g in zip(moving, pulled, strict=True):
            same = node.inputs.index(node.inputs[k])
            numbers = np.asarray(g).astype(np.float64)
            found[same] = numbers if found[same] is None else found[same] + numbers  # type: ignore[operator]
        return found

    def push(self, node: Node, place: int, tangent: Numbers) -> list[Numbers | None] | None:
        op = self.ops[node.id]
        run, moving = self._function(op)
        if place not in moving:
            return None
        given = [self.record.program.value(op.inputs[k]) for k in moving]
        moved = [
            np.asarray(tangent if op.inputs[k] is op.inputs[place] else np.zeros(v.shape)).astype(v.dtype).reshape(v.shape)
            for k, v in zip(moving, given, strict=True)
        ]
        with compat.outside():
            _, pushed = jax.jvp(run, tuple(given), tuple(moved))
        found = iter(pushed)
        return [np.asarray(next(found)).astype(np.float64) if v.differentiable else None for v in op.outputs]

    def _function(self, op: Op) -> tuple[Any, list[int]]:
        """An operation as a function of its floating-point inputs, giving its floating-point outputs."""
        moving = [k for k, v in enumerate(op.inputs) if v.differentiable]
        fixed = {k: self.record.program.value(v) for k, v in enumerate(op.inputs) if not v.differentiable}

        def run(*given: Any) -> list[Any]:
            at = dict(zip(moving, given, strict=True))
            made = op.apply([at.get(k, fixed.get(k)) for k in range(len(op.inputs))])
            return [m for m, v in zip(made, op.outputs, strict=True) if v.differentiable]

        return run, moving

    def again(self, node: Node) -> Again | None:
        if node.id >= len(self.ops):
            return None
        op = self.ops[node.id]
        moving = [k for k, v in enumerate(op.inputs) if v.differentiable]
        values = [np.asarray(self.record.program.value(op.inputs[k])) for k in moving]
        run, _ = self._function(op)

        def call(inputs: Sequence[Numbers]) -> list[Numbers | None]:
            with compat.outside():
                made = iter(run(*(np.asarray(i).astype(v.dtype) for i, v in zip(inputs, values, strict=True))))
            return [np.asarray(next(made)).astype(np.float64) if v.differentiable else None for v in op.outputs]

        rule = _rule(op)
        precision = max((float(np.finfo(v.dtype).eps) for v in values if v.dtype.kind == "f"), default=1.2e-7)
        inputs = tuple(v.astype(np.float64) for v in values if v.dtype.kind == "f")
        if len(inputs) != len(moving):
            return None
        numbers = tuple(node.inputs[k] for k in moving)
        name = function_name(rule) if rule is not None else ""
        return Again(inputs, numbers, call, name, None if rule is None else last_line(rule), precision)

    def outside(self, node: Node) -> Where | None:
        return node.where

    def refused(self, y: int, x: int, path: Sequence[Node]) -> list[tuple[str, Node, str]]:
        found = []
        for node in path:
            if node.op == "while" or self.ops[node.id] in self.record.loops.counted:
                words = "JAX cannot run a while loop backwards: how often it ran is not known in advance"
                found.append(("no_reverse_rule", node, words))
            elif "callback" in node.op:
                found.append(("host_callback", node, "JAX has no derivative of a Python callback"))
        return found


def _rule(op: Op) -> CodeType | None:
    """The user's own rule, found behind JAX's wrappers."""
    if not op.name.startswith("custom_"):
        return None
    for name in ("jvp_jaxpr_fun", "jvp_jaxpr_thunk", "bwd", "fwd_jaxpr_thunk"):
        for code in user_codes(op.params.get(name)):
            return code
    return None
