"""What is asked of every answer with a planted fault: right numbers, a true certificate, and words about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.faults.faults import Numbers
from tests.faults.plant import Plant
from wrt._core.report import Report
from wrt._run.prove import weights_of

ROUNDINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-8}
OWN = {"float64": 32, "float32": 32, "bfloat16": 12}
FLOOR = 4
NOTICED = ("DISAGREES", "does not agree", "did not hold", "no path", "another shape", "is not what it was")
TOO_SMALL = "too small to show"
MOST_ROUNDED = 0.25
"""Of a column, by which a pass may round in half precision where terms cancel."""


@dataclass(frozen=True)
class Outcome:
    """How a fault was noticed: "next plan", "column alone", "asked again"; or that it is too small to show."""

    how: str
    off: float
    """The largest share of a column by which the spoiled answer was off."""

    @property
    def noticed(self) -> bool:
        return self.how != TOO_SMALL


def outcome(report: Report | None, plant: Plant, found: Numbers, truth: Numbers, dtype: str) -> Outcome:
    """Assert that a fault was put in, noticed and answered right, or that it is too small for its type.

    In double precision everything shows. In single precision a small column that is scaled by a thousandth may not, and in
    half precision whatever the weights happen to hide.
    """
    assert report is not None
    assert plant.fired, "the fault was not put in"
    off = np.inf
    if plant.handed_out is not None:
        off = off_by(plant.handed_out, truth)
        assert off > 0, "the fault changed nothing"
        if dtype != "float64" and not how_noticed(report):
            rounds = report.certificate is not None and "as far as it can tell" in report.certificate.words
            if (rounds and off <= MOST_ROUNDED) or not shows(plant.handed_out, truth, dtype):
                return Outcome(TOO_SMALL, off)
    how = require_noticed(report)
    require_right(found, truth, dtype)
    return Outcome(how, off)


def shows(spoiled: Numbers, truth: Numbers, dtype: str) -> bool:
    """Whether the bound and the weights let this fault be seen, with a margin for the roundings of right answers."""
    with np.errstate(all="ignore"):
        sizes = np.linalg.norm(spoiled, axis=0)
        off = np.abs(weights_of(len(truth)) @ (spoiled - truth))
        allowed = ROUNDINGS[dtype] * (OWN[dtype] * sizes + FLOOR * sizes.max())
        return bool((~(off <= 1.5 * allowed)).any() or ((sizes == 0) & truth.any(axis=0)).any())


def require_right(found: Any, truth: Numbers, dtype: str) -> None:
    """Each column as a loop of plain backward passes has it, within roundings of its size."""
    got = np.asarray(found, dtype=np.float64).reshape(truth.shape)
    sizes = np.linalg.norm(truth, axis=0)
    off = np.linalg.norm(got - truth, axis=0)
    allowed = ROUNDINGS[dtype] * (64 * sizes + 8 * sizes.max())
    assert (off <= allowed).all(), f"off by {np.max(off / (sizes + 1e-300)):.2g} of a column"


def how_noticed(report: Report) -> str:
    """As the report tells; empty where nothing was noticed."""
    if any(word in words for words in report.fallbacks for word in NOTICED):
        return "next plan"
    if report.certificate is not None and "swept alone" in report.certificate.words:
        return "column alone"
    return "asked again" if any("finite" in note for note in report.notes) else ""


def require_noticed(report: Report) -> str:
    assert report.certificate, f"the certificate is not true: {report.certificate}"
    how = how_noticed(report)
    assert how, f"not noticed: {report.certificate}; {report.fallbacks}"
    return how


def off_by(spoiled: Numbers, truth: Numbers) -> float:
    """The largest share of a column by which a spoiled answer is off."""
    sizes = np.linalg.norm(truth, axis=0)
    with np.errstate(all="ignore"):
        off = np.linalg.norm(spoiled - truth, axis=0) / np.where(sizes > 0, sizes, sizes.max())
    return float(np.nan_to_num(off, nan=np.inf).max())


def counted(outcomes: Iterable[Outcome]) -> str:
    """In words: "12 noticed (next plan 10, column alone 2), 1 too small to show"."""
    listed = list(outcomes)
    ways = Counter(one.how for one in listed if one.noticed)
    hidden = [one.off for one in listed if not one.noticed]
    words = f"{len(listed) - len(hidden)} of {len(listed)} noticed ({', '.join(f'{how} {n}' for how, n in sorted(ways.items()))})"
    return words + (f", {len(hidden)} too small to show, off by at most {max(hidden):.2g} of a column" if hidden else "")
