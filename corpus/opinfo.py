"""Every operator of torch's own test database: wrt against the row loop of plain autograd.

For each backward sample (float64, CPU), three random elements are asked for and compared with the engine's own row, and
a whole Jacobian of at most 200 x 200 is asked for by rows and by columns; where the operations tell its pattern, the
pattern must hold every nonzero. What may disagree stands in
`exceptions.toml`, with its reason; anything else makes this program fail, and so does an exception that is not needed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tomllib
import warnings
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

LARGEST = 200
TOLERANCE = 1e-12  # relative to the largest entry of what is compared
ROUNDINGS = 16  # where x is of lower precision than float64
ELEMENTS = 3
EXCEPTIONS = Path(__file__).with_name("exceptions.toml")


@dataclass
class Outcome:
    """What came of one operator: checks made, by kind, and every disagreement in words."""

    operator: str
    samples: int = 0
    agreed: Counter[str] = field(default_factory=Counter)
    disagreed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)


# ---------------------------------------------------------------------------------------------- one operator


def examine(place: int, most: int | None) -> Outcome:
    """All samples of one operator, or the first `most`."""
    import torch

    op = operators()[place]
    outcome = Outcome(f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(zlib.crc32(outcome.operator.encode()))
        for number, sample in enumerate(op.sample_inputs("cpu", torch.float64, requires_grad=True)):
            if most is not None and number >= most:
                break
            outcome.samples += 1
            chance = random.Random(f"{outcome.operator} {number}")
            examine_sample(op, sample, chance, outcome)
    outcome.disagreed = dict(outcome.disagreed)
    return outcome


@cache
def operators() -> list[Any]:
    """The operators that torch says it can differentiate in float64 on a CPU."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")]


def examine_sample(op: Any, sample: Any, chance: random.Random, outcome: Outcome) -> None:
    import torch
    from torch.utils import _pytree as pytree

    arguments = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    xs = [leaf for leaf in arguments if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    try:
        made = sample.output_process_fn_grad(op(sample.input, *sample.args, **sample.kwargs))
    except Exception as error:
        outcome.noted[f"torch itself: {type(error).__name__}"] += 1
        return
    ys = [leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    pairs = [(y, x) for y in ys for x in xs if y is not x and y.numel() and x.numel()]
    if not pairs:
        outcome.noted["nothing to differentiate"] += 1
        return
    for _ in range(ELEMENTS):
        y, x = chance.choice(pairs)
        examine_element(y, x, chance.randrange(y.numel()), outcome)
    small = [(y, x) for y, x in pairs if y.numel() <= LARGEST and x.numel() <= LARGEST]
    if small:
        examine_whole(*chance.choice(small), outcome)


def examine_element(y: Any, x: Any, place: int, outcome: Outcome) -> None:
    """d(y)[i] / d(x) next to plain autograd on y[i]."""
    from wrt import d

    expected = plain_row(y, x, place, outcome)
    if expected is not None:
        verdict(outcome, "element", lambda: (d(y).__getitem__(index_of(y, place)) / d(x)).value, expected, x)


def examine_whole(y: Any, x: Any, outcome: Outcome) -> None:
    """d(y) / d(x) next to the loop of all rows, by both ways."""
    import torch

    import wrt
    from wrt import d

    rows = [plain_row(y, x, place, outcome) for place in range(y.numel())]
    if any(row is None for row in rows):
        return
    reached = [row for row in rows if row != "no path"]
    blank = reached[0].new_zeros(reached[0].shape) if reached else None
    expected = "no path" if blank is None else torch.stack([blank if row == "no path" else row for row in rows])
    if not isinstance(expected, str):
        examine_pattern(y, x, expected, outcome)
    shape = (*y.shape, *x.shape)
    for way in ("pull", "push", None):
        asked: list[Any] = []

        def ask(asked: list[Any] = asked) -> Any:
            asked.append(d(y) / d(x))
            return asked[0].value

        with wrt.options(way=way):
            verdict(outcome, way or "planned", ask, expected, x, shape)
            for J in asked:
                if J.known is not None and _caught(J.known.report):
                    outcome.noted[f"{way or 'planned'}: the certificate disagreed, a fallback answered"] += 1


def _caught(report: Any) -> bool:
    """Whether the proof found a plan, or a column of it, to be wrong."""
    words = " ".join((*report.fallbacks, str(report.certificate)))
    return any(said in words for said in ("DISAGREES", "does not agree", "swept alone"))


def examine_pattern(y: Any, x: Any, expected: Any, outcome: Outcome) -> None:
    """The pattern that the operations tell, where they do, holds every nonzero of the loop of all rows."""
    import numpy as np

    from wrt import d
    from wrt._plan.patterns.irregular import compose
    from wrt.errors import WrtError

    try:
        ask = (d(y) / d(x)).ask
    except WrtError:
        return
    if ask.y.record.same(ask.y, ask.x.values[0]) or not all(map(ask.y.record.has_history, (ask.y, *ask.x.values))):
        return
    local = ask.y.record.local_maps(ask.y, ask.x.values[0])
    pattern = None if local is None else compose(local, np.arange(ask.m), np.arange(ask.n), most=1.0)
    if pattern is None:
        outcome.noted["no pattern claimed"] += 1
        return
    outside = (expected.reshape(ask.m, ask.n).numpy() != 0) & ~pattern.toarray()
    if outside.any():
        outcome.disagreed["pattern"].append(f"{int(outside.sum())} nonzeros outside of it")
    else:
        outcome.agreed["pattern"] += 1


def index_of(y: Any, place: int) -> tuple[int, ...]:
    import numpy as np

    return tuple(int(k) for k in np.unravel_index(place, tuple(y.shape)))


def plain_row(y: Any, x: Any, place: int, outcome: Outcome) -> Any:
    """The engine's own row: a tensor, "no path", or None where the engine itself refuses."""
    import torch

    def grad(scalar: Any) -> Any:
        (row,) = torch.autograd.grad(scalar, x, retain_graph=True, allow_unused=True)
        return None if row is None else row.to_dense()

    try:
        element = y[index_of(y, place)] if y.layout == torch.strided else None
        if element is None:
            outcome.noted["an output without fixed positions (sparse)"] += 1
            return None
        if not element.is_complex():
            row = grad(element)
            return "no path" if row is None else row
        real, imaginary = grad(element.real), grad(element.imag)
        return "no path" if real is None else torch.complex(real, imaginary)
    except Exception as error:
        outcome.noted[f"torch's own backward: {type(error).__name__}"] += 1
        return None


def verdict(outcome: Outcome, kind: str, ask: Any, expected: Any, x: Any, shape: Any = None) -> None:
    """Ask, and write down whether the answer is the engine's."""
    from wrt.errors import NoPath, WrtError

    try:
        got = ask()
    except NoPath:
        if isinstance(expected, str):
            outcome.agreed[kind] += 1
        else:
            outcome.disagreed[kind].append("no path, though the engine has a row")
        return
    except WrtError as error:
        outcome.refused[f"{kind}: {type(error).__name__}: {error.what}"] += 1
        return
    except Exception as error:
        outcome.disagreed[kind].append(f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return
    if isinstance(expected, str):
        if got.abs().max() != 0:
            outcome.disagreed[kind].append("a nonzero row, though the engine has no path")
        return
    words = difference(got, expected.reshape(shape or got.shape), outcome)
    if words:
        outcome.disagreed[kind].append(words)
    else:
        outcome.agreed[kind] += 1


def difference(got: Any, expected: Any, outcome: Outcome) -> str:
    """Empty where equal; entries that the engine left NaN or infinite may be finite here."""
    import torch

    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{tuple(got.shape)} of {got.dtype}, not {tuple(expected.shape)} of {expected.dtype}"
    finite = torch.isfinite(expected)
    repaired = int((~finite & torch.isfinite(got)).sum())
    if repaired:
        outcome.noted["entries that plain autograd left not finite"] += repaired
    broken = finite & ~torch.isfinite(got)
    if bool(broken.any()):
        return f"{int(broken.sum())} entries are not finite"
    if not bool(finite.any()):
        return ""
    worst = float((got - expected)[finite].abs().max())
    scale = float(expected[finite].abs().max())
    tolerance = max(TOLERANCE, ROUNDINGS * torch.finfo(got.dtype).eps)  # a few operators take float32 weights
    return "" if worst <= tolerance * scale else f"off by {worst:.1e} of {scale:.1e}"


# ---------------------------------------------------------------------------------------------- all of them


def sweep(most: int | None, jobs: int) -> Iterator[Outcome]:
    places = range(len(operators()))
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")  # torch keeps threads, which do not survive a fork
    with context.Pool(jobs) as pool:
        yield from pool.imap_unordered(_examine, [(place, most) for place in places], chunksize=4)


def _examine(task: tuple[int, int | None]) -> Outcome:
    return examine(*task)


def exceptions() -> dict[str, dict[str, Any]]:
    """operator -> the checks in which it may disagree, and why."""
    return {entry["name"]: entry for entry in tomllib.loads(EXCEPTIONS.read_text()).get("operator", [])}


def report(outcomes: list[Outcome], *, whole: bool) -> int:
    """Print the summary; the number of unexpected things."""
    known = exceptions()
    unexpected = 0
    agreed: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for outcome in sorted(outcomes, key=lambda one: one.operator):
        agreed += outcome.agreed
        noted += outcome.noted
        refused += outcome.refused
        exception = known.get(outcome.operator, {})
        allowed = exception.get("checks", [])
        for kind, words in outcome.disagreed.items():
            expected = kind in allowed
            unexpected += not expected
            status = "known     " if expected else "UNEXPECTED"
            print(f"{status}  {outcome.operator:40s} {kind:8s} {len(words)} of {outcome.samples}: {words[0]}")
        for kind in set(allowed) - set(outcome.disagreed) if whole and not exception.get("sometimes") else ():
            unexpected += 1
            print(f"UNEXPECTED  {outcome.operator:40s} {kind:8s} agrees now: take it off the list")
    samples = sum(outcome.samples for outcome in outcomes)
    print(f"\n{len(outcomes)} operators, {samples} backward samples, {len(known)} operators on the list of exceptions")
    for title, counts in (("equal to the row loop", agreed), ("refused in words", refused), ("met", noted)):
        for words, count in sorted(counts.items(), key=lambda pair: -pair[1]):
            print(f"{count:8d}  {title}: {words}")
    caught = sorted(one.operator for one in outcomes if any("disagreed" in words for words in one.noted))
    print(f"caught by a certificate and answered by a fallback: {', '.join(caught) or 'none'}")
    print(f"{unexpected:8d}  unexpected")
    return unexpected


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one sample of each operator")
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args(arguments)
    if chosen.only:
        places = [k for k, op in enumerate(operators()) if chosen.only in op.name]
        outcomes = [examine(place, 1 if chosen.quick else None) for place in places]
    else:
        outcomes = list(sweep(1 if chosen.quick else None, chosen.jobs))
    return 1 if report(outcomes, whole=not chosen.quick and not chosen.only) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
