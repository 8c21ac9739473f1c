"""The flags say there is a gradient, and the engine gives none: which operation keeps it back, or refuses."""

from __future__ import annotations

import numpy as np

from wrt._core.finding import Finding
from wrt._core.graph import Node
from wrt._why.cause import by_operation, key
from wrt._why.question import Question
from wrt._why.raised import raised


def unpulled(question: Question, error: Exception | None) -> Finding:
    """The operation through which nothing comes back."""
    for node in question.route.path:
        slug = by_operation("stops").get(key(node.op))
        if slug in ("no_reverse_rule", "host_callback"):
            words = str(error).strip().splitlines()[0][:160] if error else f"{node.op} passes no gradient back"
            return question.finding(slug, node, words, certain=True)
    named = _named(question, error)
    if named is not None:
        slug = by_operation("stops").get(key(named.op)) or by_operation("flattens").get(key(named.op)) or "no_reverse_rule"
        return question.finding(slug, named, str(error).strip().splitlines()[0][:160], certain=True)
    silent = _silent(question) if error is None else None
    if silent is not None:
        again = question.evidence.again(silent)
        where = again.rule if again is not None and again.rule is not None else silent.where
        words = f"the backward of {silent.op} returns None for what comes from {question.names[1]}"
        slug = "custom_backward_none" if silent.gradient == "custom" else "no_derivative"
        return question.finding(slug, where, words, certain=True)
    said = raised(error) if error is not None else None
    if said:
        custom = next((again for n in question.route.path if (again := question.evidence.again(n)) and again.custom), None)
        where = custom.rule if custom is not None and said[0].cause == "custom_backward_wrong" else said[0].where
        return question.finding(said[0].cause, where, said[0].evidence, certain=True)
    words = str(error).strip().splitlines()[0][:160] if error else "the engine returns nothing"
    return question.finding("no_reverse_rule", question.route.path[-1] if question.route.path else None, words, certain=False)


def _named(question: Question, error: Exception | None) -> Node | None:
    """The operation of the path that the engine says it has no derivative of."""
    said = str(error).replace("_", "").lower() if error is not None else ""
    if "not implemented" not in said and "no gradient defined" not in said:
        return None
    return next((node for node in question.route.path if len(key(node.op)) > 2 and key(node.op).lstrip("r") in said), None)


def _silent(question: Question) -> Node | None:
    """The first operation after x that has a cotangent and gives none to what it took."""
    for node in question.route.path:
        arrives = [question.cotangents.get(k) for k in node.outputs]
        if all(c is None for c in arrives):
            continue
        filled = [
            np.ones(question.evidence.graph.tensors[k].shape) if c is None else c
            for k, c in zip(node.outputs, arrives, strict=True)
        ]
        pulled = question.evidence.local(node, filled)
        wanted = [g for k, g in zip(node.inputs, pulled, strict=True) if k in question.route.gradient]
        if wanted and all(g is None for g in wanted):
            return node
    return None
