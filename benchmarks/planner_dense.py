"""Twenty dense problems without any structure: planning must be free where it cannot help.

    python -m benchmarks.planner_dense [--rounds 25] [--only name]

Contenders take turns. The clock is the time of the one thread that computes; what is judged is the median over the rounds
of the ratio to the better rival in the same round, so that a round that other programs disturb counts for nobody.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import jacfwd, jacrev

from benchmarks.planner_problems import Recurrent, network
from benchmarks.timing import OUT
from wrt import d
from wrt._plan import cache

Tensor = torch.Tensor
LIMIT = 1.05


def problems() -> dict[str, tuple[Callable[[Tensor], Tensor], int]]:
    torch.manual_seed(0)
    A, B, C = torch.randn(128, 128) / 11, torch.randn(300, 300) / 17, torch.randn(64, 512) / 8
    eye = 3 * torch.eye(64)
    return {
        "softmax": (lambda x: (B @ x).softmax(0), 300),
        "logsumexp of sums": (lambda x: torch.logsumexp(x[:, None] + B, 0), 300),
        "layer norm of a product": (lambda x: F.layer_norm(B @ x, (300,)), 300),
        "gated product": (lambda x: (A @ x).sigmoid() * (A.T @ x), 128),
        "three products": (lambda x: A @ torch.sin(A @ torch.sin(A @ x)), 128),
        "quadratic form": (lambda x: (A @ x) * x.sum() + x * (x @ A @ x), 128),
        "wide to narrow": (lambda x: C @ torch.tanh(x), 512),
        "narrow to wide": (lambda x: torch.tanh(C.T @ x), 64),
        "solve": (lambda x: torch.linalg.solve(eye + torch.outer(x, x), x), 64),
        "matrix power": (lambda x: torch.linalg.matrix_power(x.reshape(10, 10) / 4, 5).flatten(), 100),
        "discrete Fourier transform": (lambda x: torch.fft.rfft(x.sin()).real, 256),
        "cumulative product of a mix": (lambda x: torch.cumprod(1 + 0.01 * (A @ x), 0), 128),
        "normalized": (lambda x: (A @ x) / (A @ x).norm(), 128),
        "pairwise distances": (lambda x: (x[:, None] - x[None, :]).pow(2).sum(1) + (A @ x), 128),
        "network 128^3, ReLU": (lambda x: (A @ (A @ (A @ x).relu()).relu()), 128),
        "network 300, GELU": (lambda x: B @ F.gelu(B @ F.gelu(B @ x)), 300),
        "network 64-64-64": (network(64, 64, 64), 64),
        "network 512-512": (network(512, 512, 512), 512),
        "deep network, 12 layers": (network(*[96] * 13), 96),
        "recurrent, 20 steps, h = 96": (Recurrent(96, 20), 96),
    }


def timed(run: Callable[[], Any]) -> float:
    begun = time.thread_time()
    run()
    return time.thread_time() - begun


def measure(f: Callable[[Tensor], Tensor], n: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every contender, round by round."""
    x = torch.randn(n, generator=torch.Generator().manual_seed(1)).requires_grad_()

    def cold() -> Any:
        cache.forget()
        return (d(f(x)) / d(x)).value

    contenders = {
        "cold": cold,
        "warm": lambda: (d(f(x)) / d(x)).value,
        "jacrev": lambda: jacrev(f)(x),
        "jacfwd": lambda: jacfwd(f)(x),
    }
    torch.testing.assert_close(cold(), jacrev(f)(x), rtol=1e-3, atol=1e-4)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    chance = random.Random(0)
    for _ in range(rounds):
        chance.shuffle(order)  # whoever follows a contender that takes much memory finds less of it at hand
        for name in order:
            contenders[name]()
            times[name].append(timed(contenders[name]))
    return times


def judged(times: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and the median of paired ratios to the rival that is better on the whole."""
    seconds = {name: statistics.median(each) for name, each in times.items()}
    rival = min(("jacrev", "jacfwd"), key=seconds.__getitem__)
    ratios = {
        kind: statistics.median(ours / theirs for ours, theirs in zip(times[kind], times[rival], strict=True))
        for kind in ("cold", "warm")
    }
    return {**ratios, "rival": rival, "seconds": seconds}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    told: list[dict[str, Any]] = []
    for name, (f, n) in problems().items():
        if chosen.only not in name:
            continue
        row = {"name": name, **judged(measure(f, n, chosen.rounds))}
        best = row["seconds"][row["rival"]]
        told.append(row)
        mark = "   MISSED" if row["cold"] > LIMIT else ""
        print(f"{name:32s} cold {row['cold']:.2f}x  warm {row['warm']:.2f}x  of the best ({1e3 * best:.2f} ms){mark}")
    OUT.mkdir(exist_ok=True)
    (OUT / "planner_dense.json").write_text(json.dumps(told, indent=1) + "\n")
    missed = [row["name"] for row in told if row["cold"] > LIMIT]
    print(f"{len(missed)} of {len(told)} above {LIMIT}x" + (f": {', '.join(missed)}" if missed else ""))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
