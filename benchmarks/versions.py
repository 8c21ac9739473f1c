"""The planner's problems by two versions of wrt, turn by turn: `python -m benchmarks versions --other PATH/TO/src`.

Each version runs in a process of its own, and both take turns on every problem, so that a busy machine is busy for both.
Times hold the user's forward run. Cold: no plan is known. Warm: the plan of an earlier, identical question is.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1] / "src"
KINDS = ("cold", "warm", "sparse")


def measure(number: int, device: str, seconds: float) -> dict[str, float]:
    """In a worker: milliseconds of one problem, the best of many."""
    import torch

    from benchmarks.planner_problems import large_problems, problems
    from wrt import d

    torch.set_num_threads(1)
    problem = (problems() if device == "cpu" else large_problems())[number]
    f = problem.f.to(device) if isinstance(problem.f, torch.nn.Module) else problem.f
    x = torch.randn(problem.shape, generator=torch.Generator().manual_seed(1)).to(device).requires_grad_()

    def forget() -> None:
        for name in ("wrt._plan.cache", "wrt._planner.warm"):
            if name in sys.modules:
                sys.modules[name].forget()

    def once(kind: str) -> float:
        if kind == "cold":
            forget()
        started = time.perf_counter()
        J = d(f(x)) / d(x)
        kept = J.sparse() if kind == "sparse" else J.value
        if device != "cpu":
            torch.cuda.synchronize()
        took = time.perf_counter() - started
        del kept
        return 1e3 * took

    found = {}
    for kind in KINDS:
        once("warm")
        once(kind)
        times: list[float] = []
        ends = time.perf_counter() + seconds
        while len(times) < 5 or (time.perf_counter() < ends and len(times) < 400):
            times.append(once(kind))
        found[kind] = sorted(times)[len(times) // 4]
    return found


def ask(source: Path, number: int, device: str, seconds: float) -> dict[str, float]:
    flags = ["--worker", str(number), "--device", device, "--seconds", str(seconds)]
    command = [sys.executable, "-m", "benchmarks.versions", *flags]
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{HERE.parent}", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        return dict.fromkeys(KINDS, math.nan) | {"error": run.stderr[-300:]}  # type: ignore[dict-item]
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, help="the src folder of the version to compare with")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--worker", type=int)
    given = parser.parse_args(arguments)
    if given.worker is not None:
        print(json.dumps(measure(given.worker, given.device, given.seconds)))
        return
    if given.other is None:
        parser.error("--other is needed")
    compare(given)


def compare(given: Any) -> None:
    from benchmarks.planner_problems import large_problems, problems

    names = [problem.name for problem in (problems() if given.device == "cpu" else large_problems())]
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
    print(f"{'milliseconds, other -> this (ratio)':44}" + "".join(f"{kind:>30}" for kind in KINDS))
    for number, name in enumerate(names):
        if given.only and number not in given.only:
            continue
        best: list[dict[str, float]] = [{}, {}]
        for _ in range(given.turns):
            for place, source in enumerate((given.other, HERE)):
                for kind, took in ask(source, number, given.device, given.seconds).items():
                    if kind == "error":
                        print(f"  {source}: {took}")
                    elif not best[place].get(kind, math.inf) <= took:
                        best[place][kind] = took
        row = f"{name:44}"
        for kind in KINDS:
            before, after = best[0][kind], best[1][kind]
            ratios[kind].append(after / before)
            row += f"{before:9.2f} -> {after:8.2f} ({after / before:5.2f})"
        print(row, flush=True)
    means = (math.exp(sum(map(math.log, of)) / len(of)) if of else math.nan for of in ratios.values())
    print(f"{'geometric mean':44}" + "".join(f"{mean:28.2f}x " for mean in means))


if __name__ == "__main__":
    main()
