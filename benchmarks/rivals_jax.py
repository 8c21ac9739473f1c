"""Whole Jacobians in JAX: wrt next to jitted `jacrev` and `jacfwd`, asdex and sparsejac.

    python -m benchmarks.rivals_jax [--only name] [--rounds 9]

Cold is the first answer there is, from the bare function: recording, planning and compiling count, and so do detection
and coloring of asdex. sparsejac detects nothing: it is handed the true pattern, for free. Warm is the next answer; rivals
run forward again, wrt has the run recorded ("wrt"), records it again ("run anew"), or runs forward again as they do:
"function" is `J.function()` called at a point, proven at each call; "jit(function)" the same inside `jit`, where nobody can
prove anything. `.sparse()` is a matrix of scipy, asdex's a BCOO: both are measured as they come, and asdex's made a matrix of
scipy too. Everybody was asked often enough before that nothing is left to compile. What depends on weights and seeds alone
is done once by both: XLA folds constants, wrt keeps it between the halves of a program. Contenders take turns in an order
of chance; a turn is some calls in a row after as many that are not counted, and the median over the turns is told. The
clock is the time of the process, which keeps to one core and runs programs where they are called: handed to another
thread, a program of some microseconds costs several times its own time, and idle threads wait by burning it. What is
freed stays with the process: whether the system takes 16 MB back and hands them out anew decides by a factor of two, and
by chance, whose dense answer comes first.
"zeros alone" makes nothing but an array of the size of the dense answer: no dense answer can take less. Losses are printed like
wins.
"""

from __future__ import annotations

import ctypes
import os
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if sys.platform == "linux":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # XLA starts as many threads as there are cores
    for option, size in ((-3, 2**25), (-1, 2**30)):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
        getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)(option, size)

import argparse
import json
import random
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import asdex
import jax
import jax.numpy as jnp
import numpy as np
import sparsejac
from jax.experimental import sparse
from scipy.sparse import csr_array

import wrt
from benchmarks.rival_row import Row, dense_weights
from benchmarks.timing import OUT
from wrt import d
from wrt._backends.jax.engine import programs
from wrt._backends.jax.program import _compiled
from wrt._plan import cache

Network = Callable[[Any], Any]
PATIENCE = 60.0  # seconds that a rival may take to get ready
TURN = 20.0  # milliseconds of each turn of a contender
AS_SCIPY = "asdex, sparse as scipy's"
TOUCHED = 2**27  # bytes
BEFORE = 8  # questions after which every program is compiled


@dataclass
class Problem:
    """A function and the shape of its argument; `sparse` problems are those asdex is made for."""

    name: str
    make: Callable[[str], Network]
    shape: tuple[int, ...]
    sparse: bool = False


def network(*widths: int) -> Callable[[str], Network]:
    weights = dense_weights(*widths)

    def make(dtype: str) -> Network:
        layers = [jnp.asarray(w, dtype) for w in weights]

        def run(x: Any) -> Any:
            for w in layers[:-1]:
                x = jnp.tanh(x @ w)
            return x @ layers[-1]

        return run

    return make


def burgers(dtype: str) -> Network:
    def run(u: Any) -> Any:
        inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
        return jnp.concatenate([u[:1], inner, u[-1:]])

    return run


def brusselator(dtype: str) -> Network:
    def laplace(a: Any) -> Any:
        return jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1) - 4 * a

    def run(z: Any) -> Any:
        u, v = z[0], z[1]
        return jnp.stack([1 + u * u * v - 4 * u + 0.1 * laplace(u), 3 * u - u * u * v + 0.1 * laplace(v)])

    return run


def convolutions(dtype: str) -> Network:
    generator = np.random.default_rng(0)
    kernels = [jnp.asarray(generator.normal(size=(b, a, 3, 3)) * 0.2, dtype) for a, b in pairwise((3, 8, 8, 3))]

    def run(x: Any) -> Any:
        x = x[None]
        for kernel in kernels:
            x = jnp.tanh(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME"))
        return x[0]

    return run


def recurrent(dtype: str) -> Network:
    generator = np.random.default_rng(0)
    w = jnp.asarray(generator.normal(size=(64, 64)) / 8, dtype)
    inputs = jnp.asarray(generator.normal(size=(50, 64)), dtype)
    return lambda h: jax.lax.scan(lambda h, one: (jnp.tanh(h @ w + one), None), h, inputs)[0]


PROBLEMS = [
    Problem("dense network 256^4", network(256, 256, 256, 256), (256,)),
    Problem("network 16 to 1024", network(16, 256, 256, 1024), (16,)),
    Problem("network 1024 to 16", network(1024, 256, 256, 16), (1024,)),
    Problem("autoencoder 784-128-16-128-784", network(784, 128, 16, 128, 784), (784,)),
    Problem("64 samples x 32", network(32, 64, 32), (64, 32), sparse=True),
    Problem("Burgers, n = 2000", burgers, (2000,), sparse=True),
    Problem("Brusselator 2 x 32 x 32", brusselator, (2, 32, 32), sparse=True),
    Problem("three 3x3 convolutions, 3 x 24 x 24", convolutions, (3, 24, 24), sparse=True),
    Problem("recurrent network, 50 steps, h = 64", recurrent, (64,)),
]


def timed(run: Callable[[], Any]) -> float:
    begun = time.process_time()
    jax.block_until_ready(run())
    return 1e3 * (time.process_time() - begun)


def a_turn(run: Callable[[], Any]) -> float:
    """Milliseconds of one call among as many as take a while, after as many that are not counted."""
    count = max(3, int(TURN / max(timed(run), 0.01)))

    def several() -> None:
        for _ in range(count):
            jax.block_until_ready(run())

    several()
    return timed(several) / count


def asdex_ready(f: Network, x: Any, form: str) -> Network:
    found: Network = jax.jit(asdex.jacobian(f, x, output_format=form))  # type: ignore[arg-type]
    return found


def asdex_as_scipy(f: Network, x: Any, shape: tuple[int, int]) -> Network:
    """The matrix that `J.sparse()` gives, as an expert would make it of asdex's entries: their order is found once."""
    made = asdex_ready(f, x, "bcoo")
    first = made(x)
    flat = np.ravel_multi_index(tuple(np.asarray(first.indices).T), first.shape)
    order = np.argsort(flat)
    pattern = csr_array((np.ones(len(order), "float32"), np.divmod(flat[order], shape[1])), shape=shape)

    def matrix(x: Any) -> Any:
        values = np.asarray(made(x).data).take(order)
        return csr_array((values, pattern.indices.copy(), pattern.indptr.copy()), shape=shape).data

    return matrix


def sparsejac_ready(f: Network, x: Any, pattern: Any) -> Network:
    flat = lambda v: f(v.reshape(x.shape)).reshape(-1)
    made = jax.jit(sparsejac.jacrev(flat, sparse.BCOO.fromdense(jnp.asarray(pattern, "float32"))))
    return lambda x: made(x.reshape(-1)).data


def measure(problem: Problem, rounds: int) -> Row:
    """Cold once for each contender, then warm in turns."""
    f = problem.make("float32")
    x = jnp.asarray(np.random.default_rng(1).normal(size=problem.shape), "float32")
    row = Row(problem.name)
    kept: dict[str, Any] = {}

    def ask() -> Any:
        t = wrt.trace(f, x)
        kept.setdefault("t", t)
        return (d(t.output) / d(t.inputs[0])).value

    _forget()
    row.cold["wrt"] = timed(ask)
    if problem.sparse:
        _forget()
        row.cold["wrt, sparse"] = timed(lambda: _anew(problem, x).sparse().data)
    J = d(kept["t"].output) / d(kept["t"].inputs[0])
    row.disagreement = _disagreement(problem, J.value)
    row.notes.append(f"{J.explain().strategy}, {J.explain().passes} passes")
    truth = np.asarray(J.value).reshape(J.ask.m, J.ask.n)
    ready: dict[str, Callable[[], Any]] = {
        "wrt": lambda: (d(kept["t"].output) / d(kept["t"].inputs[0])).value,
        "wrt, run anew": ask,
    }
    if problem.sparse:
        ready["wrt, sparse"] = lambda: (d(kept["t"].output) / d(kept["t"].inputs[0])).sparse().data
    ready["zeros alone"] = jax.jit(lambda: jnp.zeros(J.size, "float32"))
    function = J.function()
    makers: dict[str, Callable[[], Network]] = {"wrt, function": lambda: function}
    makers["wrt, jit(function)"] = lambda: jax.jit(function)
    if problem.sparse:
        makers["wrt, function, sparse"] = lambda: function.sparse
        makers["wrt, jit(function), sparse"] = lambda: jax.jit(function.sparse)
    makers["jit(jacrev)"] = lambda: jax.jit(jax.jacrev(f))
    makers["jit(jacfwd)"] = lambda: jax.jit(jax.jacfwd(f))
    makers["asdex"] = lambda: asdex_ready(f, x, "dense")
    if problem.sparse:
        makers["asdex, sparse"] = lambda: asdex_ready(f, x, "bcoo")
        makers[AS_SCIPY] = lambda: asdex_as_scipy(f, x, (J.ask.m, J.ask.n))
        makers["sparsejac, sparse"] = lambda: sparsejac_ready(f, x, truth != 0)
    for name, make in makers.items():
        _prepare(row, name, make, x, ready)
    for run in ready.values():
        for _ in range(BEFORE):
            run()
    turns: dict[str, list[float]] = {name: [] for name in ready}
    order, chance = list(ready), random.Random(0)
    for _ in range(rounds):
        chance.shuffle(order)
        for name in order:
            turns[name].append(a_turn(ready[name]))
    row.warm = {name: statistics.median(times) for name, times in turns.items()}
    return row


def _forget() -> None:
    """No plan and no program is known, of whatever was asked before."""
    cache.forget()
    for kept in (programs, _compiled):
        kept.cache_clear()


def _anew(problem: Problem, x: Any) -> Any:
    """The question about a function that nobody has seen before."""
    t = wrt.trace(problem.make("float32"), x)
    return d(t.output) / d(t.inputs[0])


def _prepare(row: Row, name: str, make: Callable[[], Network], x: Any, ready: dict[str, Callable[[], Any]]) -> None:
    begun = time.process_time()
    try:
        made = make()
        leaves = lambda: jax.tree.leaves(made(x))
        jax.block_until_ready(leaves())
    except Exception as error:
        row.notes.append(f"{name} refused: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return
    row.cold[name] = 1e3 * (time.process_time() - begun)
    if row.cold[name] < 1e3 * PATIENCE:
        ready[name] = leaves


def _disagreement(problem: Problem, found: Any) -> float:
    """The largest difference to jacrev in float64, relative to its largest entry."""
    with jax.enable_x64(True):
        exact = jnp.asarray(np.random.default_rng(1).normal(size=problem.shape).astype("float32"), "float64")
        truth = np.asarray(jax.jit(jax.jacrev(problem.make("float64")))(exact))
    return float(np.abs(np.asarray(found).reshape(truth.shape) - truth).max() / np.abs(truth).max())


def show(row: Row) -> None:
    print(f"{row.name}   ({'; '.join(row.notes)}; off by {row.disagreement:.0e})")
    for kind, times in (("cold", row.cold), ("warm", row.warm)):
        print(f"    {kind} ms: " + "  ".join(f"{name} {value:.2f}" for name, value in times.items()))
    words = []
    if "asdex" in row.cold:
        words.append(f"cold {row.cold['asdex'] / row.cold['wrt']:.1f}x faster than asdex")
    if "asdex" in row.warm:
        for ours in ("wrt", "wrt, function", "wrt, jit(function)"):
            words.append(f"{ours} warm {row.warm['asdex'] / row.warm[ours]:.2f}x")
    if "asdex, sparse" in row.warm:
        words.append(f"sparse cold {row.cold['asdex, sparse'] / row.cold['wrt, sparse']:.1f}x")
        for ours in ("wrt", "wrt, function", "wrt, jit(function)"):
            words.append(f"{ours}, sparse warm {row.warm['asdex, sparse'] / row.warm[f'{ours}, sparse']:.2f}x")
        words.append(f"as scipy's matrix {row.warm[AS_SCIPY] / row.warm['wrt, sparse']:.2f}x")
    print("    " + ", ".join(words), flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    t = wrt.trace(lambda x: jnp.sin(x) * x, jnp.ones(3))  # what any first question in JAX pays is not the problem's
    (d(t.output) / d(t.inputs[0])).numpy()
    asdex.jacobian(lambda x: jnp.sin(x) * x, jnp.ones(3))(jnp.ones(3))
    np.ones(TOUCHED, np.uint8)  # on a virtual machine whoever touches memory first pays for it
    rows = []
    for problem in PROBLEMS:
        if chosen.only in problem.name:
            rows.append(measure(problem, chosen.rounds))
            show(rows[-1])
    OUT.mkdir(exist_ok=True)
    told = {"jax": jax.__version__, "rows": [asdict(row) for row in rows]}
    (OUT / "rivals_jax.json").write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
