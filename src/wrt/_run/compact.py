"""All of a Jacobian in the form that its plan gives: nonzeros, factors, or dense; and block by block where it is large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Positions
from wrt._core.plan import Plan, Way
from wrt._core.protocol import Array, Engine
from wrt._core.report import Certificate, Report
from wrt._plan.direct import direct
from wrt._plan.plans import better, patched, remember, worth_planning
from wrt._run import identity
from wrt._run.answer import Answer, answer, attempt, is_identity, look_by, meant, raise_unless_independent
from wrt._run.forms import Dense, Form
from wrt._run.memory import Growing, is_small, lines_per_call
from wrt._run.prove import Proof
from wrt._run.run import with_rows
from wrt._run.sweep import Sweeper
from wrt.errors import WrongShape

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def form_of(ask: Ask, report: Report, *, sifted: bool = False) -> Form | None:
    """All of J: nonzeros or factors where a plan gives those, dense where it is small; None where it is large and full.

    `sifted`: of a direct sweep the nonzeros would have to be picked out on the host.
    """
    if ask.m > 1 and worth_planning(ask) and not is_identity(ask):
        found = better_form(ask, report, sifted=sifted, dense=is_small(ask))
        if found is not None:
            return found
    if not is_small(ask):
        return None
    whole = answer(ask)
    report.take(whole.report)
    return Dense(ask, whole.array)


def better_form(ask: Ask, report: Report, *, sifted: bool = False, dense: bool = False) -> Form | None:
    """Nonzeros or factors, by a plan with fewer passes than rows or columns; None where there is none.

    `dense`: plans that give neither may answer too.
    """
    record = ask.y.record
    record.ready(ask.y, ask.x)
    for some in meant(ask):
        sweeper = Sweeper(some, record.engine(some.y, some.x.values), report)
        proof = Proof(sweeper)
        for plan in better(some, sweeper.engine, look_by(sweeper), report, sifted=sifted):
            if plan.strategy not in ("structured", "colored", "cut") and not dense:
                continue
            found = attempt(proof, plan, compact=True)
            if isinstance(found, Answer):
                remember(some, plan, sifted=sifted)
                return found.form
            if found == "no path":
                break
    return None


def row_blocks(ask: Ask, report: Report) -> Iterator[tuple[Positions, Array]]:
    """The Jacobian some rows at a time, each block proven by itself."""
    if ask.m == 0 or ask.n == 0:
        return
    ask.y.record.ready(ask.y, ask.x)
    size = lines_per_call(ask, ask.m)
    for some in meant(ask):
        engine = some.y.record.engine(some.y, some.x.values)
        for start in range(0, ask.m, size):
            rows = np.arange(start, min(start + size, ask.m))
            found = sweep_block(with_rows(some, rows), engine, report, "pull")
            if found is None:
                break
            yield rows, found
        else:
            return
    raise_unless_independent(ask)
    for start in range(0, ask.m, size):
        rows = np.arange(start, min(start + size, ask.m))
        yield rows, ask.y.record.backend.arrays.zeros((len(rows), ask.n), ask.x.values[0])


def sweep_block(ask: Ask, engine: Engine, report: Report, way: Way | None = None) -> Array | None:
    """One block by its own rows or columns, proven by itself; None where no path leads to x.

    What is told of all blocks is the evidence of the worst.
    """
    proof, before = Proof(Sweeper(ask, engine, report)), report.certificate
    patch = patched(ask, engine) if way is None else None
    tried: list[Plan] = [] if patch is None else [patch]
    for plan in [*tried, *direct(ask, engine, way)]:
        found = attempt(proof, plan)
        if isinstance(found, Answer):
            report.certificate = _worse(before, report.certificate)
            return found.array
        if found == "no path":
            return None
    raise AssertionError("plain rows never decline")


def _worse(one: Certificate | None, other: Certificate | None) -> Certificate | None:
    """Of two pieces of evidence: the one that did not hold, had to be looked at twice, or holds less closely."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other, key=lambda held: (not held, bool(held.words), held.share))


def diagonal(ask: Ask, report: Report) -> Array:
    """dy_i/dx_i in y's shape; the rest is never formed, or dropped block by block."""
    if ask.m != ask.n:
        raise WrongShape(
            f"a Jacobian of {ask.m} x {ask.n} has no diagonal",
            f"y has shape {ask.rows.shape}, x has shape {ask.x.shape}",
            "ask for elements of both sides that match, for example d(y)[:n] / d(x)[:n]",
        )
    arrays = ask.y.record.backend.arrays
    if is_identity(ask):
        identity.note(report)
        return arrays.reshape(identity.diagonal(ask), ask.rows.shape)
    form = form_of(ask, report)
    if form is not None:
        return arrays.reshape(form.diagonal(), ask.rows.shape)
    kept = []
    for rows, block in row_blocks(ask, report):
        spots = np.arange(len(rows)) * ask.n + rows
        kept.append(arrays.take(arrays.reshape(block, (-1,)), spots, 0))
    return arrays.reshape(arrays.concat(kept, 0), ask.rows.shape) if kept else arrays.zeros(ask.rows.shape, ask.x.values[0])


def sparse(ask: Ask, report: Report) -> csr_array:
    """The nonzeros: from rows swept together where a structure shows, otherwise block by block."""
    from scipy.sparse import csr_array, vstack

    if is_identity(ask):
        identity.note(report)
        return identity.sparse(ask)
    form = form_of(ask, report, sifted=True)
    if form is not None:
        return form.csr()
    arrays, blocks = ask.y.record.backend.arrays, []
    growing = Growing(ask, f"the nonzeros of {ask.m} x {ask.n} entries")
    for rows, block in row_blocks(ask, report):
        blocks.append(csr_array(arrays.numpy(block)))
        taken = 2 * blocks[-1].nnz * (blocks[-1].data.itemsize + 4)  # the pieces stand beside the matrix they are joined to
        growing.add(taken, int(rows[-1]) + 1, ask.m)
    return csr_array(vstack(blocks, format="csr")) if blocks else csr_array((ask.m, ask.n))
