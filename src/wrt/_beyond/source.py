"""Where blocks come from: a model that travels, or a live graph that stays."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from wrt._beyond.model import COUNTS, LOCK, Model, model_of
from wrt._beyond.pack import fingerprint
from wrt._beyond.question import Question, without_entries
from wrt._beyond.solve import Region, Solver
from wrt._beyond.thresholds import KEPT_BYTES, KEPT_RUNS, ROUNDINGS_APART
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle
from wrt._run.options import Options, current, options
from wrt.errors import CannotTravel

_SOLVERS: OrderedDict[Any, Solver] = OrderedDict()


class Recipe:
    """A question about a model: plain data, the same in every process."""

    def __init__(self, model: Model, question: Question, budget: int, seen: npt.NDArray[Any] | None) -> None:
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
        with LOCK, same_options(self.question.options), self.model.same_settings():
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
            asked = self.question.in_run(run._one)
            _refuse_another_run(self.seen, asked)
            _SOLVERS[key] = Solver(asked, self.budget)
            while len(_SOLVERS) > KEPT_RUNS:
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
            return f"live-{fingerprint(self._asked.shape, self._solver.combination(seed=9))}"

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with LOCK, same_options(self.options):
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


def source_of(derivative: Derivative, budget: int = KEPT_BYTES) -> Source:
    """Where the blocks of a derivative come from."""
    model = model_of(without_entries(derivative)._y.record)
    if model is None:
        return Live(derivative, budget)
    return Recipe(model, Question.of(derivative), budget, sample_of(derivative))


def cannot_travel(what: str = "J.dask()", otherwise: str = "") -> CannotTravel:
    """What to write instead of sending a live graph; `otherwise` is a way that stays in this process."""
    model = "t = wrt.Model(build, state, x).trace(), then d(t.output) / d(t.inputs[0])"
    return CannotTravel(
        f"{what}: the graph of live tensors stays in this process",
        "the workers are other processes, and a live graph cannot be sent",
        f"write {'model=wrt.Model(build, state)' if what == 'wrt.map' else model}{otherwise}",
    )


def same_options(chosen: Options) -> AbstractContextManager[Options]:
    """Inside, `wrt.options` are what they were where the question was asked."""
    return options(**{one.name: getattr(chosen, one.name) for one in fields(chosen)})


def sample_of(derivative: Derivative) -> npt.NDArray[Any] | None:
    """Numbers of this run at up to 64 positions spread over y; None where a run does not keep its numbers.

    By them another process sees that it recorded the same run: a builder that draws at random, reads a file that changed
    or meets another version of a package gives another one, and its blocks must never stand next to blocks of this one.
    """
    value = derivative._y
    if not value.size:
        return None
    positions = np.unique(np.linspace(0, value.size - 1, min(64, value.size)).astype(np.int64))
    try:
        whole = Handle(value.record, value).value  # type: ignore[arg-type]
    except Exception:
        return None
    arrays = value.record.backend.arrays
    return arrays.numpy(arrays.take(arrays.reshape(whole, (-1,)), positions, 0))


def _refuse_another_run(seen: npt.NDArray[Any] | None, derivative: Derivative) -> None:
    """Raise where this process recorded something else."""
    here = None if seen is None else sample_of(derivative)
    if seen is None or here is None:
        return
    worst, scale = apart(here, seen)
    if worst > ROUNDINGS_APART * derivative._y.record.backend.arrays.precision(derivative._y) * scale:
        raise another_model(
            f"y differs by {worst:.1e} from the run that the question was asked of, whose numbers are up to {scale:.1e}"
        )


def apart(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> tuple[float, float]:
    """How far numbers are apart and how large they are; infinitely far where only one of two is finite.

    >>> apart(np.array([1.0, np.nan]), np.array([1.5, np.nan]))
    (0.5, 1.5)
    """
    both = np.isfinite(one) & np.isfinite(other)
    with np.errstate(invalid="ignore"):
        worst = float(np.max(np.abs(one - other), initial=0.0, where=both))
    scale = float(np.max(np.abs(other), initial=0.0, where=both))
    return (worst if (np.isfinite(one) == np.isfinite(other)).all() else math.inf), scale


def another_model(where: str) -> CannotTravel:
    return CannotTravel(
        "the model built in this process is not the one that was asked about",
        where,
        "let build(state) give the same model everywhere: no random numbers, the same files and versions",
    )
