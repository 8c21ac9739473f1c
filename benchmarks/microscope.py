"""What a click on the page costs the server: the whole request over HTTP, next to the bare backward it stands for.

    python -m benchmarks.microscope [--seconds 3]

The ResNet-like model of 17 convolutions, one picture and a batch of four; and a run of 5,000 operations opened as a graph.
Wall time is what a user waits; processor time is what remains of it on a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from collections.abc import Callable
from typing import Any

import torch

import wrt
from benchmarks.recording import ResNetLike
from benchmarks.timing import OUT
from wrt._microscope import assets
from wrt._microscope.model import Microscope
from wrt._microscope.server import Live

CLICK = 0.150  # seconds from a click to its answer, at most
GRAPH = 2.0  # seconds until a graph of 5,000 nodes is open, of which the server may use this much at most


class Page:
    """A page's side of the conversation: one connection that stays open."""

    def __init__(self, live: Live) -> None:
        here, self.root = f"127.0.0.1:{live.port}", live.root
        self.connection = http.client.HTTPConnection("127.0.0.1", live.port)
        self.headers = {"Origin": f"http://{here}", "X-Wrt-Token": live.token, "Content-Type": "application/json"}

    def ask(self, verb: str, **args: Any) -> Any:
        reply = self._post(verb, args)
        while "pending" in reply or reply.get("result", {}).get("done") is False:
            job = reply.get("pending", args.get("job"))
            args = {"job": job}
            reply = self._post("progress", args)
        return reply["result"]

    def _post(self, verb: str, args: dict[str, Any]) -> Any:
        self.connection.request("POST", f"{self.root}/api/{verb}", json.dumps(args).encode(), self.headers)
        return json.loads(self.connection.getresponse().read())


def best(run: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """The shortest wall time and the least processor time of many."""
    run()
    walls, cpus = [], []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(walls) < 5:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


def clicks(batch: int, seconds: float) -> list[dict[str, Any]]:
    """Every kind of click on the ResNet-like model, and the backward of one row by hand."""
    torch.manual_seed(0)
    model, x = ResNetLike().eval(), torch.randn(batch, 3, 32, 32)
    leaf = x.clone().requires_grad_()
    y = model(leaf)
    t = wrt.trace(model, x, values=True)
    with Live(Microscope(t)) as live:
        page = Page(live)
        source = page.ask("hello")["default"]["source"]
        all_of_it, pixel = {"name": source, "index": None}, {"name": source, "index": [0, 1, 16, 16]}
        output = {"name": "head", "index": [0, 3]}
        region = {"name": "blocks.7", "index": [0, 3, [4, 8], [4, 8]]}
        kinds = {
            "backward by hand": lambda: torch.autograd.grad(y[0, 3], leaf, retain_graph=True),
            "row": lambda: page.ask("derivative", target=output, source=all_of_it),
            "column": lambda: page.ask("derivative", target={"name": "head", "index": None}, source=pixel),
            "region": lambda: page.ask("derivative", target=region, source=all_of_it),
            "sizes": lambda: page.ask("sizes", target=output),
            "tensor": lambda: page.ask("tensor", name="blocks.7"),
        }
        by_hand = {"backward by hand": None}  # what a click stands for: it has no limit of its own
        return [_row(f"batch of {batch}: {name}", run, seconds, by_hand.get(name, CLICK)) for name, run in kinds.items()]


def graph(seconds: float) -> list[dict[str, Any]]:
    """A run of 5,000 operations: the first look at it, and the reply once it is known."""

    def long(x: torch.Tensor) -> torch.Tensor:
        h = x
        for _ in range(2500):
            h = torch.sin(h)
            h = h + x
        return h

    t = wrt.trace(long, torch.ones(4, dtype=torch.float64), values=True)

    def first() -> None:
        with Live(Microscope(t)) as live:
            page = Page(live)
            page.ask("hello")
            assert len(page.ask("graph")["nodes"]) > 5000

    with Live(Microscope(t)) as live:
        page = Page(live)
        again = _row("5,000 nodes: graph again", lambda: page.ask("graph"), seconds, GRAPH)
    return [_row("5,000 nodes: hello and graph, new server", first, seconds, GRAPH), again]


def _row(name: str, run: Callable[[], Any], seconds: float, limit: float | None) -> dict[str, Any]:
    wall, cpu = best(run, seconds)
    times = f"wall {1e3 * wall:8.1f} ms   processor {1e3 * cpu:8.1f} ms"
    verdict = ""
    if limit is not None:
        verdict = f"   limit {1e3 * limit:.0f} ms" + ("" if wall <= limit else " MISSED" if cpu > limit else " (busy machine)")
    print(f"{name:42s} {times}{verdict}", flush=True)
    return {"name": name, "wall": wall, "cpu": cpu, "limit": limit}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args(arguments).seconds
    assets.bundle = lambda: assets.Bundle("", "")  # type: ignore[assignment] # the server is measured, not the page
    print(f"torch on {torch.get_num_threads()} threads")
    rows = [*clicks(1, seconds), *clicks(4, seconds), *graph(seconds)]
    OUT.mkdir(exist_ok=True)
    (OUT / "microscope.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
