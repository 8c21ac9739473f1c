"""`wrt.map(question, dataset, model=...)`: one question for every sample of a data set, on one machine or a cluster."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from wrt._beyond.crew import Note, chosen, noted, perform, refuse_unfinished
from wrt._beyond.flow_table import MEASURES, Places
from wrt._beyond.grid import Grid
from wrt._beyond.model import Model
from wrt._beyond.pack import pack, unpack
from wrt._beyond.parquet import Parts
from wrt._beyond.samples import Samples, spans
from wrt._beyond.source import cannot_travel
from wrt._beyond.store import Store, written
from wrt._beyond.stored import Stored
from wrt._beyond.study import Study, Take, batch_size, check_batches, framework_of, identity, study_of
from wrt._core import room
from wrt._notation.trace import Trace
from wrt._run.memory import SMALL, words
from wrt._run.options import current
from wrt.errors import NotATensor, TooLarge

Target = Store | Parts | None


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
    client = chosen(client)
    if client is not None and not isinstance(model, Model):
        raise cannot_travel("wrt.map", "; or client=None to compute here")
    study, alone = study_of(question, samples, model, take)
    size = batch_size(study, samples, batch)
    check_batches(study, samples, alone, size)
    token = identity(study, samples, alone)
    study.first = pack(samples.some(0, 1)), alone
    if to is None:
        return _in_memory(study, samples, size, client)
    if str(to).endswith(".parquet"):
        return _to_parquet(study, samples, size, client, Parts(Path(to), _columns(study)), token)
    return _to_zarr(study, samples, size, client, Store.at(to), token)


def answer_batch(study: Study, target: Target, start: int, stop: int, data: Any = None) -> Note:
    """Compute a batch and write it; what a worker runs."""
    if data is None:
        assert study.samples is not None
        data = study.samples.some(start, stop)
    numbers = study.answer(unpack(data, None))
    if target is None:
        return replace(noted(study.device), answer=numbers)
    if isinstance(target, Parts):
        target.write(start, stop, numbers)
    else:
        written(target.opened(), (slice(start, stop),), numbers)
    return replace(noted(study.device), bytes=numbers.nbytes)


def _run(study: Study, samples: Samples, jobs: list[tuple[Target, int, int]], client: Any, keep: Any = None) -> Any:
    """The batches of the jobs; samples that a worker cannot read itself are sent with each."""
    sends = client is not None and not samples.openable
    study.samples = None if sends else samples

    def loaded(target: Target, start: int, stop: int) -> tuple[Any, ...]:
        return target, start, stop, pack(samples.some(start, stop)) if sends else None

    what = f"{len(samples)} samples in {len(jobs)} batches"
    return perform(answer_batch, study, jobs, what=what, client=client, loaded=loaded, keep=keep)


def _in_memory(study: Study, samples: Samples, size: int, client: Any) -> Any:
    shape = (len(samples), *study.shape)
    _refuse_too_large(math.prod(shape) * study.dtype.itemsize, shape)
    whole = np.empty(shape, study.dtype)
    jobs: list[tuple[Target, int, int]] = [(None, *span) for span in spans(len(samples), size)]

    def keep(number: int, answer: Any) -> None:
        whole[jobs[number][1] : jobs[number][2]] = answer

    done = _run(study, samples, jobs, client, keep)
    refuse_unfinished(done, len(jobs) - done.finished, len(jobs), "memory", lambda number: _samples(jobs[number]))
    return whole


def _refuse_too_large(needed: int, shape: tuple[int, ...]) -> None:
    free = current().memory
    if free is None:
        free = needed if needed < SMALL else int(min(import_module("psutil").virtual_memory().available, room.allowed()))
    if needed > free:
        raise TooLarge(
            f"the answers for all samples have shape {shape}: {words(needed)}",
            f"{words(free)} are free for them",
            'write them to disk with to="answers.zarr", or keep less: take="norm"',
        )


def _to_zarr(study: Study, samples: Samples, size: int, client: Any, store: Store, token: str) -> Stored:
    begun = time.perf_counter()
    known = store.known()
    if known is not None and known.attrs.get("wrt", {}).get("token") == token:
        size = known.chunks[0]  # go on as it was begun
    shape = (len(samples), *study.shape)
    chunks = tuple(stop - start for start, stop in spans(len(samples), size))
    grid = Grid(shape, (chunks, *((length,) for length in study.shape)))
    array = store.prepared(token, grid, study.dtype, _about(study))
    there = {place[0] for place in store.present(array)}
    wanted = list(spans(len(samples), size))
    jobs: list[tuple[Target, int, int]] = [(store, *span) for k, span in enumerate(wanted) if k not in there]
    done = _run(study, samples, jobs, client)
    left = 0 if done.finished == len(jobs) else len(wanted) - len(store.present(array))
    refuse_unfinished(done, left, len(wanted), store.place, lambda number: _samples(jobs[number]))
    return Stored(store.place, array, shape, len(wanted), len(jobs), time.perf_counter() - begun, done.workers)


def _to_parquet(study: Study, samples: Samples, size: int, client: Any, parts: Parts, token: str) -> Stored:
    begun = time.perf_counter()
    size = parts.prepared(token, size)
    there = parts.there()
    wanted = list(spans(len(samples), size))
    jobs: list[tuple[Target, int, int]] = [(parts, *span) for span in wanted if span[0] not in there]
    done = _run(study, samples, jobs, client)
    left = 0 if done.finished == len(jobs) else len(wanted) - len(parts.there())
    refuse_unfinished(done, left, len(wanted), parts.path, lambda number: _samples(jobs[number]))
    shape = (len(samples), *study.shape)
    return Stored(parts.path, None, shape, len(wanted), len(jobs), time.perf_counter() - begun, done.workers)


def _samples(job: tuple[Any, ...]) -> str:
    return f"samples {job[1]}:{job[2]}"


def _about(study: Study) -> dict[str, Any]:
    if isinstance(study.about, Places):
        return {"question": "flow", "layers": list(study.about.names), "measures": list(MEASURES)}
    return {"question": f"{study.take} of {study.about}"}


def _columns(study: Study) -> tuple[str, ...]:
    """Names for the numbers of one sample, where there are few or they have names."""
    if isinstance(study.about, Places):
        return tuple(f"{name}/{measure}" for name in study.about.names for measure in MEASURES)
    return (study.take,) if study.shape == () else ()
