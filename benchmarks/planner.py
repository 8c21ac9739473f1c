"""Whole Jacobians: what the planner finds by itself, next to every rival at its best setting.

    python -m benchmarks.planner [--only name] [--rounds 7] [--device cuda [--large]]

Each contender includes the forward run. Cold forgets every plan first; warm has answered the same question before.
Contenders take turns in an order of chance; a turn is a few calls in a row, as in a loop of the user's, after as many that
are not counted: whoever follows a contender that takes much memory would pay for its pages and caches. Ratios are of
medians over the turns. On a CPU the clock is the time of the one thread that computes, so that other programs on the
machine count less. Answers are compared with a float64 row loop.
On a GPU it is counted how many operations the host starts, and how often it waits for the device.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.func import jacfwd, jacrev, jvp, vmap

from benchmarks.planner_problems import Problem, large_problems, problems
from benchmarks.timing import OUT
from wrt import d
from wrt._plan import cache

Tensor = torch.Tensor
SLOW = 0.05  # seconds and more behind the best: a rival that gets one round
TURN = 0.02  # seconds of a turn that are counted, and as many before that are not


@dataclass
class Row:
    """One line of the table."""

    name: str
    shape: tuple[int, int]
    strategy: str
    passes: dict[str, int]
    milliseconds: dict[str, float]
    rival: str
    times_faster: dict[str, float]
    wanted: dict[str, float | None]
    disagreement: float
    notes: list[str] = field(default_factory=list)
    megabytes: dict[str, float] = field(default_factory=dict)
    """The most that tensors took at once, of wrt cold and warm and of the best rival."""
    host: dict[str, dict[str, int]] = field(default_factory=dict)
    """On a GPU: operations that the host starts, and how often it waits, of the same three."""

    @property
    def missed(self) -> list[str]:
        return [k for k, want in self.wanted.items() if want is not None and self.times_faster.get(k, want) < want]


def by_hand(f: Callable[[Tensor], Tensor], x: Tensor, chunk: int) -> Tensor:
    """What a careful person writes: pushes in chunks."""
    tangents = torch.eye(x.numel(), dtype=x.dtype, device=x.device).reshape(-1, *x.shape)
    push = vmap(lambda t: jvp(f, (x,), (t,))[1])
    return torch.cat([push(part).flatten(1) for part in tangents.split(chunk)]).T


def rivals(problem: Problem, x: Tensor) -> dict[str, Callable[[], Any]]:
    f = problem.f
    found: dict[str, Callable[[], Any]] = {"jacrev": lambda: jacrev(f)(x), "jacfwd": lambda: jacfwd(f)(x)}
    for chunk in (64, 128, 256):
        if problem_rows(problem, x) > chunk:
            found[f"jacrev({chunk})"] = lambda chunk=chunk: jacrev(f, chunk_size=chunk)(x)
    if x.numel() > 128:
        found["vmap(jvp), 128 at a time"] = lambda: by_hand(f, x, 128)
    if x.numel() <= 4096:  # it loops over samples in places: minutes for the large ones
        found["functional.jacobian, vectorized"] = lambda: torch.autograd.functional.jacobian(f, x, vectorize=True)
    found |= torchjd(problem, x)
    if problem_rows(problem, x) <= 256 and not x.is_cuda:  # always far behind: the small ones show it
        found["row loop"] = lambda: row_loop(f, x)
    return found


def torchjd(problem: Problem, x: Tensor) -> dict[str, Callable[[], Any]]:
    """TorchJD's Jacobian, all rows at once and in chunks; nothing where it is not installed."""
    try:
        from torchjd.autojac import jac
    except ImportError:
        return {}

    def run(chunk: int | None) -> Any:
        return jac(problem.f(x).reshape(-1), x, parallel_chunk_size=chunk)

    return {"TorchJD": lambda: run(None), "TorchJD(128)": lambda: run(128)}


def laid_out(blocks: Tensor) -> Tensor:
    """(samples, p, q) -> (samples, p, samples, q): what an expert adds who wants all of the Jacobian."""
    samples, p, q = blocks.shape
    whole = blocks.new_zeros(samples, p, samples, q)
    whole.diagonal(dim1=0, dim2=2).copy_(blocks.permute(1, 2, 0))
    return whole


def peak(run: Callable[[], Any], device: str) -> int:
    """Bytes of tensors at once, above those that were there before; on a CPU with those that NumPy was given, at their most."""
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    tracemalloc.start()  # NumPy tells it, and torch's profiler does not see large answers that lie in NumPy's memory
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        run()
        beside = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most + beside


def on_the_host(run: Callable[[], Any]) -> dict[str, int]:
    """Operations started on the device, and how often the host waits for it."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run()
    names = [event.name for event in profile.events()]
    starts = sum(name.startswith(("cudaLaunchKernel", "cuLaunchKernel")) for name in names)
    return {"starts": starts, "waits": sum(name in ("cudaStreamSynchronize", "cudaEventSynchronize") for name in names)}


def problem_rows(problem: Problem, x: Tensor) -> int:
    with torch.no_grad():
        return problem.f(x).numel()


def row_loop(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    y = f(x)
    return torch.stack([torch.autograd.grad(one, x, retain_graph=True)[0].reshape(-1) for one in y.reshape(-1)])


def ours(problem: Problem, x: Tensor, *, forget: bool, kind: str = "value") -> Callable[[], Any]:
    def run() -> Any:
        if forget:
            cache.forget()
        J = d(problem.f(x)) / d(x)
        return J.sparse() if kind == "sparse" else J.block_diagonal() if kind == "blocks" else J.value

    return run


def timed(run: Callable[[], Any], device: str) -> float:
    if device == "cpu":
        begun = time.thread_time()
        run()
        return time.thread_time() - begun
    torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def a_turn(run: Callable[[], Any], expected: float, device: str) -> float:
    """The median of a few calls in a row, after as many that are not counted."""
    calls = max(1, min(20, round(TURN / expected)))
    for _ in range(calls):
        run()
    return statistics.median(timed(run, device) for _ in range(calls))


def measure(problem: Problem, rounds: int, device: str) -> Row:
    """All contenders in turns."""
    x = torch.randn(problem.shape, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
    if isinstance(problem.f, torch.nn.Module):
        problem.f.to(device)
    others = rivals(problem, x)
    mine = {"cold": ours(problem, x, forget=True), "warm": ours(problem, x, forget=False)}
    if device == "cpu" or _is_sparse(problem, x):  # a full matrix as a sparse one takes a minute on its way to the host
        mine["sparse"] = ours(problem, x, forget=False, kind="sparse")
    if problem.expert is not None:
        others["expert"] = lambda: problem.expert(x)  # type: ignore[misc]
        others["expert, laid out"] = lambda: laid_out(problem.expert(x))  # type: ignore[misc]
        mine["blocks"] = ours(problem, x, forget=False, kind="blocks")
    contenders = {**mine, **others}
    for run in contenders.values():
        run()  # what is loaded and compiled the first time would put the best rival out of the race
    first = {name: timed(run, device) for name, run in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    quick = min(first[name] for name in others)
    order, chance = list(contenders), random.Random(0)
    for turn in range(rounds):
        chance.shuffle(order)  # whoever follows a contender that takes much memory finds less of it at hand
        for name in order:
            if turn and first[name] > 4 * quick + SLOW and name in others:
                continue  # a rival this far behind is not the best one
            times[name].append(a_turn(contenders[name], first[name], device))
    row = _row(problem, x, times)
    for name in ("cold", "warm", row.rival):
        row.megabytes[name] = peak(contenders[name], device) / 2**20
        if device == "cuda":
            row.host[name] = on_the_host(contenders[name])
    return row


def _is_sparse(problem: Problem, x: Tensor) -> bool:
    J = d(problem.f(x)) / d(x)
    _ = J.value
    return problem.sparse is not None or J.explain().strategy in ("structured", "colored")


def _row(problem: Problem, x: Tensor, times: dict[str, list[float]]) -> Row:
    middle = {name: statistics.median(each) for name, each in times.items()}
    apart = ("cold", "warm", "sparse", "blocks", "expert", "expert, laid out")
    rival = min((n for n in middle if n not in apart), key=middle.__getitem__)
    faster = {kind: middle[rival] / middle[kind] for kind in ("cold", "warm", "sparse") if kind in middle}
    wanted: dict[str, float | None] = {"cold": problem.cold, "warm": problem.warm, "sparse": problem.sparse}
    passes = {}
    cache.forget()
    for kind in ("cold", "warm"):
        J = d(problem.f(x)) / d(x)
        _ = J.value
        passes[kind] = J.explain().passes
    notes = [f"fell back: {words}" for words in J.explain().fallbacks]
    if "expert" in middle:  # which returns the blocks alone: filling a matrix of zeros is no part of it
        taken = {kind: middle[kind] / middle["expert"] for kind in ("blocks", "sparse", "warm") if kind in middle}
        words = ", ".join(f"{'all of it' if kind == 'warm' else kind} {ratio:.2f}x" for kind, ratio in taken.items())
        notes.append(f"next to the time of an expert's code, warm: {words}")
        laid = middle["warm"] / middle["expert, laid out"]
        notes.append(f"next to that code and zeros to lay its blocks into, warm: all of it {laid:.2f}x")
    return Row(
        problem.name, (J.ask.m, J.ask.n), J.explain().strategy, passes,
        {name: 1e3 * value for name, value in middle.items()}, rival, faster, wanted, disagreement(problem, x), notes,
    )  # fmt: skip


def disagreement(problem: Problem, x: Tensor) -> float:
    """The largest difference to a row loop in float64, relative to the largest entry."""
    exact = x.detach().double().requires_grad_()
    if isinstance(problem.f, torch.nn.Module):
        problem.f.double()
    try:
        if max(exact.numel(), problem_rows(problem, exact)) > 4096:
            return float("nan")  # a float64 truth of this size takes too long
        y = problem.f(exact)
        looped = y.numel() <= (256 if x.is_cuda else 2048)  # a row alone takes a GPU two milliseconds
        truth = row_loop(problem.f, exact) if looped else jacrev(problem.f)(exact).reshape(y.numel(), -1)
        found = (d(y) / d(exact)).value.reshape(truth.shape)
        return float((found - truth).abs().max() / truth.abs().max())
    except RuntimeError:
        return float("nan")  # weights that are no module's stay float32
    finally:
        if isinstance(problem.f, torch.nn.Module):
            problem.f.float()


def show(row: Row) -> None:
    faster = "  ".join(f"{kind} {value:.1f}x" for kind, value in row.times_faster.items())
    missed = f"   MISSED: {', '.join(f'{k} {row.wanted[k]:.2f}x' for k in row.missed)}" if row.missed else ""
    print(f"{row.name}  ({row.shape[0]} x {row.shape[1]})\n    {faster}  than {row.rival}{missed}")
    times = "  ".join(f"{name} {value:.2f}" for name, value in row.milliseconds.items())
    compared = "not compared" if math.isnan(row.disagreement) else f"off by {row.disagreement:.0e}"
    print(f"    {row.strategy}, {row.passes['cold']} passes cold, {row.passes['warm']} warm; {compared}")
    print(f"    ms: {times}")
    print("    MiB at most: " + "  ".join(f"{name} {value:.1f}" for name, value in row.megabytes.items()))
    for name, counts in row.host.items():
        print(f"    {name}: {counts['starts']} operations started, {counts['waits']} waited for")
    for note in row.notes:
        print(f"    {note}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--large", action="store_true", help="the sizes of a GPU")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    OUT.mkdir(exist_ok=True)
    size = "_large" if chosen.large else ""
    where = OUT / ("planner.json" if chosen.device == "cpu" and not size else f"planner_{chosen.device}{size}.json")
    for problem in large_problems() if chosen.large else problems():
        if chosen.only in problem.name:
            rows.append(measure(problem, chosen.rounds, chosen.device))
            show(rows[-1])
            told = {"device": chosen.device, "torch": torch.__version__, "rows": [asdict(row) for row in rows]}
            where.write_text(json.dumps(told, indent=1) + "\n")  # also of a run that is broken off
    missed = [row.name for row in rows if row.missed]
    print(f"{len(rows)} problems, {len(missed)} below what is wanted" + (f": {'; '.join(missed)}" if missed else ""))
    print(f"saved {where.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
