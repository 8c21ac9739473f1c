"""The simulation of docs/scale.md next to real processes: blocks of known length, workers that are killed and come back."""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any


def work(pipe: Connection) -> None:
    """Take the length of a block, spend it, say so."""
    while True:
        time.sleep(pipe.recv())
        pipe.send(True)


class Worker:
    """One process with a life; killed in the middle of a block when it ends."""

    def __init__(self, chance: random.Random, mean_life: float) -> None:
        self.chance, self.mean_life = chance, mean_life
        self.back_at: float | None = None
        self.start()

    def start(self) -> None:
        context: Any = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.dies_at = time.monotonic() + self.chance.expovariate(1 / self.mean_life)
        self.back_at = None

    def kill(self, back_after: float) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self.back_at = time.monotonic() + back_after


def really(blocks: int, seconds: float, workers: int, mean_life: float, back_after: float, seed: int) -> tuple[float, int]:
    """The same as `simulate` of the page, by processes and the clock."""
    chance = random.Random(seed)
    crew = [Worker(chance, mean_life) for _ in range(workers)]
    started, done, lost = time.monotonic(), 0, 0

    def give(worker: Worker) -> None:
        worker.pipe.send(seconds * chance.uniform(0.8, 1.3))

    for worker in crew:
        give(worker)
    while done < blocks:
        now = time.monotonic()
        for worker in crew:
            if worker.back_at is None and now > worker.dies_at:
                worker.kill(back_after)
                lost += 1
            elif worker.back_at is not None and now > worker.back_at:
                worker.start()
                give(worker)
        alive = {worker.pipe: worker for worker in crew if worker.back_at is None}
        for pipe in wait(list(alive), timeout=0.005):
            alive[pipe].pipe.recv()  # type: ignore[index]
            done += 1
            give(alive[pipe])  # type: ignore[index]
    took = time.monotonic() - started
    for worker in crew:
        if worker.back_at is None:
            worker.kill(0)
    return took, lost
