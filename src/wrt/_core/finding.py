"""A cause, its place, its evidence and its remedy: what `why` returns and what errors carry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wrt._core.where import Where


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a gradient is missing, zero, not finite or wrong."""

    cause: str
    sentence: str
    where: Where | None = None
    certain: bool = False
    evidence: str = ""
    remedy: str = ""
    also: tuple[str, ...] = ()

    @property
    def file(self) -> str | None:
        return self.where.file if self.where else None

    @property
    def line(self) -> int | None:
        return self.where.line if self.where else None


@dataclass(frozen=True, slots=True)
class Findings:
    """What `why` found, most likely first; false when nothing is wrong."""

    found: tuple[Finding, ...] = ()
    question: str = ""

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, k: int) -> Finding:
        return self.found[k]
