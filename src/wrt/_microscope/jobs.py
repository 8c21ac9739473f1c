"""One question at a time, in a thread of its own: a recording is not made for two.

Long work tells how far it is and can be stopped.
"""

from __future__ import annotations

import contextvars
import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wrt._run.progress import LISTENER, WITHIN
from wrt.errors import TooLarge, WrtError

WAITING = 16  # questions in the queue, the one that runs included
KEPT = 64  # answers that nobody has fetched yet
IDLE = 30.0  # seconds without a question after which the thread ends
PATIENCE = 120.0  # seconds after which an answer that nobody fetched is forgotten


class Cancelled(WrtError, RuntimeError):
    """The page asked for something else."""


class TooMany(WrtError, RuntimeError):
    """More questions than one recording can be asked at once."""


@dataclass(eq=False, slots=True)
class Job:
    """One question: how far it is, and what came out."""

    work: Callable[[], Any]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    doing: str = "waiting"
    share: float | None = None
    started: float | None = None
    ended: float | None = None
    stop: bool = False
    result: Any = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)
    on_progress: Callable[[Job], None] | None = None
    on_done: Callable[[Job], None] | None = None

    def told(self) -> dict[str, Any]:
        """How far it is, for a page that waits."""
        left = None
        if self.started is not None and self.share:
            left = (time.monotonic() - self.started) * (1 - self.share) / self.share
        return {"done": False, "doing": self.doing, "share": self.share, "left_s": left}

    def heard(self, what: str, done: int, total: int) -> None:
        """The engine came this far; a job that is no longer wanted ends here."""
        if self.stop:
            raise cancelled()
        self.doing, self.share = what, min(1.0, done / max(1, total))
        if self.on_progress is not None:
            self.on_progress(self)


class Worker:
    """Runs jobs one after the other, in the context (`wrt.options`) in which it was made.

    Its thread starts with the first job and ends when nothing was asked for a while: a page nobody looks at costs none.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[Job | None] = queue.Queue()
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._context = contextvars.copy_context()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], Any], **hooks: Any) -> Job:
        job = Job(work, **hooks)
        with self._lock:
            self._forget()
            if sum(not one.done.is_set() for one in self._jobs.values()) >= WAITING:
                raise TooMany(
                    f"{WAITING} questions are waiting already", "one is answered at a time", "wait, or cancel some of them"
                )
            self._jobs[job.id] = job
            self._queue.put(job)
            if self._thread is None:
                run = self._context.copy().run
                self._thread = threading.Thread(target=run, args=(self._loop,), name="wrt-microscope", daemon=True)
                self._thread.start()
        return job

    def find(self, number: Any) -> Job | None:
        with self._lock:
            return self._jobs.get(number) if isinstance(number, str) else None

    def take(self, job: Job) -> None:
        """The answer was fetched."""
        with self._lock:
            self._jobs.pop(job.id, None)

    def cancel(self, job: Job) -> None:
        """Stop it before it starts, or at its next pass: a pass of the engine itself cannot be interrupted."""
        job.stop = True

    def close(self) -> None:
        """End the thread after the job that runs; what still waits is cancelled."""
        with self._lock:
            for job in self._jobs.values():
                job.stop = True
            thread = self._thread
            if thread is not None:
                self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _forget(self) -> None:
        now = time.monotonic()
        finished = [one for one in self._jobs.values() if one.ended is not None]
        old = [one for one in finished if now - (one.ended or now) > PATIENCE] + finished[: max(0, len(finished) - KEPT)]
        for one in old:
            self._jobs.pop(one.id, None)

    def _loop(self) -> None:
        WITHIN.set(True)  # the page shows how far it is; the terminal it was started from stays quiet
        while True:
            try:
                job = self._queue.get(timeout=IDLE)
            except queue.Empty:
                job = None
            if job is None:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            self._run(job)

    def _run(self, job: Job) -> None:
        job.started, job.doing = time.monotonic(), "computing"
        told = LISTENER.set(job.heard)
        try:
            if job.stop:
                raise cancelled()
            job.result = job.work()
            if job.stop:
                raise cancelled()
        except BaseException as error:
            job.error = error
        finally:
            LISTENER.reset(told)
            job.ended = time.monotonic()
            job.done.set()
            if job.on_done is not None:
                job.on_done(job)


def cancelled() -> Cancelled:
    return Cancelled("cancelled", "the page asked for something else", "ask again")


def as_error(error: BaseException) -> dict[str, Any]:
    """An error as the page shows it: three lines and a word. Nothing of the machine is in it."""
    if isinstance(error, WrtError):
        code = "cancelled" if isinstance(error, Cancelled) else "limit" if isinstance(error, (TooMany, TooLarge)) else "question"
        return {"what": error.what, "stands": error.where, "write": error.write, "code": code}
    said = str(error).splitlines()
    return {
        "what": f"{type(error).__name__} while answering",
        "stands": said[0][:300] if said else "without a word",
        "write": "ask the same in Python to see where it comes from",
        "code": "question",
    }
