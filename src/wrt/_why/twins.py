"""Another tensor with the same history: the same operations on the same inputs, computed once more."""

from __future__ import annotations

import numpy as np

from wrt._core.finding import Finding
from wrt._core.graph import Graph
from wrt._why.question import Question


def recomputed(question: Question) -> Finding | None:
    """A value on the way to y that was made exactly as x was."""
    graph = question.evidence.graph
    node = graph.producer(question.route.x)
    if node is None or not node.inputs:
        return None
    histories = _histories(graph)
    mine = histories.get(question.route.x)
    for other in sorted(question.route.needed):
        if other != question.route.x and histories.get(other) == mine and graph.producer(other) is not None:
            there = graph.producer(other)
            assert there is not None
            name = question.names[1]
            words = (
                f"{question.names[0]} comes from another tensor, made at {there.where} by the same operations on the same inputs"
            )
            sentence = f"{name} was computed a second time; {question.names[0]} was made from the first"
            certain = _same_numbers(question, other)
            return question.finding("recomputed_tensor", node, words, certain=certain, sentence=sentence)
    return None


def _same_numbers(question: Question, other: int) -> bool:
    """The structure does not tell 2 * x from 3 * x; the numbers do, where both are still held."""
    mine, theirs = question.evidence.value(question.route.x), question.evidence.value(other)
    return mine is not None and theirs is not None and mine.shape == theirs.shape and bool(np.array_equal(mine, theirs))


def _histories(graph: Graph) -> dict[int, int]:
    """For every value a number that tells how it was made: equal numbers, equal operations on equal inputs."""
    known: dict[object, int] = {}
    found: dict[int, int] = {}

    def number(history: object) -> int:
        return known.setdefault(history, len(known))

    for tensor in graph.tensors.values():
        if tensor.node is None:
            found[tensor.id] = number(("input", tensor.id))
    for node in graph.nodes:
        inputs = tuple(found.get(k, -1 - k) for k in node.inputs)
        for place, output in enumerate(node.outputs):
            if output in node.inputs:
                continue
            if not node.inputs or node.write is not None or node.op.startswith("Parameter"):
                found[output] = number(("made", node.id, place))
            else:
                found[output] = number((node.op, inputs, place, graph.tensors[output].shape, graph.tensors[output].dtype))
    return found
