"""There is a gradient, finite and not zero; is it the one that was meant?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wrt._core.evidence import Again, Numbers
from wrt._core.finding import Finding
from wrt._core.graph import Graph, Node
from wrt._why.causes import key, ops
from wrt._why.check import backward_mismatch, is_deliberate, pull
from wrt._why.question import Question, max_abs, signs
from wrt._why.thresholds import NOTHING_RATIO, SAME_RATIO

LOSSES = ops("mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits SquaredDifference")
TAKES_LOGITS = ops(
    "cross_entropy log_softmax softmax SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits LogSoftmax Softmax "
    "binary_cross_entropy_with_logits multilabel_soft_margin_loss"
)
SOFTMAX = ops("softmax Softmax")
SIGMOID = ops("sigmoid Sigmoid")
RESHAPES = ops("view reshape flatten squeeze unsqueeze contiguous to float double transpose permute getitem clone Reshape")
MODULE_HOOK = "BackwardHookFunction"
"""What torch puts around a module that has backward hooks."""
TIES = ops("max min maximum minimum amax amin fmax fmin reduce_max reduce_min")


def find_wrong(question: Question) -> Iterator[Finding]:
    """Findings about a gradient that is there."""
    yield from _find_custom_backward(question)
    yield from _find_tensor_hooks(question)
    yield from _find_double_softmax(question)
    yield from _find_broadcast(question)
    yield from _find_ties(question)


def _find_custom_backward(question: Question) -> Iterator[Finding]:
    """Derivatives somebody wrote by hand, each against its own forward."""
    for node in question.route.path:
        if node.gradient != "custom":
            continue
        again = question.evidence.again(node)
        if again is None or not again.custom or is_deliberate(again):
            continue
        pulled = pull(question.evidence, node, question.arrivals(node))
        found = backward_mismatch(question.evidence, node, again, pulled)
        if found is not None:
            yield question.finding("custom_backward_wrong", again.rule or node.where, found.words, certain=True)


def _find_tensor_hooks(question: Question) -> Iterator[Finding]:
    """A cotangent that is not the sum of what the operations after it pass back: a hook stands between."""
    yield from _find_module_hooks(question)
    graph = question.graph
    for node in graph.nodes:
        if key(node.op) != "registerhook" or node.inputs[0] not in question.route.gradient:
            continue
        maker = graph.producer(node.inputs[0])
        behind = () if maker is None else maker.inputs
        for value in (node.inputs[0], *behind):
            if value not in question.route.gradient or value == question.y:
                continue
            shown, total = question.cotangents.get(value), sum_of_pulls(question, value)
            if shown is not None and total is not None and _differ(shown, total):
                words = f"the gradient arrives as {_excerpt(total)} and goes on as {_excerpt(shown)}"
                yield question.finding("hook", node, words, certain=not shown.any())
                break


def _find_module_hooks(question: Question) -> Iterator[Finding]:
    """The same for hooks of modules, which torch puts around what the module takes and gives."""
    noted = [e.where for e in question.evidence.events if e.kind == "module_hook" and e.where is not None]
    for node in question.route.path if noted else ():
        for value in node.inputs if node.op == MODULE_HOOK else ():
            shown, total = question.cotangents.get(value), sum_of_pulls(question, value)
            if shown is not None and total is not None and shown.any() and _differ(shown, total):
                words = f"the gradient arrives as {_excerpt(total)} and goes on as {_excerpt(shown)}"
                yield question.finding("hook", noted[-1], words, certain=False)


def is_same(shown: Numbers, expected: Numbers) -> bool:
    """Whether two gradients are the same but for roundoff."""
    return np.allclose(shown, expected, rtol=SAME_RATIO, atol=NOTHING_RATIO * max_abs([expected]))


def _differ(shown: Numbers, expected: Numbers) -> bool:
    return bool(np.all(np.isfinite(shown)) and np.all(np.isfinite(expected))) and not is_same(shown, expected)


def sum_of_pulls(question: Question, value: int) -> Numbers | None:
    """What the operations after a value pass back to it, each by itself: its cotangent, if nobody stands between."""
    total = None
    for node in question.route.consumers(value):
        pulled = question.evidence.local(node, question.arrivals(node))
        for number, g in zip(node.inputs, pulled, strict=True):
            if number == value and g is not None:
                total = g if total is None else total + g
                break
    return total


def _excerpt(numbers: Numbers) -> str:
    return np.array2string(numbers.reshape(-1)[:3], precision=3, separator=", ")


def _find_double_softmax(question: Question) -> Iterator[Finding]:
    graph = question.graph
    for node in question.route.path:
        maker = producer_before_reshapes(graph, node.inputs[0]) if node.inputs else None
        if is_double_softmax(graph, node, maker):
            assert maker is not None
            words = f"{node.op} at {node.where} takes the output of {maker.op} for logits"
            yield question.finding("double_softmax", maker, words, certain=True)


def is_double_softmax(graph: Graph, node: Node, maker: Node | None) -> bool:
    """Whether an operation that takes logits is given probabilities, along the axis it normalizes."""
    if maker is None or key(node.op) not in TAKES_LOGITS or key(node.op) in SOFTMAX:
        return False
    twice = SIGMOID if "withlogits" in key(node.op) and "binary" in key(node.op) else SOFTMAX
    same = graph.tensors[maker.outputs[0]].shape[-1:] == graph.tensors[node.inputs[0]].shape[-1:]
    return key(maker.op) in twice and same


def producer_before_reshapes(graph: Graph, value: int) -> Node | None:
    """What made a value, seen through changes of shape."""
    node = graph.producer(value)
    while node is not None and key(node.op) in RESHAPES and node.inputs:
        node = graph.producer(node.inputs[0])
    return node


def _find_broadcast(question: Question) -> Iterator[Finding]:
    """A loss between (n, 1) and (n,): every prediction against every target."""
    graph = question.graph
    for node in question.route.path:
        if len(node.inputs) < 2:
            continue
        a, b = (_shape_before_broadcast(question, node, k) for k in node.inputs[:2])
        if is_crossed_loss(graph, node):
            words = f"shapes {a} and {b} broadcast to {np.broadcast_shapes(a, b)}"
            yield question.finding("broadcast", node, words, certain=True)
        elif key(node.op) in ("sub", "rsub", "subtract") and _is_crossed(a, b) and _is_squared_and_summed(question, node):
            words = f"shapes {a} and {b} broadcast to {np.broadcast_shapes(a, b)}, and the mean of all of them is taken"
            yield question.finding("broadcast", node, words, certain=False)


def _shape_before_broadcast(question: Question, node: Node, tensor: int) -> tuple[int, ...]:
    """The shape that the user's line subtracts: JAX gives it the axes it lacks in an operation of its own."""
    evidence = question.evidence
    maker = evidence.graph.producer(tensor)
    if maker is not None and key(maker.op) == "broadcastindim" and evidence.via(maker) == evidence.via(node) == "subtract":
        tensor = maker.inputs[0]
    return evidence.graph.tensors[tensor].shape


def is_crossed_loss(graph: Graph, node: Node) -> bool:
    """Whether a loss function is given two shapes that multiply each other."""
    return key(node.op) in LOSSES and _is_crossed(*(graph.tensors[k].shape for k in node.inputs[:2]))


def _is_crossed(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """(n, 1) with (n,): the same number of elements, and more after broadcasting."""
    try:
        together = np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return a != b and len(a) != len(b) and bool(np.prod(a) == np.prod(b) and np.prod(together) > np.prod(a) > 1)


def _is_squared_and_summed(question: Question, node: Node) -> bool:
    """Whether a difference is squared (or made absolute) and then summed to the loss."""
    steps = question.route.consumers(node.outputs[0])
    squares = [n for n in steps if key(n.op) in ("pow", "square", "abs", "mul", "squareddifference", "integerpow")]
    after = [m for n in squares for m in question.route.consumers(n.outputs[0])]
    return any(key(m.op) in ("mean", "sum", "reducesum") for m in after)


def _find_ties(question: Question) -> Iterator[Finding]:
    """Two slopes: to the right of here and to the left. The engine gives one of them, or something between."""
    for node in question.route.path:
        again = question.evidence.again(node) if key(node.op) in TIES or key(question.evidence.via(node)) in TIES else None
        if again is None or not again.inputs:
            continue
        kinks = _count_kinks(question, node, again)
        if kinks:
            words = f"{kinks} element{'s' * (kinks > 1)} of {node.op} have different slopes to the left and to the right"
            yield question.finding("tie_subgradient", node, words, certain=True)


def _count_kinks(question: Question, node: Node, again: Again) -> int:
    """How many outputs have a kink here that y feels and x can move."""
    moves = [number in question.route.gradient for number in again.numbers]
    pairs = [(i, move * signs(i.shape, 13 + k)) for k, (i, move) in enumerate(zip(again.inputs, moves, strict=True))]
    try:
        left, here, right = (again.run([i + way * NOTHING_RATIO * move for i, move in pairs])[0] for way in (-1, 0, 1))
    except Exception:
        return 0
    felt = question.cotangents.get(node.outputs[0])
    if here is None or felt is None or felt.shape != here.shape:
        return 0
    kink = np.abs((right - here) - (here - left)) > SAME_RATIO * NOTHING_RATIO
    if not np.any(kink & (felt != 0)):
        return 0
    return int(np.sum(kink & (felt != 0))) if _moves_x(question, node, kink & (felt != 0)) else 0


def _moves_x(question: Question, node: Node, kink: Numbers) -> bool:
    """Whether the tied inputs come from x as they are: what is constant on both sides of a tie has no slope to lose."""
    back = question.evidence.local(node, [np.where(kink, 1.0, 0.0), *[None] * (len(node.outputs) - 1)])
    mine = question.gradient
    touched = [g for k, g in zip(node.inputs, back, strict=True) if k in question.route.gradient and g is not None]
    if mine is None or not mine[question.mask].any() or not any(g.any() for g in touched):
        return False
    return not _is_same_either_way(question, node, kink)


def _is_same_either_way(question: Question, node: Node, kink: Numbers) -> bool:
    """Whether x moves all inputs of a tie alike, as in min(r * a, clamp(r) * a): then it does not matter which is taken."""
    felt = question.cotangents.get(node.outputs[0])
    inputs = [k for k in dict.fromkeys(node.inputs) if k in question.route.gradient]
    shapes = {question.graph.tensors[k].shape for k in inputs}
    if felt is None or len(inputs) < 2 or shapes != {felt.shape}:
        return False
    seed = np.where(kink, felt, 0.0)
    ways = [question.evidence.cotangents(k, seed).get(question.route.x) for k in inputs]
    first = ways[0]
    return first is not None and all(w is not None and is_same(w, first) for w in ways[1:])
