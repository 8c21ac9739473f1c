"""Loops and branches: what is inside is named when the operation is recorded, and opened when somebody asks for it.

An operation is replaced by several that compute the same: the iterations before k as one scan, iteration k operation by
operation, the iterations after it as one scan; a `while` by a scan over the iterations that it ran. What the operation
returned keeps its place in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax

from wrt._backends.jax import compat
from wrt._backends.jax.program import Alike, Op, Var, between, comparable
from wrt._core.thresholds import FEW_ITEMS, MOST_NODES
from wrt._core.value import Value

if TYPE_CHECKING:
    from wrt._backends.jax.record import JaxRecord

Env = dict[Any, Var]


@dataclass(slots=True)
class Piece:
    """Iterations `start` to `stop` of a loop: one scan, or a single iteration laid open."""

    start: int
    stop: int
    op: Op | None
    env: Env | None = None


@dataclass(slots=True)
class Loop:
    """A scan of the run, as far as it was taken apart."""

    pieces: list[Piece]

    @classmethod
    def of(cls, op: Op) -> Loop:
        return cls([Piece(0, op.params["length"], op)])

    def iteration(self, record: JaxRecord, k: int) -> Env:
        """The arrays of iteration k, by the variables of the loop's body."""
        at = next(index for index, piece in enumerate(self.pieces) if piece.start <= k < piece.stop)
        piece = self.pieces[at]
        if piece.env is None:
            self.pieces[at : at + 1] = _split(record, piece, k)
            return self.iteration(record, k)
        return piece.env


def _split(record: JaxRecord, piece: Piece, k: int) -> list[Piece]:
    op = piece.op
    assert op is not None
    opened: list[Env] = []

    def pieces(*arrays: Any) -> list[Any]:
        return _run_pieces(record, op, k - piece.start, arrays, opened)

    new = substitute(record, op, pieces)
    scans = [made for made in new if made.name == "scan" and made.params["jaxpr"] is op.params["jaxpr"]]
    found = []
    if k > piece.start:
        found.append(Piece(piece.start, k, scans.pop(0)))
    found.append(Piece(k, k + 1, None, opened[0]))
    if k + 1 < piece.stop:
        found.append(Piece(k + 1, piece.stop, scans.pop()))
    return found


def _run_pieces(record: JaxRecord, op: Op, k: int, arrays: Sequence[Any], opened: list[Env]) -> list[Any]:
    params = op.params
    length, backwards = params["length"], params["reverse"]
    first, many = compat.scan_counts(params)
    consts, carry, xs = _split_list(arrays, first, many)

    def part(start: int, stop: int) -> tuple[int, int]:
        return (length - stop, length - start) if backwards else (start, stop)

    def scan(carry: Sequence[Any], start: int, stop: int) -> tuple[Sequence[Any], Sequence[Any]]:
        if start == stop:
            return carry, []
        low, high = part(start, stop)
        some = [x[low:high] for x in xs]
        out = op.primitive.bind(*consts, *carry, *some, **(params | {"length": stop - start}))
        return out[:many], out[many:]

    carry, before = scan(carry, 0, k)
    at, _ = part(k, k + 1)
    given = [_fresh(array) for array in (*consts, *carry, *(x[at] for x in xs))]
    out = open_jaxpr(record, params["jaxpr"], given, op.source, opened)
    carry, one = out[:many], [y[None] for y in out[many:]]
    carry, after = scan(carry, k + 1, length)
    parts = [list(ys) for ys in (before, one, after) if len(ys)]
    stacked = zip(*(reversed(parts) if backwards else parts), strict=True)
    return [*carry, *(jax.numpy.concatenate(ys) if len(ys) > 1 else ys[0] for ys in stacked)]


def open_jaxpr(record: JaxRecord, closed: Any, given: Sequence[Any], source: Any, opened: list[Env]) -> list[Any]:
    """The operations of a jaxpr, laid open; `opened` receives which array each of its variables became."""
    recorder = record.recorder
    before, recorder.on_inlined = recorder.on_inlined, lambda jaxpr, env: opened.append(env)
    try:
        consts = [recorder.var_of(c) for c in closed.consts]
        found = recorder.inline(closed.jaxpr, consts, [recorder.var_of(g) for g in given], source)
    finally:
        recorder.on_inlined = before
    opened[:] = opened[-1:]  # calls inside it were laid open first
    return [recorder.wrap(var) for var in found]


def substitute(record: JaxRecord, op: Op, function: Callable[..., Sequence[Any]]) -> list[Op]:
    """Put operations that compute the same in the place of one; what it returned stays the same Vars."""
    recorder, program = record.recorder, record.program
    start = len(program.ops)
    with compat.set_current_trace(recorder), recorder.unheard():
        found = [_fresh(out) for out in function(*(recorder.wrap(v) for v in op.inputs))]
    new = program.ops[start:]
    del program.ops[start:]
    for old, out in zip(op.outputs, found, strict=True):
        last = recorder.var_of(out).op
        assert last is not None
        last.outputs, old.op, old.output = (old,), last, 0
    for made in new:
        made.source = op.source if not made.source.traceback or made.where is None else made.source
    at = program.ops.index(op)
    program.ops[at : at + 1] = new
    program.number()
    return new


def _fresh(array: Any) -> Any:
    """The same numbers as an array of its own, so that it can be asked about apart from what it came from."""
    return compat.copy(array)


def counted(record: JaxRecord, op: Op) -> Op | None:
    """A `while` as a scan over the iterations that it ran: these have a backward pass, and can be asked about.

    None where it ran not at all.
    """
    params = op.params
    arrays = [record.program.value(v) for v in op.inputs]
    with compat.outside():
        length = int(_counter(comparable(params))(*arrays))

    def scan(*given: Any) -> Sequence[Any]:
        _, consts, carry = _split_list(given, params["cond_nconsts"], params["body_nconsts"])
        return compat.scan(params["body_jaxpr"], consts, carry, length)

    new = substitute(record, op, scan)
    return next((made for made in new if made.name == "scan"), None)


@lru_cache(maxsize=64)
def _counter(known: tuple[tuple[str, Any], ...]) -> Any:
    """A program that counts the iterations of a `while` with these parameters."""
    params = {name: given.thing if isinstance(given, Alike) else given for name, given in known}
    return jax.jit(lambda *arrays: _iterations(params, arrays))


def _iterations(params: dict[str, Any], arrays: Sequence[Any]) -> Any:
    tests, consts, carry = _split_list(arrays, params["cond_nconsts"], params["body_nconsts"])

    def go_on(state: tuple[Any, Sequence[Any]]) -> Any:
        return compat.evaluate(params["cond_jaxpr"], (*tests, *state[1]))[0]

    def step(state: tuple[Any, Sequence[Any]]) -> tuple[Any, Sequence[Any]]:
        return state[0] + 1, compat.evaluate(params["body_jaxpr"], (*consts, *state[1]))

    return jax.lax.while_loop(go_on, step, (0, list(carry)))[0]


def _split_list(things: Sequence[Any], first: int, second: int) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    return things[:first], things[first : first + second], things[first + second :]


class Loops:
    """What is known of the insides of a run's loops and branches."""

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
        if not inner or len(inner) * op.params["length"] > MOST_NODES:
            return
        loop, arrays = Loop.of(op), _Iterations(op)
        for k in range(op.params["length"]):
            for var, binding in inner:
                stand_in, home = arrays.stand_in(k, var)
                self._waiting.setdefault(stand_in, (loop, *home))
                self.record.naming.add(binding, stand_in)

    def _take_branch(self, op: Op) -> None:
        chosen, branches = int(self.record.program.value(op.inputs[0])), op.params["branches"]
        branch = branches[chosen if 0 <= chosen < len(branches) else -1]  # as XLA does
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

    def count(self, y: Var, xs: Sequence[Var]) -> None:
        """A `while` on the way ran a known number of times: from here on it is that many iterations."""
        if not any(op.name == "while" for op in self.record.program.ops):
            return
        for op in between(y, xs)[0]:
            if op.name == "while":
                self._count(op)

    @contextmanager
    def written_out(self, y: Var, x: Var) -> Iterator[bool]:
        """Inside, the operations of every iteration stand in the place of short loops between x and y; False: there is none.

        Afterwards the run is what it was: an examination must not change what is answered later.
        """
        program = self.record.program
        before = list(program.ops)
        short = [op for op in between(y, [x])[0] if op.name == "scan" and op.params["length"] <= FEW_ITEMS]
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

    def var_of(self, value: Value) -> Var:
        """The Var of a Value; an iteration of a loop is opened the first time it is asked for."""
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
