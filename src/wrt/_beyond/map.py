"""`wrt.map(question, dataset, model=...)`: one question for every sample of a data set, on one machine or a cluster.

The question is found in the run of one sample alone, and answered for a batch of samples at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from wrt import _backends
from wrt._beyond.dask_array import Grid
from wrt._beyond.lift import Batched, is_per_sample, mixed, no_axis_of_samples
from wrt._beyond.model import COUNTS, LOCK, Model, same_chance
from wrt._beyond.pack import fingerprint, frameworks, pack, travel, unpack
from wrt._beyond.question import Address, Question, address_of, value_at
from wrt._beyond.source import another_model, apart, cannot_travel, same_options
from wrt._beyond.store import Parts, Store, Stored, about, write
from wrt._beyond.thresholds import BATCH_NUMBERS, BATCH_SAMPLES, ROUNDINGS_APART
from wrt._beyond.workers import Done, Note, client_of, note, perform
from wrt._core import room
from wrt._core.index import Shape
from wrt._core.value import Value
from wrt._notation.d import d
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Trace, _backend_for, trace
from wrt._run.memory import words
from wrt._run.options import Options, current
from wrt._run.thresholds import CHECKED_BYTES
from wrt.errors import NotATensor, TooLarge, WrongQuery, WrongShape

Take = Literal["value", "norm", "diagonal", "flow"]
Numbers = npt.NDArray[Any]
Batch = tuple[Any, ...]
Target = Store | Parts | None
Job = tuple[Target, int, int]
MEASURES = ("max", "mean", "zeros")


def map(
    question: Callable[[Trace], Any], dataset: Any, *, model: Any, take: Take = "value", to: Any = None,
    batch: int | str = "auto", client: Any = "auto",
) -> Any:  # fmt: skip
    """The same question for every sample: `question(t)` of the run of sample i alone is entry i of the answer.

    `question` gets the run of one sample (its axis of samples is kept, of length 1) and returns a derivative. `take`
    says what is kept of it: its "value", its "norm", its "diagonal"; "flow" takes a loss of shape (1,) and keeps the size
    of its gradient at every named value. `model` is called with a batch; it is a `wrt.Model` where a cluster computes.
    Without `to` the answer is a NumPy array, otherwise it goes to a zarr array, or to parquet if the name ends so; run
    again, only the batches that are not there are computed.

    >>> import torch
    >>> from wrt import d
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    >>> map(lambda t: d(t.output) / d(t.inputs[0]), torch.randn(100, 3), model=net, take="norm").shape
    (100,)
    """
    samples = Samples(dataset, framework_of(model))
    if not len(samples):
        raise NotATensor("the data set is empty", "there is no sample to ask about", "give at least one sample")
    client = client_of(client)
    if client is not None and not isinstance(model, Model):
        raise cannot_travel("wrt.map", "; or client=None to compute here")
    study, alone = study_of(question, samples, model, take)
    size = study.batch_size(samples, batch)
    study.refuse_mixing(samples, alone, size)
    token = study.identity(samples, alone)
    study.first = pack(samples.some(0, 1)), alone
    if to is None:
        return _in_memory(study, samples, size, client)
    target = Parts(Path(to), study.columns, token) if str(to).endswith(".parquet") else Store.at(to)
    return _on_disk(study, samples, size, client, target, token)


def answer_batch(study: Study, target: Target, start: int, stop: int, data: Any = None) -> Note:
    """Compute a batch and write it; what a worker runs."""
    if data is None:
        assert study.samples is not None
        data = study.samples.some(start, stop)
    numbers = study.answer(unpack(data, None))
    if target is None:
        return note(study.device, answer=numbers)
    if isinstance(target, Parts):
        target.write(start, stop, numbers)
    else:
        write(target.open(), (slice(start, stop),), numbers)
    return note(study.device, bytes=numbers.nbytes)


def _perform(
    study: Study, samples: Samples, jobs: list[Job], client: Any, keep: Callable[[int, Any], None] | None = None
) -> Done:
    """The batches of the jobs; samples that a worker cannot read itself are sent with each."""
    sends = client is not None and not samples.openable
    study.samples = None if sends else samples

    def load(target: Target, start: int, stop: int) -> tuple[Any, ...]:
        return target, start, stop, pack(samples.some(start, stop)) if sends else None

    what = f"{len(samples)} samples in {len(jobs)} batches"
    return perform(answer_batch, study, jobs, what=what, client=client, load=load, keep=keep)


def _in_memory(study: Study, samples: Samples, size: int, client: Any) -> Numbers:
    shape = (len(samples), *study.shape)
    _refuse_too_large(math.prod(shape) * study.dtype.itemsize, shape)
    whole = np.empty(shape, study.dtype)
    jobs: list[Job] = [(None, *span) for span in spans(len(samples), size)]

    def keep(number: int, answer: Any) -> None:
        whole[jobs[number][1] : jobs[number][2]] = answer

    done = _perform(study, samples, jobs, client, keep)
    done.refuse_missing(len(jobs) - done.finished, len(jobs), "memory", lambda number: _words(jobs[number]))
    return whole


def _refuse_too_large(needed: int, shape: tuple[int, ...]) -> None:
    free = current().memory
    if free is None:
        free = needed if needed < CHECKED_BYTES else int(min(room.available(), room.allowed()))
    if needed > free:
        raise TooLarge(
            f"the answers for all samples have shape {shape}: {words(needed)}",
            f"{words(free)} are free for them",
            'write them to disk with to="answers.zarr", or keep less: take="norm"',
        )


def _on_disk(study: Study, samples: Samples, size: int, client: Any, target: Store | Parts, token: str) -> Stored:
    """The batches that are not there yet; the size of a batch is the one it was begun with."""
    begun, array = time.perf_counter(), None
    shape = (len(samples), *study.shape)
    if isinstance(target, Parts):
        size = target.prepare(size)
    else:
        known = target.known()
        if known is not None and about(known).get("token") == token:
            size = known.chunks[0]
        chunks = tuple(stop - start for start, stop in spans(len(samples), size))
        grid = Grid(shape, (chunks, *((length,) for length in study.shape)))
        array = target.prepare(token, grid, study.dtype, study.words)

    def there() -> set[int]:
        return target.there() if isinstance(target, Parts) else {size * place[0] for place in target.present(array)}

    wanted, already = list(spans(len(samples), size)), there()
    jobs: list[Job] = [(target, *span) for span in wanted if span[0] not in already]
    done = _perform(study, samples, jobs, client)
    left = 0 if done.finished == len(jobs) else len(wanted) - len(there())
    place = target.path if isinstance(target, Parts) else target.place
    done.refuse_missing(left, len(wanted), place, lambda number: _words(jobs[number]))
    return Stored(place, array, shape, len(wanted), len(jobs), time.perf_counter() - begun, done.workers)


def _words(job: Job) -> str:
    return f"samples {job[1]}:{job[2]}"


# ---- what is asked of every sample ----


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
    first: tuple[Any, Numbers] | None = None
    built: Any = field(default=None, compare=False)

    def answer(self, batch: Batch) -> Numbers:
        """(count, *shape) for the samples of a batch."""
        with LOCK, same_options(self.options):
            COUNTS["batches"] += 1
            run = self.run(batch)
            count = int(batch[0].shape[0])
            if isinstance(self.about, Places):
                return flow_table(self.about, run._one, count)
            if count == 1:
                return _alone(self.about.in_run(run._one), self.take)[None]
            batched = Batched(self.about, run._one, count)
            take = {"value": batched.value, "norm": batched.norm, "diagonal": batched.diagonal}[self.take]
            return take().reshape(count, *self.shape)

    def run(self, batch: Batch) -> Trace:
        """The recorded run of a batch; a model that travels is built once in each process."""
        if not isinstance(self.model, Model):
            return trace(self.model, *batch)
        with self.model.same_settings() as device:
            if self.built is None:
                with same_chance(self.model.token, list(self.model.settings)):
                    self.built = self.model.construct(device)
                COUNTS["recorded"] += 1
                self._refuse_another_model()
            return trace(self.built, *unpack(pack(batch), device))

    def _refuse_another_model(self) -> None:
        """The first sample again, where it was answered by another process: there the model must have been the same."""
        if self.first is not None:
            batch, expected = self.first
            if self._differs(self.answer(unpack(batch, None))[0], expected):
                raise another_model("the first sample has another answer here")

    def refuse_mixing(self, samples: Samples, alone: Numbers, size: int) -> None:
        """A small batch next to the first sample alone: a model may treat them differently without mixing gradients."""
        count = min(size, 4, len(samples))
        if count < 2:
            return
        together = self.answer(samples.some(0, count))[0]
        if self._differs(together, alone):
            off = float(np.nanmax(np.abs(together - alone), initial=0.0))
            raise mixed(f"the first sample has another answer in a batch of {count} than alone: off by {off:.1e}")

    def _differs(self, one: Numbers, other: Numbers) -> bool:
        """Whether two answers for one sample are further apart than rounding."""
        worst, scale = apart(one, other)
        return worst > ROUNDINGS_APART * self.precision * scale

    def batch_size(self, samples: Samples, wanted: int | str) -> int:
        """How many samples go through the model at once."""
        if not isinstance(wanted, str):
            return max(1, min(int(wanted), len(samples)))
        sides = self.about.shapes if isinstance(self.about, Places) else (self.about.rows.of, self.about.columns.of)
        largest = max((math.prod(shape) for shape in sides), default=1)
        return max(1, min(BATCH_SAMPLES, BATCH_NUMBERS // max(1, largest), len(samples)))

    def identity(self, samples: Samples, alone: Numbers) -> str:
        """What the answers are known by: the question, the data, and the model by its recipe or by its first answer."""
        model = self.model.token if isinstance(self.model, Model) else fingerprint(alone)
        about = self.about.key if isinstance(self.about, Question) else (self.about.names, self.about.shapes)
        return fingerprint(model, self.take, repr(about), samples.identity())

    @property
    def words(self) -> dict[str, Any]:
        """The question, for whoever reads the answers."""
        if isinstance(self.about, Places):
            return {"question": "flow", "layers": list(self.about.names), "measures": list(MEASURES)}
        return {"question": f"{self.take} of {self.about}"}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names for the numbers of one sample, where there are few or they have names."""
        if isinstance(self.about, Places):
            return tuple(f"{name}/{measure}" for name in self.about.names for measure in MEASURES)
        return (self.take,) if self.shape == () else ()


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


def study_of(question: Callable[[Trace], Any], samples: Samples, model: Any, take: Take) -> tuple[Study, Numbers]:
    """The study, and its answer for the first sample, both from a run of that sample alone."""
    if take not in ("value", "norm", "diagonal", "flow"):
        raise WrongQuery(f"take={take!r}", "there is a value, a norm, a diagonal, a flow table", 'write take="norm"')
    study = Study(model, take, None, (), np.dtype(float), current())  # type: ignore[arg-type]
    run = study.run(samples.some(0, 1))
    found = question(run)
    if take == "flow":
        pair = study.run(samples.some(0, 2)) if len(samples) > 1 else None
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


def _alone(found: Derivative, take: Take) -> Numbers:
    """The answer for one sample by the ordinary way: what `map` means."""
    if take == "norm":
        return np.asarray(np.linalg.norm(found.numpy().reshape(-1)))
    return found._y.record.backend.arrays.numpy(found.diagonal()) if take == "diagonal" else found.numpy()


def framework_of(model: Any) -> str | None:
    """The framework that NumPy samples are turned into; None where it is not known or not one."""
    if isinstance(model, Model):
        return next(iter(model.settings)) if len(model.settings) == 1 else None
    try:
        found: str = _backend_for(model, (), {}).name
    except NotATensor:
        return None
    return found if found in frameworks() else None


# ---- the data set ----


class Samples:
    """`some(a, b)`: samples a to b as the arguments of the model, each with an axis of samples in front."""

    def __init__(self, dataset: Any, framework: str | None) -> None:
        self.dataset = dataset
        self.framework = framework
        self.columns = _arrays(dataset)
        self.count = int(self.columns[0].shape[0]) if self.columns is not None else len(dataset)

    def __len__(self) -> int:
        return self.count

    @property
    def openable(self) -> bool:
        """Whether a worker can read it by itself: arrays of zarr."""
        return self.columns is not None and all(type(one).__module__.startswith("zarr.") for one in self.columns)

    def some(self, start: int, stop: int) -> Batch:
        if self.columns is not None:
            found = tuple(column[start:stop] for column in self.columns)
        else:
            picked = [self.dataset[k] for k in range(start, stop)]
            rows = [one if isinstance(one, tuple) else (one,) for one in picked]
            found = tuple(np.stack([_numbers(one) for one in each]) for each in zip(*rows, strict=True))
        return tuple(native(one, self.framework) for one in found)

    def identity(self) -> str:
        """By its length and three of its samples: reading all of it could take longer than the work itself."""
        last = self.count - 1
        some = [pack(self.some(k, k + 1)) for k in dict.fromkeys((0, last // 2, last))]
        return fingerprint(self.count, some)


def _arrays(dataset: Any) -> tuple[Any, ...] | None:
    """Arrays with an axis of samples; None for a sequence of single samples."""
    columns = dataset if isinstance(dataset, tuple) else (dataset,)
    if all(hasattr(one, "shape") and len(one.shape) for one in columns):
        lengths = {int(one.shape[0]) for one in columns}
        if len(lengths) > 1:
            raise NotATensor(
                f"the columns of the data set have {sorted(lengths)} samples",
                "all of them need one entry for each sample",
                "give arrays of one length: wrt.map(question, (xs, labels), model=model)",
            )
        return columns
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") and not isinstance(dataset, tuple):
        return None
    raise NotATensor(
        f"a {type(dataset).__name__} is not a data set",
        "samples are found again by their number, also after a restart",
        "give an array, a tuple of arrays, or anything with len() and [k]",
    )


def _numbers(one: Any) -> Numbers:
    backend = _backends.owner(one)
    return np.asarray(one) if backend is None else backend.arrays.numpy(one)


def native(array: Any, framework: str | None) -> Any:
    """NumPy's arrays as tensors of the model's framework; anything else stays."""
    if framework is None or not isinstance(array, np.ndarray):
        return array
    return travel(framework).from_numpy(array)


def spans(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Batches by their first sample and the one after their last."""
    for start in range(0, count, size):
        yield start, min(start + size, count)


# ---- gradient sizes at every named value of a run, for every sample of a batch, in two passes ----


@dataclass(frozen=True, slots=True)
class Places:
    """The loss, and the named values whose gradients are looked at; both as addresses, with their shapes for one sample."""

    loss: Address
    names: tuple[str, ...]
    at: tuple[Address, ...]
    shapes: tuple[Shape, ...]
    loss_shape: Shape


def places_of(run: Any, found: Any, pair: Any) -> Places:
    """Every named float of the run of one sample that has an axis of samples, in the order of the run.

    `pair` is the run of two samples, which tells an axis of samples from an axis of length one; None with one sample.
    """
    y = d(found)
    recording = run._one
    if y.elements.size != 1 or not y.elements.everything:
        raise WrongShape(
            "the loss of one sample is not one number", f"its shape is {y.value.shape}", 'give t["loss"] with shape (1,)'
        )
    names: list[str] = []
    values: list[Value] = []
    for name in recording.names:
        value = recording.bound(recording.names.all(name)[-1])
        known = any(recording.same(value, other) for other in (*values, y.value))
        followed = value.shape[:1] == (1,) and "float" in str(value.dtype) and recording.has_history(value)
        if followed and not known and _in_pair(recording, value, pair):
            names.append(name)
            values.append(value)
    addresses = tuple(address_of(recording, value) for value in values)
    shapes = tuple(value.shape for value in values)
    return Places(address_of(recording, y.value), tuple(names), addresses, shapes, y.value.shape)


def _in_pair(recording: Any, value: Value, pair: Any) -> bool:
    return pair is None or is_per_sample(value_at(pair._one, address_of(recording, value)), value.shape, 2)


def flow_table(places: Places, recording: Any, count: int) -> Numbers:
    """(count, places, measures); zeros where no gradient arrives, NaN where samples share the value."""
    y = value_at(recording, places.loss)
    if count > 1 and not is_per_sample(y, places.loss_shape, count):
        raise no_axis_of_samples("the loss", places.loss_shape, y.shape, count)
    xs = [value_at(recording, one) for one in places.at]
    arrays = recording.backend.arrays
    engine = recording.engine(y, xs)
    signs = np.random.default_rng(37).choice([-1.0, 1.0], count)
    plain, signed = (
        engine.plain(arrays.reshape(arrays.from_numpy(one, y), (1, *y.shape)))
        for one in (np.ones(count), signs)
    )
    table = np.zeros((count, len(xs), len(MEASURES)))
    table[:, :, 2] = 1.0
    for k, (x, g, s) in enumerate(zip(xs, plain, signed, strict=True)):
        if not is_per_sample(x, places.shapes[k], count):
            table[:, k] = np.nan  # samples share it: its gradient is not one sample's
            continue
        if g is None:
            continue
        sizes = np.abs(arrays.numpy(g).reshape(count, -1).astype(np.float64))
        other = arrays.numpy(s).reshape(count, -1).astype(np.float64) * signs[:, None]
        off = np.abs(other - arrays.numpy(g).reshape(count, -1)).max(initial=0.0)
        if off > 2**10 * arrays.precision(x) * max(1e-300, float(sizes.max(initial=0.0))):
            raise mixed(f"the gradient at {places.names[k]} changes by {off:.1e} with the signs of other samples")
        table[:, k] = np.stack([sizes.max(1), sizes.mean(1), (sizes == 0).mean(1)], axis=1)
    return table
