"""Recording while the user's function runs: every operation is noted, nothing is computed before it is needed.

Python code that asks for a number (`if x.sum() > 0:`, `float(x)`, a boolean mask) gets it: what it takes is computed
then and there. Where a number left JAX is remembered, because no derivative can follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.program import Op, Program, Var
from wrt._core.where import Where, place, spot, user_files
from wrt._names.settrace import hushed
from wrt.errors import EngineRefused


@dataclass(frozen=True, slots=True)
class Left:
    """A value that Python asked for: for a branch, which derivatives ignore, or as a number they cannot follow."""

    var: Var
    how: str
    where: Where | None
    at: int
    """How many operations had been recorded."""


class Recorded(compat.Tracer):
    """What stands for an array while the user's function runs."""

    __slots__ = ("recorder", "stands_for")

    def __init__(self, recorder: Recorder, var: Var) -> None:
        super().__init__(recorder, var.aval)
        self.recorder = recorder
        self.stands_for = var

    def _number(self, how: str) -> Any:
        return self.recorder.asked(self.stands_for, how)

    def to_concrete_value(self) -> Any:
        return None if compat.only_probing() else self._number("array")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._number("array"), dtype=dtype)

    def __bool__(self) -> bool:
        return bool(self._number("bool"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __index__(self) -> int:
        return int(self._number("index").__index__())

    def __float__(self) -> float:
        return float(self._number("float"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def item(self, *args: int) -> Any:
        return self._number("item").item(*args)

    def tolist(self) -> Any:
        return self._number("tolist").tolist()

    def block_until_ready(self) -> Recorded:
        return self

    def _origin_msg(self) -> str:
        return ""

    def _contents(self) -> tuple[Any, ...]:
        return ()

    def __format__(self, spec: str) -> str:
        return format(self._number("format"), spec) if spec else repr(self)


class Recorder(compat.Trace):
    """JAX's own interpreter hook: operations arrive here one by one."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.requires_low = False
        self.program = program
        self.left: list[Left] = []
        self.constants: dict[int, tuple[Any, Var]] = {}
        self.given: frozenset[Var] = frozenset()
        self.closed_over: set[Var] = set()  # of what was given: the function reaches it in another way too
        self.on_inlined: Callable[[Any, dict[Any, Var]], None] | None = None
        self.on_emitted: Callable[[Op], None] | None = None
        self.open = True
        self.calls: tuple[str, ...] = ()

    # ---------------------------------------------------------------- values

    def wrap(self, var: Var) -> Recorded:
        return Recorded(self, var)

    def var_of(self, thing: Any) -> Var:
        """The Var of anything that can be an operand; the same array of JAX is the same Var.

        Numbers have no identity, and an array of NumPy may have been changed since it was last used.
        """
        if isinstance(thing, Recorded) and thing.recorder is self:
            return thing.stands_for
        if not isinstance(thing, jax.Array):
            return self.program.leaf(thing)
        known = self.constants.get(id(thing))
        if known is None:
            known = self.constants[id(thing)] = (thing, self.program.leaf(thing))
        elif known[1] in self.given:
            self.closed_over.add(known[1])
        return known[1]

    def asked(self, var: Var, how: str) -> Any:
        found = spot() if self.open else None
        self.left.append(Left(var, how, place(*found) if found else None, len(self.program.ops)))
        return self.program.value(var)

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Operations of our own making: nobody is told."""
        heard = self.on_emitted, self.on_inlined
        self.on_emitted = self.on_inlined = None
        try:
            yield
        finally:
            self.on_emitted, self.on_inlined = heard

    # ---------------------------------------------------------------- JAX calls these

    def stage_value(self, val: Any) -> Any:
        return self.wrap(self.var_of(val))

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        source, watch = compat.current_source(), hushed()
        try:
            found = self.emit(primitive, [self.var_of(t) for t in tracers], params, source)
        finally:
            if watch is not None:
                watch.go_on()
        outputs = [self.wrap(var) for var in found]
        return outputs if primitive.multiple_results else outputs[0]

    def process_call(self, primitive: Any, f: Any, tracers: Sequence[Any], params: dict[str, Any], /) -> Any:
        with compat.set_current_trace(self):
            return f.call_wrapped(*tracers)

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, *, symbolic_zeros: bool) -> Any:
        return self._whole(primitive, tracers, {"subfuns": (fun, jvp), "symbolic_zeros": symbolic_zeros})

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, *, out_trees: Any, symbolic_zeros: bool
    ) -> Any:
        params = {"subfuns": (fun, fwd, bwd), "out_trees": out_trees, "symbolic_zeros": symbolic_zeros}
        return self._whole(primitive, tracers, params)

    def process_map(self, primitive: Any, f: Any, tracers: Any, params: Any, /) -> Any:
        raise _on_many_devices(str(primitive.name))

    def process_shard_map(self, primitive: Any, *given: Any, **words: Any) -> Any:
        raise _on_many_devices(str(primitive.name))

    def _whole(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any]) -> list[Recorded]:
        """A function with a derivative of its own stays one operation, so that this derivative is used."""
        given = [self.var_of(t) for t in tracers]
        jaxpr, consts = compat.staged(lambda *a: primitive.bind(*a, **params), [v.aval for v in given], primitive.name)
        source = compat.current_source()
        return [self.wrap(var) for var in self.inline(jaxpr, [self.var_of(c) for c in consts], given, source)]

    # ---------------------------------------------------------------- noting

    def emit(self, primitive: Any, inputs: Sequence[Var], params: dict[str, Any], source: Any, read: Any = None) -> list[Var]:
        """Note one operation; a call is replaced by what it contains. `read`: the equation of a jaxpr it comes from."""
        if primitive.name in compat.INLINED:
            jaxpr, consts = compat.sub_jaxpr(params)
            outside, self.calls = self.calls, (*self.calls, str(params.get("name", primitive.name)))
            try:
                return self.inline(jaxpr, [self.var_of(c) for c in consts], inputs, source)
            finally:
                self.calls = outside
        if read is None:
            avals, effects = compat.abstract_eval(primitive, [v.aval for v in inputs], params)
        else:
            avals, effects = [v.aval for v in read.outvars], read.effects
        op = Op(primitive, params, tuple(inputs), (), source, compat.current_context(), effects, len(self.program.ops))
        op.calls = self.calls
        op.outputs = tuple(Var(aval, op, k) for k, aval in enumerate(avals))
        self.program.ops.append(op)
        made = list(op.outputs)
        if self.on_emitted is not None and primitive.name in compat.CONTROL:
            self.on_emitted(op)
        return made

    def inline(self, jaxpr: Any, consts: Sequence[Var], inputs: Sequence[Var], source: Any) -> list[Var]:
        """The operations of a jaxpr, one by one, as if they had been called here."""
        env: dict[Any, Var] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))
        file = compat.file_of(jaxpr)
        own_lines = bool(file) and user_files[file]  # a library function was read at its first call, from other lines

        def read(atom: Any) -> Var:
            return self.var_of(atom.val) if isinstance(atom, compat.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            names = source.name_stack + eqn.source_info.name_stack
            here = (eqn.source_info if own_lines else source).replace(name_stack=names)
            with eqn.ctx.manager:
                found = self.emit(eqn.primitive, [read(a) for a in eqn.invars], eqn.params, here, eqn)
            env.update(zip(eqn.outvars, found, strict=True))
        if self.on_inlined is not None:
            self.on_inlined(jaxpr, env)
        return [read(a) for a in jaxpr.outvars]


def _on_many_devices(name: str) -> EngineRefused:
    return EngineRefused(
        f"{name} inside a recorded function",
        "what runs on several devices at once is not recorded operation by operation",
        f"record the function that {name} maps over the devices, or the code around it",
    )
