"""What ran: the steps with their passes, the fallbacks taken, and the evidence that the answer is right."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Certificate:
    """Evidence for an answer; true when it held.

    kind "engine": a single pass of the framework's own engine, which is its own evidence.
    kind "probe": one pull of a random combination of rows, compared with the same combination of the answer; unbatched,
    but where the same passes were proven so before.
    kind "exact": no engine was needed (the identity, an empty question, a proven independence).
    kind "none": switched off by the user.
    """

    kind: Literal["engine", "probe", "exact", "none"]
    residual: float = 0.0
    tolerance: float = 0.0
    words: str = ""
    finite: bool = False
    """Whether the probe saw that every entry is finite: its weights are not zero, so one that is not would show."""
    probe: str = "by one unbatched pull"

    @property
    def passed(self) -> bool:
        return self.kind != "none" and self.residual <= self.tolerance

    @property
    def vacuous(self) -> bool:
        """Whether there was no finite entry to compare: nothing disagrees, and nothing is proven."""
        return self.tolerance == math.inf

    def __bool__(self) -> bool:
        return self.passed and not self.vacuous

    def __str__(self) -> str:
        if self.kind == "engine":
            return "the engine's own single pass"
        if self.kind == "exact":
            return self.words or "exact, no engine was needed"
        if self.kind == "none":
            return "switched off"
        if self.vacuous:
            return f"random probe {self.probe}: {self.words}, so nothing is proven"
        verdict = "agrees" if self.passed else "DISAGREES"
        bounds = f"residual {self.residual:.1e}, tolerance {self.tolerance:.1e}"
        return f"random probe {self.probe} {verdict}: {bounds}"


@dataclass(slots=True)
class Step:
    """One stretch of the work: `passes` sweeps of the engine in `calls` calls, batched as `rung` says."""

    what: str
    way: Literal["pull", "push"]
    rung: str
    passes: int
    calls: int
    seconds: float = 0.0


@dataclass(slots=True)
class Report:
    """What ran, in order; `explain()` prints it."""

    strategy: str = ""
    because: str = ""
    steps: list[Step] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    certificate: Certificate | None = None

    @property
    def passes(self) -> int:
        return sum(step.passes for step in self.steps)

    def take(self, other: Report) -> None:
        """What another run of the same question did, as one's own."""
        self.strategy, self.because, self.certificate = other.strategy, other.because, other.certificate
        self.steps.extend(other.steps)
        self.fallbacks.extend(other.fallbacks)
        self.notes.extend(other.notes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "because": self.because,
            "passes": self.passes,
            "steps": [asdict(step) for step in self.steps],
            "fallbacks": list(self.fallbacks),
            "notes": list(self.notes),
            "certificate": str(self.certificate) if self.certificate else None,
        }
