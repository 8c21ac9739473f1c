"""The gradient is there but far too small or far too large: one operation, or a long chain of them."""

from __future__ import annotations

import math

import numpy as np

from wrt._core.finding import Finding
from wrt._core.graph import Node
from wrt._core.where import Where
from wrt._why.causes import by_operation, key
from wrt._why.question import Question, max_abs
from wrt._why.thresholds import CHAIN_OPERATIONS, GROWING_RATIO, NOTHING_RATIO, ORDINARY_RATIO, SHRINKING_RATIO


def find_magnitude(question: Question) -> list[Finding]:
    """Findings about the magnitude; none for ordinary numbers."""
    gradient = question.gradient
    if gradient is None:
        return []
    largest = max_abs([gradient[question.mask]])
    start = max_abs([question.seed])
    if largest == 0.0 or 1 / ORDINARY_RATIO < largest / start < ORDINARY_RATIO:
        return []
    return _small(question, largest) if largest < start else _large(question, largest)


def _large(question: Question, largest: float) -> list[Finding]:
    ratios = _ratios(question)
    table = by_operation("breaks")
    for node, ratio in ratios:
        slug = table.get(key(node.op))
        if ratio > 1 / NOTHING_RATIO and slug is not None:
            words = f"the gradient grows {ratio:.1e} times in {node.op}, to {largest:.1e}"
            return [question.finding(slug, node, words, certain=True)]
    growing = [(node, ratio) for node, ratio in ratios if ratio > GROWING_RATIO]
    where = _line(growing, 1)
    if where is None:
        return []
    words = f"{len(growing)} operations on the way make it larger, to {largest:.1e} in all"
    return [question.finding("exploding_product", where, words, certain=True)]


def _small(question: Question, largest: float) -> list[Finding]:
    ratios = _ratios(question)
    table = by_operation("flattens")
    for node, ratio in ratios:
        slug = table.get(key(node.op))
        if ratio < NOTHING_RATIO and slug == "saturated":
            words = f"the gradient shrinks {ratio:.1e} times in {node.op}, to {largest:.1e}"
            return [question.finding(slug, node, words, certain=True)]
    shrinking = [(node, ratio) for node, ratio in ratios if ratio < SHRINKING_RATIO]
    where = _line(shrinking, -1) if _many_do_it(shrinking) else None
    if where is None:
        return []
    words = f"{len(shrinking)} operations on the way make it smaller, to {largest:.1e} in all"
    return [question.finding("vanishing_chain", where, words, certain=True)]


def _many_do_it(shrinking: list[tuple[Node, float]]) -> bool:
    """Whether the way is what makes it small: without the one operation that does most, it would still be half as small."""
    logs = sorted(float(np.log10(ratio)) for _, ratio in shrinking)
    return sum(logs[1:]) < -math.log10(ORDINARY_RATIO) / 2


def _ratios(question: Question) -> list[tuple[Node, float]]:
    """How much each operation of the path makes of what arrives."""
    found = []
    for node in question.route.path:
        arrives = question.arrivals(node)
        before = max_abs(arrives)
        pulled = question.evidence.local(node, arrives)
        after = max_abs(g for k, g in zip(node.inputs, pulled, strict=True) if k in question.route.gradient)
        if before > 0 and after > 0:
            found.append((node, after / before))
    return found


def _line(ratios: list[tuple[Node, float]], sign: int) -> Where | None:
    """The line that does most of it, if a long chain does it."""
    if len(ratios) < CHAIN_OPERATIONS:
        return None
    by_line: dict[tuple[str, int], float] = {}
    places: dict[tuple[str, int], Where] = {}
    for node, ratio in ratios:
        if node.where is not None:
            place = (node.where.file, node.where.line)
            by_line[place] = by_line.get(place, 0.0) + sign * float(np.log(ratio))
            places[place] = node.where
    if not by_line:
        return None
    return places[max(by_line, key=lambda place: by_line[place])]
