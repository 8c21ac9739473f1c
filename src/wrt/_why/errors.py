"""The framework refuses: an exception that the user has met, or one that stops the examination."""

from __future__ import annotations

import inspect
import re
from types import TracebackType

import numpy as np

from wrt._core.evidence import LostHistory, last_line
from wrt._core.finding import Finding, Findings
from wrt._core.graph import Graph, Node
from wrt._core.thresholds import MESSAGE_CHARACTERS
from wrt._core.where import Where, place, user_files
from wrt._why.causes import by_operation, causes, key
from wrt._why.cut import find_cut
from wrt._why.paths import trainable, upstream
from wrt._why.question import Question, display_name
from wrt.errors import WrtError


def explain(error: BaseException) -> Findings:
    """What an exception means, and the user's own line that raised it."""
    notes = vars(error)  # where backends leave what they know about an error of their framework
    carried = error._finding if isinstance(error, WrtError) else notes.get("finding")
    if isinstance(carried, Finding):
        return Findings((carried,), _title(error))
    lost = notes.get("without_history")
    without_history = _explain_lost_history(lost) if isinstance(lost, LostHistory) else ()
    if without_history:
        return Findings(without_history, _title(error))
    said = str(error)
    where = _where(error.__traceback__)
    for cause in causes().values():
        if any(re.search(pattern, said, re.IGNORECASE) for pattern in cause.raised):
            where = _inside_function(error.__traceback__, cause.slug) or where
            words = f"{type(error).__name__}: {_first_line(error)}"
            known = where is not None and cause.slug != "not_requires_grad"  # it may be a line before, which nobody recorded
            found = Finding(cause.slug, cause.means, where, known, words, cause.remedy.replace("{x}", "x"))
            return Findings((found,), _title(error))
    chained = error.__cause__ or error.__context__
    return explain(chained) if chained is not None else Findings((), _title(error))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:MESSAGE_CHARACTERS]


def _title(error: BaseException) -> str:
    return f"why {type(error).__name__}"


def _inside_function(traceback: TracebackType | None, slug: str) -> Where | None:
    """What a custom Function did wrong shows after it has returned: the line in its own code."""
    places = {"save_for_backward_nontensor": ("forward", "save_for_backward"), "custom_backward_wrong": ("backward", "")}
    wanted = places.get(slug)
    while traceback is not None and wanted is not None:
        owner = traceback.tb_frame.f_locals.get("cls")
        functions = dict(inspect.getmembers(owner, inspect.isfunction)) if isinstance(owner, type) else {}
        if wanted[0] in functions and user_files[functions[wanted[0]].__code__.co_filename]:
            return last_line(functions[wanted[0]].__code__, wanted[1])
        traceback = traceback.tb_next
    return None


def _where(traceback: TracebackType | None) -> Where | None:
    """The innermost frame of the user's own code."""
    found: Where | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if user_files[code.co_filename]:
            found = place(code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found


# ---------------------------------------------------------------- a result without a history


def _explain_lost_history(lost: LostHistory) -> tuple[Finding, ...]:
    """Why y, of a recorded run, has no history: where what was to be trained is lost, or that nothing was."""
    evidence, y = lost.evidence(), lost.y
    graph = evidence.graph
    needed = upstream(graph, y)
    trained = [k for k in trainable(evidence) if not needed.isdisjoint(evidence.moments(k))]
    given = [k for k in sorted(needed) if _is_given(graph, k)]
    found: dict[tuple[str, int | None], Finding] = {}
    for x in trained or given:
        made = lost.bound_at(y), lost.bound_at(x)
        names = display_name(graph, y, "the result"), display_name(graph, x, "an input")
        for finding in find_cut(Question(evidence, y, x, names, made=made)):
            found.setdefault((finding.cause, finding.line), finding)
    return tuple(found.values())


def _is_given(graph: Graph, tensor: int) -> bool:
    """Whether nothing was computed to make it."""
    maker = graph.producer(tensor)
    return (maker is None or not maker.inputs) and "float" in graph.tensors[tensor].dtype


# ---------------------------------------------------------------- the flags say there is a gradient, and the engine gives none


def find_refusal(question: Question, error: Exception | None) -> Finding:
    """The operation through which nothing comes back."""
    for node in question.route.path:
        slug = by_operation("stops").get(key(node.op))
        if slug in ("no_reverse_rule", "host_callback"):
            words = _first_line(error) if error else f"{node.op} passes no gradient back"
            return question.finding(slug, node, words, certain=True)
    named = _blamed(question, error)
    if named is not None and error is not None:
        slug = by_operation("stops").get(key(named.op)) or by_operation("flattens").get(key(named.op)) or "no_reverse_rule"
        return question.finding(slug, named, _first_line(error), certain=True)
    silent = _silent(question) if error is None else None
    if silent is not None:
        again = question.evidence.again(silent)
        where = again.rule if again is not None and again.rule is not None else silent.where
        words = f"the backward of {silent.op} returns None for what comes from {question.names[1]}"
        slug = "custom_backward_none" if silent.gradient == "custom" else "no_derivative"
        return question.finding(slug, where, words, certain=True)
    said = explain(error) if error is not None else None
    if said:
        custom = next((again for n in question.route.path if (again := question.evidence.again(n)) and again.custom), None)
        where = custom.rule if custom is not None and said[0].cause == "custom_backward_wrong" else said[0].where
        return question.finding(said[0].cause, where, said[0].evidence, certain=True)
    words = _first_line(error) if error else "the engine returns nothing"
    return question.finding("no_reverse_rule", question.route.path[-1] if question.route.path else None, words, certain=False)


def _blamed(question: Question, error: Exception | None) -> Node | None:
    """The operation of the path that the engine says it has no derivative of."""
    said = str(error).replace("_", "").lower() if error is not None else ""
    if "not implemented" not in said and "no gradient defined" not in said:
        return None
    return next((node for node in question.route.path if len(key(node.op)) > 2 and key(node.op).lstrip("r") in said), None)


def _silent(question: Question) -> Node | None:
    """The first operation after x that has a cotangent and gives none to what it took."""
    for node in question.route.path:
        arrives = question.arrivals(node)
        if all(c is None for c in arrives):
            continue
        filled = [
            np.ones(question.graph.tensors[k].shape) if c is None else c
            for k, c in zip(node.outputs, arrives, strict=True)
        ]
        pulled = question.evidence.local(node, filled)
        wanted = [g for k, g in zip(node.inputs, pulled, strict=True) if k in question.route.gradient]
        if wanted and all(g is None for g in wanted):
            return node
    return None
