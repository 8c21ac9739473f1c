"""Questions of JAX programs, and their truth: jax.jacrev, row by row."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import wrt
from tests.faults.faults import Numbers
from tests.faults.jax_programs import PROGRAMS
from tests.faults.questions import Question
from wrt import d


@cache
def question(name: str, dtype: str) -> Question:
    program = PROGRAMS[name]
    x = jnp.asarray(program.point(), dtype)
    run = wrt.trace(program.f, x)
    rows, columns = program.rows, program.columns

    def ask() -> object:
        y, at = run.output, run.inputs[0]
        J = (d(y)[rows] if rows else d(y)) / (d(at)[columns] if columns else d(at))
        kept = J.ask.y.record.answers  # of a run that cannot change: it is to be answered again
        if kept is not None:
            kept.clear()
        return J

    truth = program.chosen(row_loop(program.f, x), run.output.shape, x.shape)
    return Question(name, dtype, program, ask, truth)


def row_loop(f: object, x: jax.Array) -> Numbers:
    """The truth: one plain pull for each row."""
    y, pull = jax.vjp(f, x)
    one = jax.jit(lambda pull, row: pull(jnp.zeros(y.size, y.dtype).at[row].set(1).reshape(y.shape))[0])
    return np.stack([np.asarray(one(pull, row), np.float64).reshape(-1) for row in range(y.size)])
