"""`why`: the findings for a pair of values, with the lines of source they point at."""

from __future__ import annotations

import linecache
from typing import Any

from wrt._core.finding import Finding
from wrt._core.where import Where
from wrt._microscope.graph import base_name
from wrt._microscope.question import Side
from wrt._notation.why import why

AROUND = 2  # lines of source before and after the one that is meant


def reasons(y: Side, x: Side, *, sources: bool) -> dict[str, Any]:
    """The reply to `why`."""
    found = why(y.selected, x.selected)
    return {"question": found.question, "findings": [told(finding, sources=sources) for finding in found]}


def told(finding: Finding, *, sources: bool) -> dict[str, Any]:
    """One finding as plain data; the file by its name alone."""
    where = finding.where
    return {
        "cause": finding.cause,
        "sentence": finding.sentence,
        "certain": finding.certain,
        "file": None if where is None else base_name(where),
        "line": finding.line,
        "function": None if where is None else where.function or None,
        "evidence": finding.evidence.splitlines(),
        "remedy": finding.remedy,
        "source_lines": _lines(where) if sources and where is not None else None,
    }


def _lines(where: Where) -> list[dict[str, Any]] | None:
    first, last = max(1, where.line - AROUND), where.line + AROUND
    texts = [(line, linecache.getline(where.file, line).rstrip("\n")) for line in range(first, last + 1)]
    shown = [{"line": line, "text": text, "mark": line == where.line} for line, text in texts if text]
    return shown or None
