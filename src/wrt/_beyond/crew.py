"""Jobs done here one after another, or by the workers of a cluster, a bounded number at a time.

A job is a pure function of its arguments that leaves its result on disk and returns a short note. One that fails does
not stop the others: what is missing is said at the end.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import Any

from wrt._beyond.ahead import Ahead
from wrt._beyond.dask_array import current_client
from wrt._beyond.model import COUNTS
from wrt._beyond.needs import needs
from wrt._beyond.sent import ABSENT, Sent
from wrt._beyond.source import Live, cannot_travel
from wrt.errors import Unfinished

IN_HAND = 2  # jobs given to each thread of a worker ahead of time
LONG = 200  # letters
LOST = "the scheduler lost the work it was given"

Job = tuple[Any, ...]
Work = Callable[..., "Note"]
Loaded = Callable[..., Job]
Keep = Callable[[int, Any], None]


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


@dataclass(slots=True)
class Done:
    """What came of the jobs."""

    finished: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    lost: str = ""
    workers: dict[str, Note] = field(default_factory=dict)

    def take(self, note: Note, number: int, keep: Keep | None) -> None:
        self.finished += 1
        if keep is not None:
            keep(number, note.answer)
            note = replace(note, answer=None)
        known = self.workers.get(note.worker)
        if known is None or note.peak >= known.peak:
            self.workers[note.worker] = note


def noted(device: str | None) -> Note:
    """A note about this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Note(_here(), peak, COUNTS["recorded"], device or "")


def _here() -> str:
    distributed = sys.modules.get("distributed")
    try:
        return f"worker {distributed.get_worker().name}" if distributed is not None else f"process {os.getpid()}"
    except ValueError:
        return f"process {os.getpid()}"


@dataclass(frozen=True, slots=True)
class _Crew:
    """The client, what is loaded onto a job when it is sent, and who takes the answers."""

    client: Any
    loaded: Loaded | None
    keep: Keep | None


def perform(
    work: Work, source: Any, jobs: Sequence[Job], *, what: str, client: Any = "auto", loaded: Loaded | None = None,
    keep: Keep | None = None,
) -> Done:  # fmt: skip
    """`work(source, *job)` for every job; the model of `source` is sent to each worker once.

    `loaded` adds to a job what it needs when it is sent, so that not all of it waits in memory; `keep` takes answers.
    """
    client = chosen(client)
    done = Done()
    with Ahead(what, len(jobs)) as ahead:
        if client is None:
            _here_and_now(work, source, jobs, done, ahead, keep)
        else:
            if isinstance(source, Live):
                raise cannot_travel("J.to_zarr()", "; or client=None to compute here")
            address = client.scheduler.address
            try:
                _by_workers(work, source, jobs, done, ahead, _Crew(client, loaded, keep))
            except CancelledError:
                done.lost = f"{LOST} (cancelled)"
            except (OSError, TimeoutError) as error:  # of the connection: a job's own are noted
                done.lost = f"the scheduler at {address} went away ({_words(error)})"
    return done


def chosen(client: Any) -> Any:
    """The client that was given, or for "auto" the one of this program; None means this process."""
    return current_client() if isinstance(client, str) else client


def _here_and_now(
    work: Work, source: Any, jobs: Sequence[Job], done: Done, ahead: Ahead, keep: Keep | None
) -> None:
    for number, job in enumerate(jobs):
        begun = time.perf_counter()
        try:
            note = work(source, *job)
        except OSError as error:  # a full disk stays full
            done.failed[number] = _words(error)
            return
        except Exception as error:
            done.failed[number] = _words(error)
            if not done.finished and number + 1 >= min(3, len(jobs)):
                raise  # nothing works: the error itself says more than a list of what is missing
            continue
        done.take(note, number, keep)
        ahead.advance(time.perf_counter() - begun)


def _by_workers(work: Work, source: Any, jobs: Sequence[Job], done: Done, ahead: Ahead, crew: _Crew) -> None:
    distributed, client = needs("distributed", "a cluster"), crew.client
    in_hand = IN_HAND * (sum(client.nthreads().values()) or 1)
    sent = Sent(client, source, in_hand)
    waiting = iter(range(len(jobs)))
    numbers: dict[str, int] = {}

    def given(number: int, again: bool = False) -> Any:
        job = jobs[number]
        future = sent.submit(work, job if crew.loaded is None else crew.loaded(*job), number, again)
        numbers[future.key] = number
        return future

    def more(count: int) -> Iterator[Any]:
        while count and (number := next(waiting, None)) is not None:
            try:
                yield given(number)
                count -= 1
            except Exception as error:  # samples that cannot be read
                done.failed[number] = _words(error)

    pending = distributed.as_completed(more(in_hand), raise_errors=False)
    for future in pending:
        number = numbers.pop(future.key)
        if future.status == "finished":
            note = future.result()
            if note is ABSENT:
                pending.add(given(number, again=True))
                continue
            done.take(note, number, crew.keep)
            ahead.advance_by_crew()
        elif future.status == "error":
            done.failed[number] = _words(future.exception())
            if isinstance(future.exception(), OSError):
                continue  # a full disk stays full: nothing more is given
        else:
            done.lost = f"{LOST} ({future.status})"
            return
        for following in more(1):
            pending.add(following)


def _words(error: BaseException) -> str:
    """The kind of an error and its first line, of a long one the first sentence."""
    first = (str(error).strip().splitlines() or ["no words"])[0]
    return f"{type(error).__name__}: {first if len(first) <= LONG else first.split('. ')[0]}"


def refuse_unfinished(done: Done, missing: int, wanted: int, place: Any, called: Callable[[int], str]) -> None:
    """Say which parts are missing, and why; nothing where none is."""
    if not missing:
        return
    causes = [f"{called(number)}: {cause}" for number, cause in list(done.failed.items())[:3]]
    more = f"; and {len(done.failed) - 3} more" if len(done.failed) > 3 else ""
    raise Unfinished(
        f"{missing} of {wanted} blocks are missing in {place}",
        done.lost or "; ".join(causes) + more,
        "mend that and run it again: only what is missing is computed",
    )
