"""JAX's own test harnesses: an element by wrt equals `jax.vjp`'s, or the refusal is named.

    python -m corpus jax_harnesses [--quick] [--part=1/4]
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import wrt
from wrt import d

WANTED = 900
QUICK = 12  # every how-many-th harness with --quick
TOLERANCE = {"float32": 2e-5, "float64": 1e-11}


@dataclass(frozen=True)
class Outcome:
    """`agrees`, `refused` (by wrt, with its reason), `jax refuses`, `no floats` or `DISAGREES`."""

    kind: str
    reason: str = ""


def harnesses(start: int, step: int) -> Iterator[Any]:
    """Those of real floating point: others have no derivative, and half precision is compared with nothing sharper."""
    from jax._src.internal_test_util import test_harnesses  # reads jax_enable_x64 when imported

    chosen = [h for h in test_harnesses.all_harnesses if np.dtype(h.dtype).name in TOLERANCE]
    yield from chosen[start::step]


def is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and np.dtype(leaf.dtype).name in TOLERANCE and np.size(leaf) > 0


def examine(harness: Any) -> Outcome:
    """Ask one element of the first output with respect to every floating-point input."""
    try:
        args = harness.dyn_args_maker(np.random.RandomState(0))
        shapes = jax.eval_shape(harness.dyn_fun, *args)
    except Exception as error:
        return Outcome("jax refuses", type(error).__name__)
    outputs = [k for k, leaf in enumerate(jax.tree.leaves(shapes)) if is_float(leaf)]
    inputs = [k for k, leaf in enumerate(args) if is_float(leaf)]
    if not outputs or not inputs:
        return Outcome("no floats")

    def first(*given: Any) -> Any:
        return jax.tree.leaves(harness.dyn_fun(*given))[outputs[0]]

    return compare(first, args, inputs)


def compare(f: Any, args: tuple[Any, ...], inputs: list[int]) -> Outcome:
    shape = jax.eval_shape(f, *args).shape
    at = tuple(size // 2 for size in shape)
    try:
        truth = by_jax(f, args, inputs, at)
    except Exception as error:
        truth = None
        refusal = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:80]}"
    try:
        t = wrt.trace(f, *args)
        found = [(d(t.output)[at] / d(t.inputs[k])).numpy() for k in inputs]
    except wrt.errors.WrtError as error:
        if truth is None:
            return Outcome("jax refuses", refusal)
        if _alone(f, args, inputs, at):
            return Outcome("refused", f"{type(error).__name__}: {_reason(error)}")
        return Outcome("jax refuses", f"with respect to one input alone: {_reason(error)}")
    if truth is None:
        return Outcome("answered where jax refuses", refusal)
    for row, expected in zip(found, truth, strict=True):
        tolerance = TOLERANCE[expected.dtype.name] * max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
        finite = np.isfinite(expected)
        if not np.allclose(row[finite], expected[finite], rtol=0, atol=tolerance):
            return Outcome("DISAGREES", f"by {np.abs(row - expected)[finite].max():.1e}")
    return Outcome("agrees")


def by_jax(f: Any, args: tuple[Any, ...], inputs: list[int], at: tuple[int, ...]) -> list[Any]:
    """The same row by `jax.vjp` alone."""

    def row(*moved: Any) -> Any:
        given = list(args)
        y, pull = jax.vjp(lambda *xs: f(*_put(given, inputs, xs)), *moved)
        return pull(jax.numpy.zeros_like(y).at[at].set(1))

    moved = [args[k] for k in inputs]
    try:
        found = jax.jit(row)(*moved)
    except Exception:  # some operations are differentiated outside `jit` alone
        found = row(*map(jax.numpy.asarray, moved))
    return [np.asarray(g) for g in found]


def _alone(f: Any, args: tuple[Any, ...], inputs: list[int], at: tuple[int, ...]) -> bool:
    """Whether `jax.vjp` has an answer for every input by itself, which is how wrt was asked."""
    try:
        for k in inputs:
            by_jax(f, args, [k], at)
    except Exception:
        return False
    return True


def _put(given: list[Any], places: list[int], arrays: Any) -> list[Any]:
    filled = list(given)
    for k, array in zip(places, arrays, strict=True):
        filled[k] = array
    return filled


def _reason(error: wrt.errors.WrtError) -> str:
    """Without places and names, so that equal reasons count together."""
    words = error.where.split("  ")[-1] if isinstance(error, wrt.errors.GradientCut) else error.where
    return words[:110]


def part(arguments: list[str]) -> tuple[int, int]:
    """Where to start, and how far to step: all of them unless told otherwise."""
    for word in arguments:
        if word.startswith("--part="):
            which, of = word.removeprefix("--part=").split("/")
            return int(which) - 1, int(of)
    return 0, QUICK if "--quick" in arguments else 1


def main(arguments: list[str]) -> int:
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_x64", True)
    started = time.perf_counter()
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    start, step = part(arguments)
    for number, harness in enumerate(harnesses(start, step)):
        outcome = examine(harness)
        outcomes[outcome.kind] += 1
        if outcome.kind == "DISAGREES":
            print(f"  DISAGREES  {harness.fullname}  {outcome.reason}")
        elif outcome.reason:
            reasons[f"{outcome.kind}  {harness.group_name}  {outcome.reason}"] += 1
        if number % 50 == 49:
            jax.clear_caches()  # a thousand small programs would fill the memory
            print(f"  {number + 1} asked, {outcomes['agrees']} agree", flush=True)
    for reason, count in sorted(reasons.items()):
        print(f"  {count:4d}  {reason}")
    told = ", ".join(f"{count} {kind}" for kind, count in outcomes.most_common())
    print(f"JAX test harnesses: {told}; {time.perf_counter() - started:.0f} s")
    enough = step > 1 or outcomes["agrees"] >= WANTED
    return 0 if enough and not outcomes["DISAGREES"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
