"""A cause, its place, its evidence and its remedy: what `why` returns and what errors carry."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wrt._core.thresholds import MESSAGE_CHARACTERS
from wrt._core.where import Where


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a gradient is missing, zero, not finite or wrong.

    `certain` is False where the pattern is there but the evidence is not: a hint. `also` are coarser words for it.
    """

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

    def __str__(self) -> str:
        """As a compiler would say it: the place, the source with the spot marked, the evidence, what to write."""
        told = [f"{self.where or 'somewhere'}: {self.sentence}  [{self.cause}{'' if self.certain else ', a hint'}]"]
        told += _source(self.where)
        if self.evidence:
            told.append(f"  evidence: {self.evidence}")
        if self.remedy:
            told.append(f"  write: {self.remedy}")
        return "\n".join(told)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "cause": self.cause,
            "sentence": self.sentence,
            "file": self.file,
            "line": self.line,
            "certain": self.certain,
            "evidence": self.evidence,
            "remedy": self.remedy,
            "also": list(self.also),
        }


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

    @property
    def certain(self) -> bool:
        """Whether something was found for which there is evidence."""
        return any(finding.certain for finding in self.found)

    def __str__(self) -> str:
        asked = f"{self.question}: " if self.question else ""
        if not self.found:
            return f"{asked}nothing wrong found"
        return "\n\n".join(([asked.rstrip(": ")] if asked else []) + [str(finding) for finding in self.found])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        return {"question": self.question, "findings": [finding.to_dict() for finding in self.found]}


def _source(where: Where | None) -> list[str]:
    """The user's line, the columns marked below it."""
    if where is None:
        return []
    text = linecache.getline(where.file, where.line).rstrip("\n")
    if not text.strip():
        return []
    margin = f"{where.line:>5} | "
    told = [margin + text]
    if where.column is not None and where.end_column is not None:
        end = where.end_column if where.end_line in (None, where.line) else len(text)
        start = len(text.encode()[: where.column].decode(errors="ignore"))
        width = max(1, len(text.encode()[where.column : end].decode(errors="ignore")))
        told.append(" " * (len(margin) - 2) + "| " + " " * start + "^" * width)
    return told


def first_line(error: BaseException) -> str:
    """What somebody else's error says, in one line that is not too long; its kind where it says nothing."""
    said = str(error).strip().splitlines()
    return said[0][:MESSAGE_CHARACTERS] if said else type(error).__name__
