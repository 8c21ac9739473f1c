"""A cluster on this machine computes a Jacobian to disk, loses a worker on the way, and goes on.

    python examples/cluster.py
    python examples/cluster.py --workers 4 --size 20000 --rows 500
"""

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

import wrt
from wrt import d

HIDDEN = 512
PROBES = 8


def build(state: Any) -> Any:
    """A network of two hidden layers; every worker builds it from the state that it is sent once."""
    first, middle, last = state
    return lambda x: torch.tanh(torch.tanh(x @ first) @ middle) @ last


def network(size: int) -> wrt.Model:
    """size -> 512 -> 512 -> size, float32, the same numbers in every run."""
    chance = torch.Generator().manual_seed(0)
    shapes = ((size, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, size))
    state = tuple(torch.randn(shape, generator=chance) / shape[0] ** 0.5 for shape in shapes)
    return wrt.Model(build, state, torch.randn(size, generator=chance))


def demonstrate(J: wrt.Derivative, client: Any, rows: int, kill: bool, path: Path) -> bool:
    """A slice, all of it to disk, once more, and rows of it next to this process's own; whether they agree."""
    size = J.shape[0]
    before = blocks(client)
    part = J.dask(chunks=(rows, -1))[rows // 2 : rows + rows // 2, :10].compute()  # over two blocks of rows
    print(f"a slice of shape {part.shape} computed {blocks(client) - before} of {size // rows} blocks")
    killer = kill_soon(client, path, size // rows // 3) if kill else None
    stored = J.to_zarr(path, chunks=(rows, -1))
    if killer is not None:
        killer.join()
    print(stored)
    again = J.to_zarr(path, chunks=(rows, -1))
    print(f"asked again: {again.computed} blocks computed, {again.found} were there")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process, which never held the answer: {peak:.0f} MiB")
    return agrees(J, stored)


def blocks(client: Any) -> int:
    return sum(one["blocks"] for one in client.run(wrt.Model.counts).values())


def kill_soon(client: Any, path: Path, blocks: int) -> threading.Thread:
    """SIGKILL one worker when so many blocks are there; the nanny starts another one."""
    process = next(iter(client.run(os.getpid).values()))

    def watch() -> None:
        deadline = time.monotonic() + 600
        while len(list(path.glob("c/*/0"))) < blocks and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process, signal.SIGKILL)
        print(f"killed worker process {process} after {len(list(path.glob('c/*/0')))} blocks")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def agrees(J: wrt.Derivative, stored: wrt.Stored) -> bool:
    """Some rows of what is on disk next to single pulls of this process."""
    worst = 0.0
    for k in range(PROBES):
        i = (k * J.shape[0]) // PROBES + k
        row = J[i].numpy()
        worst = max(worst, float(abs(stored.array[i] - row).max() / abs(row).max()))
    wrong = "" if worst < 1e-5 else " (WRONG)"
    print(f"{PROBES} rows next to single pulls of this process: they differ by {worst:.1e} of their size{wrong}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=2000, help="the Jacobian has size x size entries (2000)")
    parser.add_argument("--workers", type=int, default=2, help="processes that compute, on loopback (2)")
    parser.add_argument("--rows", type=int, default=100, help="rows of one block (100)")
    parser.add_argument("--kill", action=argparse.BooleanOptionalAction, default=True, help="kill a worker in the middle")
    parser.add_argument("--to", type=Path, help="where to write it; by default a folder that is removed")
    asked = parser.parse_args()
    folder = asked.to or Path(tempfile.mkdtemp(prefix="wrt-cluster-"))
    try:
        model = network(asked.size)
        print(f"{model}, {model.nbytes / 2**20:.0f} MiB to each worker once")
        run = model.trace()
        J = d(run.output) / d(run.inputs[0])
        print(f"J has {asked.size} x {asked.size} entries, {asked.size**2 * 4 / 2**20:.0f} MiB")
        with wrt.local_cluster(asked.workers) as client:
            print(f"{asked.workers} workers at {client.scheduler.address}")
            return 0 if demonstrate(J, client, asked.rows, asked.kill, folder / "jacobian.zarr") else 1
    finally:
        if asked.to is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
