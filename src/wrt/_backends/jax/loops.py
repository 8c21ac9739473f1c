"""Taking loops apart: iteration k of a scan, a `while` that ran a known number of times.

An operation is replaced by several that compute the same: the iterations before k as one scan, iteration k operation by
operation, the iterations after it as one scan. What the operation returned keeps its place in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from wrt._backends.jax import compat
from wrt._backends.jax.program import Op, Var

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
        length = int(jax.jit(lambda *arrays: _iterations(params, arrays))(*arrays))

    def scan(*given: Any) -> Sequence[Any]:
        _, consts, carry = _split_list(given, params["cond_nconsts"], params["body_nconsts"])
        return compat.scan(params["body_jaxpr"], consts, carry, length)

    new = substitute(record, op, scan)
    return next((made for made in new if made.name == "scan"), None)


def _iterations(params: dict[str, Any], arrays: Sequence[Any]) -> Any:
    tests, consts, carry = _split_list(arrays, params["cond_nconsts"], params["body_nconsts"])

    def go_on(state: tuple[Any, Sequence[Any]]) -> Any:
        return compat.evaluate(params["cond_jaxpr"], (*tests, *state[1]))[0]

    def step(state: tuple[Any, Sequence[Any]]) -> tuple[Any, Sequence[Any]]:
        return state[0] + 1, compat.evaluate(params["body_jaxpr"], (*consts, *state[1]))

    return jax.lax.while_loop(go_on, step, (0, list(carry)))[0]


def _split_list(things: Sequence[Any], first: int, second: int) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    return things[:first], things[first : first + second], things[first + second :]
