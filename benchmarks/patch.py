"""Some rows and some columns of a deep local map: six 3x3 convolutions on 64 x 64, 8 rows by 48 columns.

    python -m benchmarks patch [--rounds 20]

The rivals sweep whole tensors: a loop of rows, a batch of rows, `jacrev` of the rows. The clock is the thread's own, so
that other programs on the machine count less.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.func import jacrev

from benchmarks.planner_problems import Convolutions
from benchmarks.timing import OUT
from wrt import d
from wrt._backends.torch.patch import recipe
from wrt._plan import cache

ROWS = (0, 32, slice(28, 36))
COLUMNS = (slice(None), slice(30, 34), slice(30, 34))
WANTED = {"with the forward run, cold": 5.0, "y given, warm": 12.0}


def timed(run: Callable[[], Any]) -> float:
    run()  # the contender before has filled the caches with its own
    begun = time.thread_time()
    run()
    return time.thread_time() - begun


def contenders(f: Any, x: torch.Tensor, y: torch.Tensor | None) -> dict[str, Callable[[], Any]]:
    """`y` None: each runs f first."""

    def loop() -> torch.Tensor:
        made = f(x) if y is None else y
        return torch.stack([torch.autograd.grad(v, x, retain_graph=True)[0][COLUMNS] for v in made[ROWS]])

    def batch() -> torch.Tensor:
        made = (f(x) if y is None else y)[ROWS]
        found = torch.autograd.grad(made, x, torch.eye(8), is_grads_batched=True, retain_graph=True)[0]
        return found[(slice(None), *COLUMNS)]

    def ours() -> torch.Tensor:
        if y is None:
            cache.forget()
            recipe.cache_clear()
        value: torch.Tensor = (d(f(x) if y is None else y)[ROWS] / d(x)[COLUMNS]).value
        return value

    found = {"wrt": ours, "row loop": loop, "batch of rows": batch}
    if y is None:
        found["jacrev"] = lambda: jacrev(lambda z: f(z)[ROWS])(x)[(slice(None), *COLUMNS)]
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    f, x = Convolutions(6, 3, 8), torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    told = []
    for name, y in (("with the forward run, cold", None), ("y given, warm", f(x))):
        racing = contenders(f, x, y)
        torch.testing.assert_close(racing["wrt"](), racing["row loop"](), rtol=1e-3, atol=1e-6)
        times: dict[str, list[float]] = {each: [] for each in racing}
        for _ in range(chosen.rounds):
            for each, run in racing.items():
                times[each].append(timed(run))
        best = {each: min(seconds) for each, seconds in times.items()}
        rival = min((each for each in best if each != "wrt"), key=best.__getitem__)
        faster = best[rival] / best["wrt"]
        mark = "" if faster >= WANTED[name] else f"   MISSED: {WANTED[name]:.0f}x"
        print(f"{name}: {faster:.1f}x faster than {rival}{mark}")
        print("    ms: " + "  ".join(f"{each} {1e3 * seconds:.2f}" for each, seconds in best.items()))
        told.append({"name": name, "times_faster": faster, "rival": rival, "seconds": best, "wanted": WANTED[name]})
    OUT.mkdir(exist_ok=True)
    (OUT / "patch.json").write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
