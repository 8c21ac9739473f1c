"""What ran: the steps with their passes, the fallbacks taken, and the evidence that the answer is right."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from wrt._core.thresholds import COARSE_SHARE


@dataclass(frozen=True, slots=True)
class Certificate:
    """Evidence for an answer; true when it held.

    kind "engine": plain passes of the framework's own engine, which are their own evidence.
    kind "probe": the array that is handed out, multiplied by random weights, next to one independent backward pass.
    kind "exact": no engine was needed (the identity, an empty question, a proven independence).
    kind "none": switched off by the user.
    """

    kind: Literal["engine", "probe", "exact", "none"]
    share: float = 0.0
    """The worst column's difference as a share of what is allowed: at most 1 where the answer holds."""
    difference: float = 0.0
    """The largest difference of a column, next to the size of that column."""
    resolution: float = 0.0
    """A fault below this share of a column would not show."""
    words: str = ""
    compared: bool = True
    """Whether there was anything to compare: an answer in which nothing is finite cannot be proven."""

    @property
    def passed(self) -> bool:
        return self.kind != "none" and self.share <= 1.0

    def __bool__(self) -> bool:
        return self.passed and self.compared

    def __str__(self) -> str:
        if self.kind == "engine":
            return self.words or "the engine's own plain pass"
        if self.kind == "exact":
            return self.words or "exact, no engine was needed"
        if self.kind == "none":
            return "switched off"
        if not self.compared:
            return f"not checked: {self.words}"
        verdict = "checked against" if self.passed else "DISAGREES with"
        found = f"{verdict} an independent backward pass: largest difference {self.difference:.1g} of its column"
        if self.resolution > COARSE_SHARE:
            found += f"; a fault below {100 * self.resolution:.1g} % of a column would not show"
        return f"{found}; {self.words}" if self.words else found


@dataclass(slots=True)
class Step:
    """One stretch of the work: `passes` sweeps of the engine in `calls` calls, by a `method` (vmap, one by one ...)."""

    what: str
    way: Literal["pull", "push"]
    method: str
    passes: int
    calls: int
    seconds: float = 0.0


@dataclass(slots=True)
class Report:
    """What ran, in order; `explain()` prints it. `declined` says why each better plan was not taken."""

    strategy: str = ""
    because: str = ""
    steps: list[Step] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    certificate: Certificate | None = None
    declined: list[str] = field(default_factory=list)

    @property
    def passes(self) -> int:
        return sum(step.passes for step in self.steps)

    def take(self, other: Report) -> None:
        """What another run of the same question did, as one's own."""
        self.strategy, self.because, self.certificate = other.strategy, other.because, other.certificate
        for mine, theirs in (
            (self.steps, other.steps), (self.fallbacks, other.fallbacks), (self.notes, other.notes),
            (self.declined, other.declined),
        ):  # fmt: skip
            mine.extend(theirs)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "because": self.because,
            "passes": self.passes,
            "steps": [asdict(step) for step in self.steps],
            "fallbacks": list(self.fallbacks),
            "declined": list(self.declined),
            "notes": list(self.notes),
            "certificate": str(self.certificate) if self.certificate else None,
        }
