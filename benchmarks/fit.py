"""What passes cost on this machine: the rates of the planner's cost model, fitted to timed pulls and pushes.

    python -m benchmarks fit [--write] [--device cuda]

Dense, deep, elementwise and stencil maps are pulled and pushed in batches of several sizes. The rates are those that
explain all times best, each time counting by its relative error. They are saved with the other results; `--write` makes
them the ones that wrt ships with.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from benchmarks.planner_problems import Recurrent, brusselator, burgers, network
from benchmarks.timing import OUT
from wrt import d
from wrt._plan.cost import Rates, read_rates, write_rates

BATCHES = {"cpu": (8, 64, 256), "cuda": (8, 256, 2048)}
ROUNDS = 7


def maps(device: str) -> dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]]:
    def elementwise(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = torch.tanh(x) * 1.1
        return x

    found: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
        "network 64": (network(64, 64, 64, 64), (64,)),
        "network 256": (network(256, 256, 256, 256), (256,)),
        "network 768": (network(768, 768, 768), (768,)),
        "deep network": (network(*[96] * 13), (96,)),
        "samples": (network(32, 64, 32), (64, 32)),
        "elementwise 500": (elementwise, (500,)),
        "elementwise 5000": (elementwise, (5000,)),
        "Burgers": (burgers, (2000,)),
        "Brusselator": (brusselator, (2, 24, 24)),
        "recurrent": (Recurrent(64, 20), (64,)),
    }
    if device != "cpu":  # where a device is busy, and not only its driver
        found |= {
            "network 2048": (network(2048, 2048, 2048), (2048,)),
            "network 8192": (network(4096, 8192, 4096), (4096,)),
            "elementwise 100000": (elementwise, (100_000,)),
            "large Burgers": (burgers, (50_000,)),
        }
    return found


def timed(run: Callable[[], Any], device: str) -> float:
    """On a CPU the time of the one thread that computes; elsewhere until the device is done."""
    clock = time.thread_time if device == "cpu" else time.perf_counter
    done = torch.cuda.synchronize if device == "cuda" else lambda: None
    run()
    best = float("inf")
    for _ in range(ROUNDS):
        done()
        begun = clock()
        run()
        done()
        best = min(best, clock() - begun)
    return best


def pushed(ask: Any, tangents: torch.Tensor) -> Any:
    """A batch of pushes, with the pull that sets them up."""
    return ask.y.record.engine(ask.y, ask.x.values).push([tangents])


def measure(device: str) -> list[dict[str, Any]]:
    """One line for each map and batch: what was touched, and the seconds of a pull and a push."""
    lines = []
    for name, (f, shape) in maps(device).items():
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
        if isinstance(f, torch.nn.Module):
            f.to(device)
        ask = (d(f(x)) / d(x)).ask
        flow = ask.y.record.flow(ask.y, ask.x.values)
        passed = flow.between(frozenset({0}), frozenset(flow.xs))
        engine = ask.y.record.engine(ask.y, ask.x.values)
        for k in BATCHES[device]:
            seeds, tangents = (torch.randn(k, *shape, device=device) for shape in (ask.y.shape, x.shape))
            lines.append(
                {
                    "map": name,
                    "passes": k,
                    "operations": len(passed),
                    "products": sum(flow.products[t] for t in passed),
                    "elements": sum(flow.elements[t] for t in passed),
                    "pull": timed(lambda seeds=seeds, engine=engine: engine.pull(seeds), device),
                    "push": timed(lambda tangents=tangents, ask=ask: pushed(ask, tangents), device),
                }
            )
    return lines


def fit(lines: list[dict[str, Any]]) -> Rates:
    """Least squares of relative errors, no rate below zero."""
    pulls = np.array([line["pull"] for line in lines])
    touched = np.array([[x["operations"], x["passes"] * x["products"], x["passes"] * x["elements"]] for x in lines])
    (operation, product, element), _ = nnls(touched / pulls[:, None], np.ones(len(lines)))
    pushes = np.array([line["push"] for line in lines])
    parts = np.stack([touched[:, 0] * operation, touched[:, 1:] @ np.array([product, element])], 1)
    (push_operations, push), _ = nnls(parts / pushes[:, None], np.ones(len(lines)))
    return Rates(*(float(f"{rate:.3g}") for rate in (operation, product, element, push, push_operations)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="make these the rates that wrt ships with")
    parser.add_argument("--device", default="cpu", choices=sorted(BATCHES))
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = measure(chosen.device)
    rates = fit(lines)
    off = []
    for line in lines:
        each = line["products"] * rates.product + line["elements"] * rates.element
        told = line["operations"] * rates.operation + line["passes"] * each
        off.append(told / line["pull"])
        print(f"{line['map']:18s} {line['passes']:4d} pulls {1e3 * line['pull']:8.2f} ms, told {off[-1]:.2f}x of it")
    print(f"half of the pulls are told within {np.exp(np.median(np.abs(np.log(off)))):.2f}x")
    for name, value in rates.to_dict().items():
        print(f"  {name:16s} {value:.3g}   (shipped: {read_rates(chosen.device).to_dict()[name]:.3g})")
    OUT.mkdir(exist_ok=True)
    name = "rates.json" if chosen.device == "cpu" else f"rates_{chosen.device}.json"
    (OUT / name).write_text(json.dumps({"rates": rates.to_dict(), "lines": lines}, indent=1) + "\n")
    if chosen.write:
        write_rates(chosen.device, rates)
        print("written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
