"""Where blocks come from: a model that travels, or a live graph that stays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from wrt._beyond.fingerprint import fingerprint
from wrt._beyond.model import COUNTS, LOCK, Model, model_of
from wrt._beyond.question import Question, without_entries
from wrt._beyond.solve import Region, Solver
from wrt._beyond.witness import Witness, refuse_another_run, witness
from wrt._notation.derivative import Derivative
from wrt._run.options import current, options
from wrt.errors import CannotTravel

BUDGET = 2**29
"""Bytes that a process may keep of a structure or of factors to answer blocks from.

It decides how a block is computed, and so its last bits: an answer on disk goes on with the budget it was begun with.
"""

_SOLVERS: OrderedDict[Any, Solver] = OrderedDict()
KEPT = 2  # questions of which this process keeps what it found out
SEED = 9


class Recipe:
    """A question about a model: plain data, the same in every process."""

    def __init__(self, model: Model, question: Question, budget: int, seen: Witness | None) -> None:
        self.model = model
        self.question = question
        self.budget = budget
        self.seen = seen
        self.token = fingerprint(model.token, *question.key, repr(question.options))

    @property
    def identity(self) -> str:
        """What an answer on disk is known by: the same for the same question in every process."""
        return self.token

    @property
    def device(self) -> str | None:
        """The accelerator of this process; None where the framework decides."""
        return self.model.device_here()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Inside, this process computes as the sender's would, and nothing else of wrt's beyond runs."""
        with LOCK, options(**_as_dict(self.question.options)), self.model.settled():
            yield

    def block(self, region: Region) -> npt.NDArray[Any]:
        """The numbers of a region; the run is recorded when the first block of this process is asked for."""
        with self.at_work():
            solver = self.solver()
            COUNTS["blocks"] += 1
            return solver.block(region)

    def solver(self) -> Solver:
        run = self.model.trace()
        key = (self.token, self.budget, id(run))
        if key not in _SOLVERS:
            asked = self.question.asked(run._one)
            refuse_another_run(self.seen, asked)
            _SOLVERS[key] = Solver(asked, self.budget)
            while len(_SOLVERS) > KEPT:
                _SOLVERS.popitem(last=False)
        return _SOLVERS[key]

    def __str__(self) -> str:
        return str(self.question)


class Live:
    """A question about tensors that are alive in this process: any thread of it may answer, no other process can."""

    device = None  # where the tensors are

    def __init__(self, derivative: Derivative, budget: int) -> None:
        self.options = current()
        self.token = f"live-{id(derivative):x}-{np.random.default_rng().integers(2**62):x}"
        self._asked = derivative
        self._solver = Solver(derivative, budget)

    @property
    def identity(self) -> str:
        """One row of it, a random combination of all rows: tensors have no name that another process would know."""
        with self.at_work():
            return f"live-{fingerprint(self._asked.shape, self._solver.combination(SEED))}"

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with LOCK, options(**_as_dict(self.options)):
            yield

    def block(self, region: Region) -> npt.NDArray[Any]:
        with self.at_work():
            COUNTS["blocks"] += 1
            return self._solver.block(region)

    def solver(self) -> Solver:
        return self._solver

    def __reduce__(self) -> NoReturn:
        raise cannot_travel()

    def __str__(self) -> str:
        return "a question about live tensors"


Source = Recipe | Live


def source_of(derivative: Derivative, budget: int = BUDGET) -> Source:
    """Where the blocks of a derivative come from."""
    model = model_of(without_entries(derivative)._y.record)
    if model is None:
        return Live(derivative, budget)
    return Recipe(model, Question.of(derivative), budget, witness(derivative))


def cannot_travel(what: str = "J.dask()", otherwise: str = "") -> CannotTravel:
    """What to write instead of sending a live graph; `otherwise` is a way that stays in this process."""
    model = "t = wrt.Model(build, state, x).trace(), then d(t.output) / d(t.inputs[0])"
    return CannotTravel(
        f"{what}: the graph of live tensors stays in this process",
        "the workers are other processes, and a live graph cannot be sent",
        f"write {'model=wrt.Model(build, state)' if what == 'wrt.map' else model}{otherwise}",
    )


def _as_dict(chosen: Any) -> dict[str, Any]:
    return {name: getattr(chosen, name) for name in type(chosen).__dataclass_fields__}
