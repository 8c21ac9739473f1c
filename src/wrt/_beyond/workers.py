"""Jobs done by this process one after another, or by the workers of a dask cluster, a bounded number at a time.

A job is a pure function of its arguments that leaves its result on disk and returns a short note. One that fails does
not stop the others: what is missing is said at the end. How long it will still take is a range from what the latest jobs
took.
"""

from __future__ import annotations

import copy
import os
import resource
import sys
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import TracebackType
from typing import Any

import numpy as np

from wrt._beyond import needs
from wrt._beyond.model import COUNTS, Model, NotHere, current_worker
from wrt._beyond.source import Live, cannot_travel
from wrt._run.progress import PATIENCE, WITHIN, watched
from wrt.errors import Unfinished

Job = tuple[Any, ...]
Work = Callable[..., "Note"]


@dataclass(frozen=True, slots=True)
class Note:
    """What a job says when it is done: where it ran, the peak memory of that process, what it recorded so far.

    `device` is the accelerator that was chosen for the process; empty where there is none.
    """

    worker: str
    peak: int
    recorded: int
    device: str = ""
    bytes: int = 0
    how: str = ""
    answer: Any = None


def note(device: str | None, **more: Any) -> Note:
    """A note about this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    worker = current_worker()
    here = f"process {os.getpid()}" if worker is None else f"worker {worker.name}"
    return Note(here, peak, COUNTS["recorded"], device or "", **more)


@dataclass(slots=True)
class Done:
    """What came of the jobs; `keep` takes their answers."""

    keep: Callable[[int, Any], None] | None = None
    finished: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    lost: str = ""
    workers: dict[str, Note] = field(default_factory=dict)

    def take(self, note: Note, number: int) -> None:
        self.finished += 1
        if self.keep is not None:
            self.keep(number, note.answer)
            note = replace(note, answer=None)
        known = self.workers.get(note.worker)
        if known is None or note.peak >= known.peak:
            self.workers[note.worker] = note

    def fail(self, number: int, error: BaseException) -> None:
        self.failed[number] = _words(error)

    def refuse_missing(self, missing: int, wanted: int, place: Any, called: Callable[[int], str]) -> None:
        """Say which parts are missing, and why; nothing where none is."""
        if not missing:
            return
        causes = [f"{called(number)}: {cause}" for number, cause in list(self.failed.items())[:3]]
        more = f"; and {len(self.failed) - 3} more" if len(self.failed) > 3 else ""
        raise Unfinished(
            f"{missing} of {wanted} blocks are missing in {place}",
            self.lost or "; ".join(causes) + more,
            "mend that and run it again: only what is missing is computed",
        )


def _words(error: BaseException) -> str:
    """The kind of an error and its first line, of a long one the first sentence."""
    first = (str(error).strip().splitlines() or ["no words"])[0]
    return f"{type(error).__name__}: {first if len(first) <= 200 else first.split('. ')[0]}"


def perform(
    work: Work, source: Any, jobs: Sequence[Job], *, what: str, client: Any = "auto", load: Callable[..., Job] | None = None,
    keep: Callable[[int, Any], None] | None = None,
) -> Done:  # fmt: skip
    """`work(source, *job)` for every job; the model of `source` is sent to each worker once.

    `load` adds to a job what it needs when it is sent, so that not all of it waits in memory; `keep` takes answers.
    """
    client, done = client_of(client), Done(keep)
    with Bar(what, len(jobs)) as bar:
        if client is None:
            _in_this_process(work, source, jobs, done, bar)
            return done
        if isinstance(source, Live):
            raise cannot_travel("J.to_zarr()", "; or client=None to compute here")
        address = client.scheduler.address
        try:
            _by_workers(OnCluster(client, source), work, jobs, load, done, bar)
        except CancelledError:
            done.lost = "the scheduler lost the work it was given (cancelled)"
        except (OSError, TimeoutError) as error:  # of the connection: a job's own are noted
            done.lost = f"the scheduler at {address} went away ({_words(error)})"
    return done


def _in_this_process(work: Work, source: Any, jobs: Sequence[Job], done: Done, bar: Bar) -> None:
    for number, job in enumerate(jobs):
        begun = time.perf_counter()
        try:
            found = work(source, *job)
        except OSError as error:  # a full disk stays full
            done.fail(number, error)
            return
        except Exception as error:
            done.fail(number, error)
            if not done.finished and number + 1 >= min(3, len(jobs)):
                raise  # nothing works: the error itself says more than a list of what is missing
            continue
        done.take(found, number)
        bar.advance(time.perf_counter() - begun)


def _by_workers(
    cluster: OnCluster, work: Work, jobs: Sequence[Job], load: Callable[..., Job] | None, done: Done, bar: Bar
) -> None:
    waiting = iter(range(len(jobs)))
    numbers: dict[str, int] = {}

    def give(number: int, again: bool = False) -> Any:
        job = jobs[number]
        future = cluster.submit(work, job if load is None else load(*job), number, again)
        numbers[future.key] = number
        return future

    def more(count: int) -> Iterator[Any]:
        while count and (number := next(waiting, None)) is not None:
            try:
                yield give(number)
                count -= 1
            except Exception as error:  # samples that cannot be read
                done.fail(number, error)

    pending = needs("distributed", "a cluster").as_completed(more(cluster.at_once), raise_errors=False)
    for future in pending:
        number = numbers.pop(future.key)
        if future.status == "finished":
            found = future.result()
            if found is None:  # the worker had neither the model nor a run of it
                pending.add(give(number, again=True))
                continue
            done.take(found, number)
            bar.advance_by_workers()
        elif future.status == "error":
            done.fail(number, future.exception())
            if isinstance(future.exception(), OSError):
                continue  # a full disk stays full: nothing more is given
        else:
            done.lost = f"the scheduler lost the work it was given ({future.status})"
            return
        for following in more(1):
            pending.add(following)


# ---- a cluster ----


class OnCluster:
    """A source on a cluster, with the name of its model; the model itself where a job has to bring it.

    A state is most of what travels. It goes to a cluster with the first question about its model, and from there to each
    worker that has no run of it. Later jobs bring the question alone; a worker that lost the run says so, and is asked
    again with the model at hand.
    """

    def __init__(self, client: Any, source: Any) -> None:
        self.at_once = 2 * (sum(client.nthreads().values()) or 1)  # each thread has the next job at hand
        self._client, self._model = client, source.model
        self._bring = 0 if _model_there(client, source.model) else self.at_once
        self._token = uuid.uuid4().hex
        named = copy.copy(source)
        named.model = source.model.without_state()
        self._named = client.submit(_itself, named, key=f"wrt-source-{self._token}", pure=False)

    def submit(self, work: Work, job: Job, number: int, again: bool = False) -> Any:
        """The future of `work(source, *job)`; `again` after a worker had no model."""
        model = self._model_future() if again or self._bring else None
        self._bring = max(0, self._bring - 1)
        key = f"wrt-job-{self._token}-{number}{'-again' if again else ''}"
        return self._client.submit(_work_there, work, self._named, model, job, key=key, pure=False)

    def _model_future(self) -> Any:
        """The model as a future of this cluster; for others it is let go."""
        found = _model_there(self._client, self._model)
        if found is None:
            self._model.sent.clear()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sending large graph")  # once, and then from worker to worker
                found = self._client.submit(_itself, self._model, key=f"wrt-model-{uuid.uuid4().hex}", pure=False)
            self._model.sent[self._client.id] = found
        return found


def _model_there(client: Any, model: Model) -> Any:
    """The model as a future of this cluster, if it has one that can be had."""
    found = model.sent.get(client.id)
    return found if found is not None and found.status in ("pending", "finished") else None


def _itself(one: Any) -> Any:
    return one


def _work_there(work: Work, source: Any, model: Model | None, job: Job) -> Note | None:
    """What a worker runs; None where neither the model nor a run of it is there."""
    if model is not None:
        source.model = model  # this worker's own copy, which it keeps with what it finds out
    try:
        return work(source, *job)
    except NotHere:
        return None


def client_of(client: Any) -> Any:
    """The client that was given, or for "auto" the one of this program; None means this process."""
    if not isinstance(client, str):
        return client
    try:
        return sys.modules["distributed"].get_client() if "distributed" in sys.modules else None
    except ValueError:
        return None


@contextmanager
def local_cluster(workers: int = 2, *, memory: str | int = "auto") -> Iterator[Any]:
    """`with wrt.local_cluster(4) as client:` starts processes that answer blocks and batches, and ends them afterwards.

    They are for this run alone: on loopback, encrypted, and closed to whoever has not its certificate, which is made for it
    and never written down; there is no dashboard. `memory` is the limit of each worker, in bytes or as "2GiB".
    """
    needs("distributed", "a cluster")
    with import_module("wrt._beyond.cluster").processes(workers, memory) as client:
        yield client


# ---- how long it will still take ----


class Eta:
    """Seconds left, low and high, for jobs of varying length.

    >>> eta = Eta(10)
    >>> for _ in range(4):
    ...     eta.add(2.0)
    >>> eta.left()
    (12.0, 12.0)
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._seconds: deque[float] = deque(maxlen=64)

    def add(self, seconds: float) -> None:
        """One more is done, so many seconds after the one before it."""
        self.done += 1
        self._seconds.append(seconds)

    def left(self) -> tuple[float, float] | None:
        """What remains if the rest goes like the latest: mean and twice the uncertainty of their sum."""
        if len(self._seconds) < 3:
            return None
        rest = self.total - self.done
        mean, spread = float(np.mean(self._seconds)), float(np.std(self._seconds))
        uncertain = 2 * spread * rest / len(self._seconds) ** 0.5
        return max(0.0, rest * mean - uncertain), rest * mean + uncertain

    def __str__(self) -> str:
        found = self.left()
        if found is None:
            return "time left not known yet"
        low, high = map(clock, found)
        return f"{high} left" if low == high else f"{low} to {high} left"


def clock(seconds: float) -> str:
    """Seconds as people say them.

    >>> clock(7), clock(200), clock(9000)
    ('7 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Bar:
    """A bar with the estimate, in terminals and notebooks, once the work takes longer than about two seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self.eta = Eta(total)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Bar:
        self._started = self._last = time.perf_counter()
        self._within = WITHIN.set(True)
        return self

    def advance(self, seconds: float) -> None:
        """One job is done, which took so long; what was there before never counts."""
        self.eta.add(seconds)
        if self._bar is None:
            elapsed = time.perf_counter() - self._started
            if elapsed * self.eta.total / max(1, self.eta.done) < PATIENCE or not watched():
                return
            self._open()
        self._bar.update(self._task, completed=self.eta.done, left=str(self.eta))

    def advance_by_workers(self) -> None:
        """One of several that go on at once is done: what counts is the time since the one before."""
        now = time.perf_counter()
        self.advance(now - self._last)
        self._last = now

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        counted = TextColumn("{task.completed}/{task.total}")
        columns = (TextColumn("{task.description}"), BarColumn(), counted, TextColumn("{task.fields[left]}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=self.eta.total, left=str(self.eta))
        self._bar.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        WITHIN.reset(self._within)
        if self._bar is not None:
            self._bar.stop()
