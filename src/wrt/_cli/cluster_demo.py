"""`wrt cluster-demo`: a cluster on this machine computes a Jacobian to disk, loses a worker on the way, and goes on."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import wrt
from wrt import d
from wrt.errors import NotInstalled, WrtError

HIDDEN = 512
PROBES = 8


def cluster_demo(
    size: Annotated[int, typer.Option(help="The Jacobian has size x size entries.")] = 2000,
    workers: Annotated[int, typer.Option(help="Processes that compute, on loopback.")] = 2,
    rows: Annotated[int, typer.Option(help="Rows of one block.")] = 100,
    kill: Annotated[bool, typer.Option(help="Kill a worker in the middle.")] = True,
    to: Annotated[Path | None, typer.Option(help="Where to write it; by default a folder that is removed.")] = None,
) -> None:
    """Start a local cluster, write the Jacobian of a network to zarr, and check it.

    The exit status is 1 where a check fails.
    """
    try:
        folder = to or Path(tempfile.mkdtemp(prefix="wrt-cluster-"))
        try:
            agreed = _shown(size, workers, rows, kill, folder / "jacobian.zarr")
        finally:
            if to is None:
                shutil.rmtree(folder, ignore_errors=True)
    except WrtError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from None
    if not agreed:
        raise typer.Exit(1)


def build(state: Any) -> Any:
    """A network of two hidden layers; every worker builds it from the state that it is sent once."""
    import torch

    first, middle, last = state
    return lambda x: torch.tanh(torch.tanh(x @ first) @ middle) @ last


def network(size: int) -> wrt.Model:
    """size -> 512 -> 512 -> size, float32, the same numbers in every run."""
    try:
        import torch
    except ImportError:
        raise NotInstalled("wrt cluster-demo needs torch", "it is not installed", "pip install 'wrt[torch,dask]'") from None

    chance = torch.Generator().manual_seed(0)
    shapes = ((size, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, size))
    state = tuple(torch.randn(shape, generator=chance) / shape[0] ** 0.5 for shape in shapes)
    return wrt.Model(build, state, torch.randn(size, generator=chance))


def _shown(size: int, workers: int, rows: int, kill: bool, path: Path) -> bool:
    model = network(size)
    print(f"{model}, {model.nbytes / 2**20:.0f} MiB to each worker once")
    run = model.trace()
    J = d(run.output) / d(run.inputs[0])
    print(f"J has {size} x {size} entries, {size * size * 4 / 2**20:.0f} MiB")
    with wrt.local_cluster(workers) as client:
        print(f"{workers} workers at {client.scheduler.address}")
        return demonstrate(J, client, rows, kill, path)


def demonstrate(J: Any, client: Any, rows: int, kill: bool, path: Path) -> bool:
    """A slice, all of it to disk, once more, and rows of it next to this process's own; whether they agree."""
    size = J.shape[0]
    _slice(J, rows, client)
    killer = _kill_soon(client, path, size // rows // 3) if kill else None
    stored = J.to_zarr(path, chunks=(rows, -1))
    if killer is not None:
        killer.join()
    print(stored)
    again = J.to_zarr(path, chunks=(rows, -1))
    print(f"asked again: {again.computed} blocks computed, {again.found} were there")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process, which never held the answer: {peak:.0f} MiB")
    return _agrees(J, stored, size)


def _slice(J: Any, rows: int, client: Any) -> None:
    """Part of a block's columns, over two blocks of rows: two blocks, however many there are."""
    before = _blocks(client)
    part = J.dask(chunks=(rows, -1))[rows // 2 : rows + rows // 2, :10].compute()
    print(f"a slice of shape {part.shape} computed {_blocks(client) - before} of {J.shape[0] // rows} blocks")


def _blocks(client: Any) -> int:
    return sum(one["blocks"] for one in client.run(wrt.Model.counts).values())


def _kill_soon(client: Any, path: Path, blocks: int) -> threading.Thread:
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


def _agrees(J: Any, stored: wrt.Stored, size: int) -> bool:
    """Some rows of what is on disk next to single pulls of this process."""
    worst = 0.0
    for k in range(PROBES):
        i = (k * size) // PROBES + k
        row = J[i].numpy()
        worst = max(worst, float(abs(stored.array[i] - row).max() / abs(row).max()))
    good = worst < 1e-5
    print(f"{PROBES} rows next to single pulls of this process: they differ by {worst:.1e} of their size"
          f"{'' if good else ' (WRONG)'}")  # fmt: skip
    return good
