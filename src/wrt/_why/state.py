"""What the user looked at was not the derivative but what became of it: `.grad`, an optimizer, a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from wrt._core.evidence import Event
from wrt._core.finding import Finding
from wrt._core.graph import Node
from wrt._why.causes import key, ops
from wrt._why.paths import CASTS, upstream
from wrt._why.question import Question
from wrt._why.wrong import is_same

DISTANCES = ops("mse_loss l1_loss smooth_l1_loss huber_loss")


def find_state(question: Question) -> Iterator[Finding]:
    """Findings about a run in which the user called backward."""
    used_up = question.evidence.consumed(question.y)
    if used_up is not None:
        yield question.finding("tape_consumed", used_up[0], used_up[1], certain=False)
    mine = [e for e in question.evidence.events if e.kind == "backward" and e.words[:1] == ("adds",)]
    if not mine:
        return
    yield from _find_optimizer_without(question, mine)  # first: what no optimizer holds, none sets back either
    yield from _find_accumulated(question, mine)
    yield from _find_not_kept(question, mine)
    yield from _find_ascent(question)
    yield from _find_freed(question)


def _moments(question: Question) -> set[int]:
    return set(question.evidence.moments(question.x))


def _is_leaf(question: Question) -> bool:
    producer = question.graph.producer(question.route.x)
    written = producer is not None and (producer.write is not None or producer.op == "data=")
    return producer is None or not producer.inputs or producer.op.startswith("Parameter") or written


def _find_accumulated(question: Question, backwards: list[Event]) -> Iterator[Finding]:
    """A backward added to a `.grad` that was not empty, and the sum is not the derivative."""
    events = question.evidence.events
    numbers = {str(k) for k in _moments(question)}
    added = [e for e in backwards if numbers.intersection(e.words[1:])]
    held = question.evidence.gradient_attribute(question.x)
    fresh = question.gradient
    if not added or held is None or fresh is None or held.shape != fresh.shape:
        return
    last = added[-1]
    if question.y not in last.values or is_same(held, fresh):
        return
    stepped = _took_steps(question, last, events)
    worst = np.unravel_index(np.argmax(np.abs(held - fresh)), held.shape)
    at = f"[{', '.join(map(str, worst))}]" if worst else ""
    name = question.names[1]
    words = f"{name}.grad{at} holds {held[worst]:.4g}, while d({question.names[0]}) / d({name}){at} is {fresh[worst]:.4g}"
    yield question.finding("accumulated_grad", last.where, words, certain=stepped)


def _took_steps(question: Question, last: Event, events: Sequence[Event]) -> bool:
    """Whether an optimizer took a step with the sum, after it had taken one with a part of it already."""
    mine = _moments(question)
    steps = [e.at for e in events if e.kind == "step" and mine.intersection(_all_moments(question, e.values))]
    resets = [e.at for e in events if e.kind == "zero_grad" and mine.intersection(_all_moments(question, e.values))]
    before = [at for at in steps if at <= last.at]
    after = [at for at in steps if at > last.at and not any(last.at <= r <= at for r in resets)]
    return bool(before) and bool(after)


def _find_not_kept(question: Question, backwards: list[Event]) -> Iterator[Finding]:
    """A backward went through x, which is no leaf: its `.grad` stays empty."""
    if _is_leaf(question) or not any(question.y in e.values for e in backwards):
        return
    evidence, route = question.evidence, question.route
    if evidence.gradient_attribute(question.x) is not None:
        return
    producer = evidence.graph.producer(route.x)
    assert producer is not None
    read = [n for n in evidence.graph.nodes if n.op == "grad" and route.x in n.inputs]
    words = f"backward ran at {backwards[-1].where}, and {question.names[1]}.grad is None: it is the result of {producer.op}"
    moved = key(producer.op) in CASTS and _converts_leaf(question, producer)
    slug, also = ("leaf_moved_by_to_device_or_cast", ("nonleaf_grad",)) if moved else ("nonleaf_grad", ())
    yield question.finding(slug, question.where_made(route.x), words, certain=bool(read), also=also)


def _converts_leaf(question: Question, producer: Node) -> bool:
    """Whether a tensor made to be a leaf was converted at once, so that nobody holds the leaf."""
    graph = question.graph
    source = graph.tensors[producer.inputs[0]]
    maker = graph.producer(producer.inputs[0])
    return source.requires_grad and (maker is None or not maker.inputs or maker.op.startswith(("Parameter", "requires_grad")))


def _find_optimizer_without(question: Question, backwards: list[Event]) -> Iterator[Finding]:
    """A parameter gets a gradient, an optimizer takes a step, and does not hold this parameter."""
    evidence = question.evidence
    producer = evidence.graph.producer(evidence.moments(question.x)[-1])
    if producer is None or not producer.op.startswith("Parameter"):
        return
    built = [e for e in evidence.events if e.kind == "optimizer"]
    stepped = [e for e in evidence.events if e.kind == "step" and any(b.at <= e.at for b in backwards)]
    mine = _moments(question)
    if not built or not stepped or any(mine.intersection(_all_moments(question, e.values)) for e in (*built, *stepped)):
        return
    used = {evidence.moments(k)[-1] for e in backwards for k in upstream(question.graph, *e.values)}
    stale = [e for e in built if not used.issuperset(evidence.moments(k)[-1] for k in e.values)]
    name = question.names[1]
    if producer.id >= built[-1].at and stale:
        words = f"{name} was made after the optimizer, which holds a parameter that no loss uses any more"
        yield question.finding("optimizer_wrong_params", built[-1].where, words, certain=True)
    else:
        words = f"{name} gets a gradient, and no optimizer of this run holds it"
        yield question.finding("optimizer_wrong_params", built[-1].where, words, certain=False)


def _all_moments(question: Question, values: tuple[int, ...]) -> set[int]:
    return {m for k in values for m in question.evidence.moments(k)}


def _find_ascent(question: Question) -> Iterator[Finding]:
    """A step along the sign of the gradient of a distance: it moves away from the target."""
    graph = question.graph
    maker = graph.producer(question.y)
    if maker is None or key(maker.op) not in DISTANCES:
        return
    read = {k for n in graph.nodes if n.op == "grad" and _moments(question).intersection(n.inputs) for k in n.outputs}
    for node in graph.nodes:
        if key(node.op) == "sign" and read.intersection(node.inputs) and not _is_subtracted(question, node.outputs[0]):
            words = f"{question.names[0]} is a distance ({maker.op}), and the step follows the sign of its gradient upwards"
            yield question.finding("objective_sign", node, words, certain=False)


def _is_subtracted(question: Question, value: int) -> bool:
    values = {value}
    for node in question.graph.nodes:
        if values.isdisjoint(node.inputs):
            continue
        if key(node.op) in ("neg", "sub", "isub", "rsub", "subtract", "negative"):
            return True
        if key(node.op) in ("mul", "rmul"):
            values.update(node.outputs)
    return False


def _find_freed(question: Question) -> Iterator[Finding]:
    """Asked once more, y would be refused: its graph is gone, and nothing has used the gradient since."""
    events = question.evidence.events
    mine = [e for e in events if e.kind == "backward" and question.y in e.values]
    if not mine or question.route.x in {k for e in mine for k in e.values}:
        return
    graph = question.graph
    after = [n for n in graph.nodes if n.id >= mine[-1].at and n.op == "grad"]
    if after or any(e.kind in ("step", "optimizer", "zero_grad") for e in events):
        return
    words = "this backward frees the graph; another one from here on would be refused"
    yield question.finding("graph_freed", mine[-1].where, words, certain=False)
