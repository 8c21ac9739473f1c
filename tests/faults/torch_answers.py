"""Questions of torch programs, and their truth: a loop of plain backward passes."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from tests.faults.faults import Numbers
from tests.faults.questions import Program, Question
from tests.faults.torch_programs import PROGRAMS
from wrt import d

Tensor = torch.Tensor


@cache
def question(name: str, dtype: str) -> Question:
    program = PROGRAMS[name]
    x = torch.from_numpy(program.point()).to(getattr(torch, dtype)).requires_grad_()
    y = program.f(x)
    rows, columns = program.rows, program.columns

    def ask() -> object:
        return (d(y)[rows] if rows else d(y)) / (d(x)[columns] if columns else d(x))

    found = Question(name, dtype, program, ask, row_loop(y, x, program))
    if dtype == "bfloat16" and program.strategy == "colored":
        found.plan = question(name, "float64").first_plan()  # the pattern of bfloat16 operators is not looked for
    return found


def row_loop(y: Tensor, x: Tensor, program: Program | None = None) -> Numbers:
    """The truth: one plain backward for each row."""
    rows = np.arange(y.numel()).reshape(y.shape)[program.rows if program else ()].reshape(-1)
    columns = np.arange(x.numel()).reshape(x.shape)[program.columns if program else ()].reshape(-1)
    found = []
    for row in rows.tolist():
        seed = torch.zeros(y.numel(), dtype=y.dtype)
        seed[row] = 1
        (gradient,) = torch.autograd.grad(y, x, seed.reshape(y.shape), retain_graph=True)
        found.append(gradient.reshape(-1)[columns])
    truth: Numbers = torch.stack(found).double().numpy()
    return truth
