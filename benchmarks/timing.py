"""Ratios that survive a busy machine: contenders take turns, and what is reported is the median of paired ratios.

A turn is a few calls in a row, as in a loop, after one that is not counted: rivals share most of their code with each other,
and whoever comes after one of them finds it in the caches.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SLOW = 2.5
CALLS = 4  # in a turn; one, where a call takes longer than what the one before has left in the caches matters
LONG = 0.05  # seconds
OUT = Path(__file__).with_name("out")


@dataclass
class Measured:
    """Seconds of each contender, and how ours compares with the best of the others."""

    name: str
    seconds: dict[str, float]
    ratio: float
    against: str
    limit: float | None = None

    @property
    def met(self) -> bool:
        return self.limit is None or self.ratio <= self.limit

    def __str__(self) -> str:
        times = "  ".join(f"{name} {1000 * seconds:.3f}" for name, seconds in self.seconds.items())
        limit = "" if self.limit is None else f" (limit {self.limit:.2f}{'' if self.met else ', MISSED'})"
        return f"{self.name:34s} {self.ratio:6.2f}x of {self.against}{limit}\n{'':34s} ms: {times}"


def compare(
    name: str,
    ours: Callable[[], Any],
    others: dict[str, Callable[[], Any]],
    *,
    limit: float | None = None,
    seconds: float = 3.0,
    synchronize: Callable[[], None] = lambda: None,
) -> Measured:
    """Let `ours` and every other contender take turns for a while; the ratio is to the fastest of them."""

    def once(run: Callable[[], Any]) -> float:
        synchronize()
        begun = time.perf_counter()
        run()
        synchronize()
        return time.perf_counter() - begun

    def a_turn(run: Callable[[], Any], expected: float) -> float:
        if expected > LONG:
            return once(run)
        run()
        return statistics.median(once(run) for _ in range(CALLS))

    contenders = {"wrt": ours, **others}
    first = {each: statistics.median([once(run) for _ in range(8)][3:]) for each, run in contenders.items()}
    # Whoever follows a contender that takes long finds cold caches and a used-up time slice: the slow ones leave the
    # race after the warm-up, and the others change places in every round.
    fastest = min(first[each] for each in others)
    racing = [each for each in contenders if each == "wrt" or first[each] <= SLOW * fastest]
    times: dict[str, list[float]] = {each: [] for each in racing}
    gc.collect()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds or len(times["wrt"]) < 7:
        for contender in racing:
            times[contender].append(a_turn(contenders[contender], first[contender]))
        racing = racing[1:] + racing[:1]
    middle = first | {contender: statistics.median(each) for contender, each in times.items()}
    against = min((each for each in times if each != "wrt"), key=lambda each: middle[each])
    ratio = statistics.median(a / b for a, b in zip(times["wrt"], times[against], strict=True))
    return Measured(name, middle, ratio, against, limit)


def save(part: str, measured: list[Measured], **facts: Any) -> Path:
    """The numbers as JSON, for whoever compares two runs."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{part}.json"
    told = {"machine": platform.machine(), "python": platform.python_version(), **facts}
    path.write_text(json.dumps({**told, "measured": [asdict(one) for one in measured]}, indent=1) + "\n")
    return path
