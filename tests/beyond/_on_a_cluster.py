"""What happens on a cluster of two processes, told as JSON: `python -m tests.beyond._on_a_cluster folder`."""

import contextlib
import io
import json
import os
import resource
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import wrt
from examples.cluster import demonstrate, network
from tests.beyond._models import fails_at_row_seven, jacobian, mlp, model, slow, weights
from wrt import d
from wrt._beyond.model import forget
from wrt.errors import CannotTravel, Unfinished


def slow_jacobian(seed: int):
    x = torch.linspace(-1, 1, 24, dtype=torch.float64)
    run = wrt.Model(slow, weights(24, 16, 24, seed=seed), x).trace()
    return d(run.output) / d(run.inputs[0])


def when(path: Path, blocks: int, act) -> threading.Thread:
    """Act once so many blocks are on disk."""

    def watch() -> None:
        for _ in range(12_000):
            if len(list(path.glob("c/*/0"))) >= blocks:
                break
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def same_bits(J) -> dict[str, object]:
    here = J.dask(chunks=(10, -1)).compute(scheduler="synchronous")
    there = J.dask(chunks=(10, -1)).compute()
    return {"bits": bool(np.array_equal(here, there))}


def slices(J, client) -> dict[str, object]:
    before = blocks(client)
    J.dask(chunks=(10, -1))[15:25, :3].compute()
    told = client.run(wrt.Model.counts)
    return {"blocks": blocks(client) - before, "recorded": [one["recorded"] for one in told.values()]}


def blocks(client) -> int:
    return sum(one["blocks"] for one in client.run(wrt.Model.counts).values())


def sent_once(client, folder: Path) -> dict[str, object]:
    """Several questions about one model, the last to workers that have let its run go."""
    J, pickled = jacobian(model(20, 30, 40)), []
    plain = wrt.Model.__reduce__
    wrt.Model.__reduce__ = lambda self: (pickled.append(len(self.inputs)), plain(self))[1]  # without its state: none
    try:
        found = []
        for number, let_go in enumerate((False, False, True)):
            if let_go:
                client.run(forget)
            found.append(np.asarray(J[number:].to_zarr(folder / f"sent-{number}", chunks=(10, -1))))
    finally:
        wrt.Model.__reduce__ = plain
    here = J.dask(chunks=(10, -1)).compute(scheduler="synchronous")
    near = all(np.allclose(one, here[number:], rtol=1e-12, atol=1e-15) for number, one in enumerate(found))
    return {"right": near, "states": sum(map(bool, pickled)), "questions": len(pickled) - sum(map(bool, pickled))}


def worker_killed(client, folder: Path) -> dict[str, object]:
    J = slow_jacobian(1)
    victim = next(iter(client.run(os.getpid).values()))
    thread = when(folder / "killed", 3, lambda: os.kill(victim, signal.SIGKILL))
    with wrt.options(way="pull"):
        stored = J.to_zarr(folder / "killed", chunks=(2, -1))
        thread.join()
        here = J.dask(chunks=(2, -1)).compute(scheduler="synchronous")
    return {"bits": bool(np.array_equal(stored, here)), "computed": stored.computed}


def poisoned(folder: Path) -> dict[str, object]:
    x = torch.linspace(0, 1, 6, dtype=torch.float64)
    run = wrt.Model(fails_at_row_seven, weights(6, 12)[0], x).trace()
    with wrt.options(way="pull"):
        try:
            (d(run.output) / d(run.inputs[0])).to_zarr(folder / "poisoned", chunks=(3, -1))
        except Unfinished as error:
            return {"words": str(error)}
    return {"words": ""}


def second_derivative() -> dict[str, object]:
    """Of the sum of the outputs, whose gradient each worker pulls for itself."""
    run = wrt.Model(summed, weights(24, 16, 24), torch.linspace(-1, 1, 24, dtype=torch.float64)).trace()
    H = (d(run.output) / d(run.inputs[0]) / d(run.inputs[0])).dask(chunks=(6, -1))
    here, there = H.compute(scheduler="synchronous"), H.compute()
    expected = torch.autograd.functional.hessian(summed(weights(24, 16, 24)), run.inputs[0].value.detach())
    return {"bits": bool(np.array_equal(here, there)), "right": bool(np.allclose(here, expected, rtol=1e-10, atol=1e-13))}


def summed(state):
    return lambda x: mlp(state)(x).sum()


def disk_full(client, folder: Path) -> dict[str, object]:
    """No worker may write files as large as a block; later they may."""
    J, words = jacobian(model(40, 30, 40)), ""
    before = client.run(files_up_to, 1000)
    try:
        J.to_zarr(folder / "full", chunks=(10, -1))
    except Unfinished as error:
        words = str(error)
    there = len(list((folder / "full").glob("c/*/0")))
    for worker, limit in before.items():
        client.run(files_up_to, limit, workers=[worker])
    again = J.to_zarr(folder / "full")
    here = J.dask(chunks=(10, -1)).compute(scheduler="synchronous")
    return {"words": words, "there": there, "computed": again.computed, "bits": bool(np.array_equal(again, here))}


def files_up_to(size: int) -> int:
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    return before


def restarted(client, folder: Path) -> dict[str, object]:
    """All workers and everything that the scheduler knew are gone; the same client goes on."""
    J, words = slow_jacobian(3), ""
    thread = when(folder / "restarted", 3, client.restart)
    with wrt.options(way="pull"):
        try:
            J.to_zarr(folder / "restarted", chunks=(2, -1))
        except Unfinished as error:
            words = str(error)
        thread.join()
        there = len(list((folder / "restarted").glob("c/*/0")))
        again = J.to_zarr(folder / "restarted")
        here = J.dask(chunks=(2, -1)).compute(scheduler="synchronous")
    return {"words": words, "there": there, "found": again.found, "bits": bool(np.array_equal(again, here))}


def mapped(folder: Path) -> dict[str, object]:
    xs = torch.linspace(-1, 1, 480, dtype=torch.float64).reshape(80, 6)
    question = lambda t: d(t.output) / d(t.inputs[0])
    of = wrt.Model(lambda state: lambda x: torch.tanh(x @ state[0]) @ state[1], weights(6, 8, 4))
    stored = wrt.map(question, xs, model=of, take="norm", to=folder / "mapped", batch=20)
    here = wrt.map(question, xs, model=of, take="norm", batch=20, client=None)
    again = wrt.map(question, xs, model=of, take="norm", to=folder / "mapped")
    everywhere = wrt.map(question, xs, model=of, take="norm", batch=20)
    equal = np.array_equal(stored, here) and np.array_equal(everywhere, here)
    return {"bits": bool(equal), "computed": [stored.computed, again.computed]}


def live() -> dict[str, object]:
    x = torch.ones(3, requires_grad=True)
    try:
        (d(x * 2) / d(x)).dask()
    except CannotTravel as error:
        return {"words": str(error)}
    return {"words": ""}


def scheduler_gone(client, folder: Path) -> dict[str, object]:
    J = slow_jacobian(2)
    thread = when(folder / "gone", 3, lambda: client.cluster.sync(client.cluster.scheduler.close))
    words = ""
    with wrt.options(way="pull"):
        try:
            J.to_zarr(folder / "gone", chunks=(2, -1))
        except Unfinished as error:
            words = str(error)
        thread.join()
        there = len(list((folder / "gone").glob("c/*/0")))
        again = J.to_zarr(folder / "gone", client=None)
        here = J.dask(chunks=(2, -1)).compute(scheduler="synchronous")
    return {"words": words, "there": there, "found": again.found, "bits": bool(np.array_equal(again, here))}


def demonstrated(client, folder: Path) -> dict[str, object]:
    """What `examples/cluster.py` shows once it has a cluster."""
    run = network(300).trace()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        agreed = demonstrate(d(run.output) / d(run.inputs[0]), client, 50, False, folder / "demo")
    return {"agreed": agreed, "lines": output.getvalue().splitlines()}


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    told: dict[str, object] = {}
    with wrt.local_cluster(2) as client:
        J = jacobian(model(20, 30, 40))
        told["same bits"] = same_bits(J)
        told["slices"] = slices(J, client)
        told["live"] = live()
        told["demo"] = demonstrated(client, folder)
        told["poisoned"] = poisoned(folder)
        told["sent once"] = sent_once(client, folder)
        told["mapped"] = mapped(folder)
        told["second derivative"] = second_derivative()
        told["disk full"] = disk_full(client, folder)
        told["worker killed"] = worker_killed(client, folder)
        told["restarted"] = restarted(client, folder)
        told["scheduler gone"] = scheduler_gone(client, folder)
        (folder / "told.json").write_text(json.dumps(told))
        sys.stdout.flush()
        os._exit(0)  # a cluster whose scheduler is gone takes long to close; its nannies end with this process


if __name__ == "__main__":
    main(Path(sys.argv[1]))
