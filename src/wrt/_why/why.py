"""The order of the examination: what was refused, what is missing, not finite, zero, too small or large, and wrong."""

from __future__ import annotations

from dataclasses import replace

from wrt._core.finding import Finding, Findings
from wrt._why.missing import missing
from wrt._why.notfinite import is_not_finite, not_finite, value_not_finite
from wrt._why.paths import follow
from wrt._why.question import Question
from wrt._why.size import size
from wrt._why.state import state
from wrt._why.unpulled import unpulled
from wrt._why.wrong import wrong
from wrt._why.zero import is_zero, zero


def examine(question: Question) -> Findings:
    """Everything that is wrong between x and y, most likely first."""
    y, x = question.names
    return Findings(tuple(_distinct(_examine(question))), f"why d({y}) / d({x})")


def _examine(question: Question) -> list[Finding]:
    route = question.route
    if not route.connected:
        found = missing(question)
        return [*_zero_anyway(question), *found] if found[0].cause == "not_requires_grad" else found
    refused = [
        question.finding(slug, node, words, certain=True)
        for slug, node, words in question.evidence.refused(question.y, route.x, route.path)
    ]
    if refused:
        return refused
    try:
        gradient = question.gradient
    except Exception as error:
        return [unpulled(question, error)]
    if gradient is None:
        return [unpulled(question, None)]
    if is_not_finite(question):
        return not_finite(question)
    structural = list(wrong(question))
    if is_zero(question):
        hooks = [f for f in structural if f.cause == "hook" and f.certain]
        return hooks + value_not_finite(question) + zero(question)  # where y is NaN, zeros are the lesser trouble
    if structural:
        return structural + list(state(question))
    return value_not_finite(question) or list(state(question)) or size(question)


def _zero_anyway(question: Question) -> list[Finding]:
    """A recording differentiates by what does not require grad too: where that is zero, `requires_grad_()` is no help."""
    would = follow(question.evidence, question.y, question.route.x, -1)
    if not would.connected:
        return []
    asked = replace(question)
    asked.route = would
    return zero(asked) if is_zero(asked) else []


def _distinct(found: list[Finding]) -> list[Finding]:
    """The same cause in the same line is said once."""
    seen: set[tuple[str, object]] = set()
    kept = []
    for finding in found:
        said = (finding.cause, (finding.file, finding.line))
        if said not in seen:
            seen.add(said)
            kept.append(finding)
    return kept
