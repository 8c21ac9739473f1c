"""Values inside loops and branches: named when the operation is recorded, laid open when somebody asks for one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wrt._backends.jax import compat
from wrt._backends.jax.loops import Loop, counted, open_jaxpr, substitute
from wrt._backends.jax.program import Op, Var, between
from wrt._core.value import Value

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord

MOST = 20_000  # names given to the iterations of one loop
SHORT = 64  # iterations that an examination takes apart


class Inside:
    """What is known of the insides of a run's loops."""

    def __init__(self, record: JaxRecord) -> None:
        self.record = record
        self.counted: list[Op] = []
        self.decided: list[Op] = []  # replaced by what they did, which their numbers decided
        self._waiting: dict[Var, tuple[Loop, int, Any]] = {}

    def emitted(self, op: Op) -> None:
        """A loop or a branch was recorded: give the names seen inside to its iterations, or to the branch that ran."""
        if op.name == "scan":
            self._name_iterations(op)
        elif op.name == "while" and self._named(op.params["body_jaxpr"]):
            loop = self._count(op)
            if loop is not None:
                self._name_iterations(loop)
        elif op.name == "cond" and any(map(self._named, op.params["branches"])):
            self._take_branch(op)

    def _named(self, closed: Any) -> bool:
        return bool(self.record.naming.inside(closed.jaxpr))

    def _name_iterations(self, op: Op) -> None:
        inner = self.record.naming.inside(op.params["jaxpr"].jaxpr)
        if not inner or len(inner) * op.params["length"] > MOST:
            return
        loop, arrays = Loop.of(op), _Iterations(op)
        for k in range(op.params["length"]):
            for var, binding in inner:
                stand_in, home = arrays.stand_in(k, var)
                self._waiting.setdefault(stand_in, (loop, *home))
                self.record.naming.add(binding, stand_in)

    def _take_branch(self, op: Op) -> None:
        branch = op.params["branches"][int(self.record.program.value(op.inputs[0]))]
        self.decided.append(op)
        opened: list[dict[Any, Var]] = []
        substitute(self.record, op, lambda _, *given: open_jaxpr(self.record, branch, given, op.source, opened))
        self.record.naming.inlined(branch.jaxpr, opened[0])

    def _count(self, op: Op) -> Op | None:
        self.decided.append(op)
        loop = counted(self.record, op)
        if loop is not None:
            self.counted.append(loop)
        return loop

    def count_loops(self, y: Var, xs: Sequence[Var]) -> None:
        """A `while` on the way ran a known number of times: from here on it is that many iterations."""
        if not any(op.name == "while" for op in self.record.program.ops):
            return
        for op in between(y, xs)[0]:
            if op.name == "while":
                self._count(op)

    @contextmanager
    def laid_open(self, y: Var, x: Var) -> Iterator[bool]:
        """Inside, the operations of every iteration stand in the place of short loops between x and y; False: there is none.

        Afterwards the run is what it was: an examination must not change what is answered later.
        """
        program = self.record.program
        before = list(program.ops)
        short = [op for op in between(y, [x])[0] if op.name == "scan" and op.params["length"] <= SHORT]
        try:
            for op in short:
                loop = Loop.of(op)
                for k in range(op.params["length"]):
                    loop.iteration(self.record, k)
            yield bool(short)
        finally:
            program.ops[:] = before
            for op in before:
                for place, var in enumerate(op.outputs):
                    var.op, var.output = op, place
            program.number()

    def settled(self, value: Value) -> Var:
        """The Var of a Value; an iteration of a loop is laid open the first time it is asked for."""
        var: Var = value.key
        if var in self._waiting:
            loop, k, inner = self._waiting.pop(var)
            self._become(var, loop.iteration(self.record, k), inner)
        return var

    def _become(self, stand_in: Var, env: dict[Any, Var], inner: Any) -> None:
        """The stand-in takes the place of the array it stood for."""
        program = self.record.program
        found, env[inner] = env[inner], stand_in
        if found in program.values:
            program.values[stand_in] = program.values[found]
        if found.op is None:
            return
        stand_in.op, stand_in.output = found.op, found.output
        found.op.outputs = tuple(stand_in if v is found else v for v in found.op.outputs)
        for op in program.ops:
            if found in op.inputs:
                op.inputs = tuple(stand_in if v is found else v for v in op.inputs)


class _Iterations:
    """One stand-in for each array of each iteration; what one iteration hands on is what the next one is given."""

    def __init__(self, op: Op) -> None:
        jaxpr = op.params["jaxpr"].jaxpr
        first, many = compat.scan_counts(op.params)
        given, handed_on = jaxpr.invars[first : first + many], jaxpr.outvars[:many]
        self._from = {a: b for a, b in zip(given, handed_on, strict=True) if not isinstance(b, compat.Literal)}
        self._known: dict[tuple[int, Any], Var] = {}

    def stand_in(self, k: int, var: Any) -> tuple[Var, tuple[int, Any]]:
        while k > 0 and var in self._from:
            k, var = k - 1, self._from[var]
        if (k, var) not in self._known:
            self._known[k, var] = Var(var.aval)
        return self._known[k, var], (k, var)
