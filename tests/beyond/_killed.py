"""kill -9 at random moments while an answer is written, told as JSON: `python -m tests.beyond._killed kind folder count`.

Every write runs in a forked process of its own. This one never computes: the engines do not survive a fork once they ran.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import dask.array.core  # noqa: F401
import numpy as np
import pyarrow.parquet
import torch
import zarr

import wrt
import wrt._beyond.map
import wrt._beyond.to_zarr  # all of it before a fork, so that kills meet the writing, and not imports
from tests.beyond._models import model, stencil, weights
from wrt import d

FOREIGN = b"not of wrt"


def dense(path: Path) -> None:
    run = model(20, 30, 40).trace()
    (d(run.output) / d(run.inputs[0])).to_zarr(path, chunks=(2, -1), client=None)


def csr(path: Path) -> None:
    run = wrt.Model(stencil, None, torch.linspace(0.5, 1, 3000, dtype=torch.float64)).trace()
    (d(run.output) / d(run.inputs[0])).to_zarr(path, layout="csr", client=None)


def parquet(path: Path) -> None:
    xs = torch.linspace(-1, 1, 480, dtype=torch.float64).reshape(80, 6)
    of = wrt.Model(lambda state: lambda x: torch.tanh(x @ state[0]) @ state[1], weights(6, 8, 4))
    wrt.map(lambda t: d(t.output) / d(t.inputs[0]), xs, model=of, to=path, batch=4, client=None)


def numbers_in(kind: str, path: Path) -> list[np.ndarray]:
    if kind == "csr":
        group = zarr.open_group(path, mode="r")
        return [group[name][:] for name in ("data", "indices", "indptr")]
    if kind == "parquet":
        parts = sorted(path.glob("part-*.parquet"))
        return [np.stack(pyarrow.parquet.read_table(one)["value"].to_numpy()) for one in parts]
    return [zarr.open_array(path, mode="r")[...]]


WRITES: dict[str, Callable[[Path], None]] = {"dense": dense, "resume": dense, "csr": csr, "parquet": parquet}


def in_a_fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def finished(work: Callable[[], None]) -> None:
    assert os.waitpid(in_a_fork(work), 0)[1] == 0


def main(kind: str, folder: Path, count: int) -> None:
    write, chance = WRITES[kind], random.Random(kind)
    name = "answer.parquet" if kind == "parquet" else "answer"
    finished(lambda: write(folder / "whole" / name))
    begun = time.perf_counter()
    finished(lambda: write(folder / "timed" / name))
    takes = time.perf_counter() - begun
    told = {"kills": 0, "ended before": 0, "torn": 0, "other bits": 0, "foreign bytes changed": 0}

    def look() -> None:
        truth = numbers_in(kind, folder / "whole" / name)
        found = numbers_in(kind, path)
        same = len(truth) == len(found) and all(np.array_equal(a, b) for a, b in zip(truth, found))
        os._exit(0 if same else 3)

    def look_torn() -> None:
        """What is there is right, also before anything is resumed."""
        truth = numbers_in(kind, folder / "whole" / name)
        if not path.exists() or (kind != "parquet" and not (path / "zarr.json").exists()):
            os._exit(0)
        found = numbers_in(kind, path)
        if kind == "parquet":
            starts = [int(one.stem.split("-")[1]) for one in sorted(path.glob("part-*.parquet"))]
            os._exit(0 if all(np.array_equal(truth[at // 4], one) for at, one in zip(starts, found)) else 3)
        os._exit(0 if all(np.array_equal(a[~np.isnan(b)], b[~np.isnan(b)]) and a.shape == b.shape
                          for a, b in zip(truth, found)) else 3)  # fmt: skip

    for number in range(count):
        place = folder / ("again" if kind == "resume" else f"kill-{number}")
        path = place / name
        place.mkdir(exist_ok=True)
        (place / "foreign").write_bytes(FOREIGN)
        for block in sorted((path / "c").rglob("*/0")) if kind == "resume" and path.exists() else ():
            if chance.random() < 0.5:
                block.unlink()  # so that there is something to resume again
        for _ in range(3):
            pid = in_a_fork(partial(write, path))
            time.sleep(chance.uniform(0.0, takes))
            os.kill(pid, signal.SIGKILL)
            told["ended before" if os.WIFEXITED(os.waitpid(pid, 0)[1]) else "kills"] += 1
            told["torn"] += os.waitpid(in_a_fork(look_torn), 0)[1] != 0
            if kind != "resume":
                break
        if kind != "resume" or number == count - 1:
            finished(partial(write, path))
            told["other bits"] += os.waitpid(in_a_fork(look), 0)[1] != 0
        told["foreign bytes changed"] += (place / "foreign").read_bytes() != FOREIGN
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
