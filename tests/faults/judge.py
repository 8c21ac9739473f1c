"""What is asked of every answer with a planted fault: right numbers, a true certificate, and words about it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.faults.faults import Numbers
from wrt._core.report import Report

ROUNDINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}
NOTICED = ("DISAGREES", "does not agree", "did not hold", "no path", "not finite", "is not what it was", "are not", "is not")


def require_right(found: Any, truth: Numbers, dtype: str) -> None:
    """Each column as a loop of plain backward passes has it, within roundings of its size."""
    got = np.asarray(found, dtype=np.float64).reshape(truth.shape)
    sizes = np.linalg.norm(truth, axis=0)
    off = np.linalg.norm(got - truth, axis=0)
    allowed = ROUNDINGS[dtype] * (64 * sizes + 8 * sizes.max())
    assert (off <= allowed).all(), f"off by {np.max(off / (sizes + 1e-300)):.2g} of a column"


def how_noticed(report: Report) -> str:
    """"next plan", "column alone" or "repaired", as the report tells; empty where nothing was noticed."""
    if any(word in words for words in report.fallbacks for word in NOTICED):
        return "next plan"
    if report.certificate is not None and "swept alone" in report.certificate.words:
        return "column alone"
    return "repaired" if any("finite" in note for note in report.notes) else ""


def require_noticed(report: Report) -> str:
    assert report.certificate, f"the certificate is not true: {report.certificate}"
    how = how_noticed(report)
    assert how, f"not noticed: {report.certificate}"
    return how


def off_by(spoiled: Numbers, truth: Numbers) -> float:
    """The largest share of a column by which a spoiled answer is off."""
    sizes = np.linalg.norm(truth, axis=0)
    with np.errstate(all="ignore"):
        off = np.linalg.norm(spoiled - truth, axis=0) / np.where(sizes > 0, sizes, sizes.max())
    return float(np.nan_to_num(off, nan=np.inf).max())
