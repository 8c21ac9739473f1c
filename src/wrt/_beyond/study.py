"""What `wrt.map` asks of every sample: found in the run of one sample alone, answered for a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from wrt._beyond.fingerprint import fingerprint
from wrt._beyond.flow_table import MEASURES, Places, flow_table, places_of
from wrt._beyond.lift import Batched, mixed
from wrt._beyond.model import COUNTS, LOCK, Model, same_chance
from wrt._beyond.pack import frameworks, pack, unpack
from wrt._beyond.question import Question
from wrt._beyond.samples import Samples
from wrt._core.index import Shape
from wrt._core.value import Value
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Trace, _backend_for, trace
from wrt._run.options import Options, current, options
from wrt.errors import CannotTravel, NotATensor, WrongQuery, WrongShape

Take = Literal["value", "norm", "diagonal", "flow"]
MOST = 2048  # samples in a batch, where nobody says otherwise
NUMBERS = 2**21  # of the larger side of all samples of a batch, likewise
SLACK = 2.0**13  # roundings by which a sample in a batch may differ from the same sample alone


_TRAVELS = ("model", "take", "about", "shape", "dtype", "options", "precision", "samples", "first")


@dataclass(slots=True)
class Study:
    """What is asked of every sample: the model, the question as found in the run of one sample, what is taken of it."""

    model: Any
    take: Take
    about: Question | Places
    shape: Shape
    dtype: np.dtype[Any]
    options: Options
    precision: float = 0.0
    samples: Samples | None = None
    first: tuple[Any, npt.NDArray[Any]] | None = None
    built: Any = field(default=None, compare=False)

    def answer(self, batch: tuple[Any, ...]) -> npt.NDArray[Any]:
        """(count, *shape) for the samples of a batch."""
        with LOCK, options(**{name: getattr(self.options, name) for name in Options.__dataclass_fields__}):
            COUNTS["batches"] += 1
            run = run_of(self, batch)
            count = int(batch[0].shape[0])
            if isinstance(self.about, Places):
                return flow_table(self.about, run._one, count)
            if count == 1:
                return _alone(self.about.asked(run._one), self.take)[None]
            batched = Batched(self.about, run._one, count)
            found: npt.NDArray[Any] = getattr(batched, self.take)()
            return found.reshape(count, *self.shape)

    @property
    def device(self) -> str | None:
        """The accelerator of this process; None where the framework or a live model decides."""
        return self.model.device_here() if isinstance(self.model, Model) else None

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _TRAVELS)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(_TRAVELS, state, strict=True):
            setattr(self, name, value)
        self.built = None


def run_of(study: Study, batch: tuple[Any, ...]) -> Trace:
    """The recorded run of a batch; a model that travels is built once in each process."""
    if not isinstance(study.model, Model):
        return trace(study.model, *batch)
    with study.model.settled() as device:
        if study.built is None:
            with same_chance(study.model.token, list(study.model.settings)):
                study.built = study.model.built(device)
            COUNTS["recorded"] += 1
            _refuse_another_model(study)
        return trace(study.built, *unpack(pack(batch), device))


def _refuse_another_model(study: Study) -> None:
    """The first sample again, where it was answered by another process: there the model must have been the same."""
    if study.first is None:
        return
    batch, expected = study.first
    found = study.answer(unpack(batch, None))[0]
    if _differs(found, expected, study.precision):
        raise CannotTravel(
            "the model built in this process is not the one that was asked about",
            "the first sample has another answer here",
            "let build(state) give the same model everywhere: no random numbers, the same files and versions",
        )


def study_of(question: Callable[[Trace], Any], samples: Samples, model: Any, take: Take) -> tuple[Study, npt.NDArray[Any]]:
    """The study, and its answer for the first sample, both from a run of that sample alone."""
    if take not in ("value", "norm", "diagonal", "flow"):
        raise WrongQuery(f"take={take!r}", "there is a value, a norm, a diagonal, a flow table", 'write take="norm"')
    study = Study(model, take, None, (), np.dtype(float), current())  # type: ignore[arg-type]
    run = run_of(study, samples.some(0, 1))
    found = question(run)
    if take == "flow":
        pair = run_of(study, samples.some(0, 2)) if len(samples) > 1 else None
        study.about = places_of(run, found, pair)
        study.shape = (len(study.about.names), len(MEASURES))
        study.precision = _precision(run._one.bound(run.names[study.about.names[0]])) if study.about.names else 0.0
        return study, flow_table(study.about, run._one, 1)[0]
    if not isinstance(found, Derivative):
        raise NotATensor(
            f"the question gave a {type(found).__name__}",
            "for a value, a norm or a diagonal it has to give a derivative of the run",
            "write lambda t: d(t.output)[0, 3] / d(t.inputs[0])[0]",
        )
    if found.order > 1:
        raise WrongShape(
            "only a first derivative is asked of every sample",
            f"this one is of order {found.order}, shape {found.shape}",
            "let the model return the first derivative, and ask for d(t.output) / d(t.inputs[0])",
        )
    study.about = Question.of(found)
    alone = _alone(found, take)
    study.shape, study.dtype = alone.shape, alone.dtype
    study.precision = _precision(found._sides[0].values[0])
    return study, alone


def _precision(value: Value) -> float:
    return value.record.backend.arrays.precision(value)


def _alone(found: Derivative, take: Take) -> npt.NDArray[Any]:
    """The answer for one sample by the ordinary way: what `map` means."""
    if take == "norm":
        return np.asarray(np.linalg.norm(found.numpy().reshape(-1)))
    return found._y.record.backend.arrays.numpy(found.diagonal()) if take == "diagonal" else found.numpy()


def batch_size(study: Study, samples: Samples, wanted: int | str) -> int:
    """How many samples go through the model at once."""
    if not isinstance(wanted, str):
        return max(1, min(int(wanted), len(samples)))
    if isinstance(study.about, Places):
        largest = max((int(np.prod(shape)) for shape in study.about.shapes), default=1)
    else:
        largest = max(int(np.prod(study.about.rows.of)), int(np.prod(study.about.columns.of)))
    return max(1, min(MOST, NUMBERS // max(1, largest), len(samples)))


def check_batches(study: Study, samples: Samples, alone: npt.NDArray[Any], size: int) -> None:
    """A small batch next to the first sample alone: a model may treat them differently without mixing gradients."""
    count = min(size, 4, len(samples))
    if count < 2:
        return
    together = study.answer(samples.some(0, count))[0]
    if _differs(together, alone, study.precision):
        off = float(np.nanmax(np.abs(together - alone), initial=0.0))
        raise mixed(f"the first sample has another answer in a batch of {count} than alone: off by {off:.1e}")


def _differs(one: npt.NDArray[Any], other: npt.NDArray[Any], precision: float) -> bool:
    """Whether two answers for one sample are further apart than rounding."""
    if (np.isfinite(one) != np.isfinite(other)).any():
        return True
    finite = np.isfinite(one)
    scale = float(np.max(np.abs(other), initial=0.0, where=finite))
    return float(np.max(np.abs(one - other), initial=0.0, where=finite)) > SLACK * precision * scale


def identity(study: Study, samples: Samples, alone: npt.NDArray[Any]) -> str:
    """What the answers are known by: the question, the data, and the model by its recipe or by its first answer."""
    model = study.model.token if isinstance(study.model, Model) else fingerprint(alone)
    about = study.about.key if isinstance(study.about, Question) else (study.about.names, study.about.shapes)
    return fingerprint(model, study.take, repr(about), samples.identity())


def framework_of(model: Any) -> str | None:
    """The framework that NumPy samples are turned into; None where it is not known or not one."""
    if isinstance(model, Model):
        return next(iter(model.settings)) if len(model.settings) == 1 else None
    try:
        found: str = _backend_for(model, (), {}).name
    except NotATensor:
        return None
    return found if found in frameworks() else None
