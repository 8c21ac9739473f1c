"""The order of the examination: what was refused, what is missing, not finite, zero, too small or large, and wrong."""

from __future__ import annotations

from dataclasses import replace

from wrt._core.finding import Finding, Findings
from wrt._why.cut import find_cut
from wrt._why.errors import find_refusal
from wrt._why.magnitude import find_magnitude
from wrt._why.notfinite import find_nan_value, find_not_finite, is_not_finite
from wrt._why.paths import follow
from wrt._why.question import Question
from wrt._why.state import find_state
from wrt._why.wrong import find_wrong
from wrt._why.zero import find_zero, is_zero


def examine(question: Question) -> Findings:
    """Everything that is wrong between x and y, most likely first."""
    y, x = question.names
    return Findings(tuple(_distinct(_examine(question))), f"why d({y}) / d({x})")


def _examine(question: Question) -> list[Finding]:
    route = question.route
    if not route.connected:
        found = find_cut(question)
        return [*_find_zero_without_flag(question), *found] if found[0].cause == "not_requires_grad" else found
    refused = [
        question.finding(slug, node, words, certain=True)
        for slug, node, words in question.evidence.refused(question.y, route.x, route.path)
    ]
    if refused:
        return refused
    try:
        gradient = question.gradient
    except Exception as error:
        return [find_refusal(question, error)]
    if gradient is None:
        return [find_refusal(question, None)]
    if is_not_finite(question):
        return find_not_finite(question)
    structural = list(find_wrong(question))
    if is_zero(question):
        hooks = [f for f in structural if f.cause == "hook" and f.certain]
        return hooks + find_nan_value(question) + find_zero(question)  # where y is NaN, zeros are the lesser trouble
    if structural:
        return structural + list(find_state(question))
    return find_nan_value(question) or list(find_state(question)) or find_magnitude(question)


def _find_zero_without_flag(question: Question) -> list[Finding]:
    """A recording differentiates by what does not require grad too: where that is zero, `requires_grad_()` is no help."""
    would = follow(question.evidence, question.y, question.route.x, -1)
    if not would.connected:
        return []
    asked = replace(question)
    asked.route = would
    return find_zero(asked) if is_zero(asked) else []


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
