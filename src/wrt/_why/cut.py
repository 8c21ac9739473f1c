"""No gradient at all: where the path is cut, x was not followed, or y does not come from x."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wrt._core.finding import Finding
from wrt._core.graph import Graph, Node, done_by
from wrt._why.causes import by_operation, key, ops
from wrt._why.paths import CASTS, SHAPE_ONLY, Stop, follow, upstream
from wrt._why.question import Question

REMOVABLE = frozenset(
    ["detach", "dot_data", "no_grad", "inference_mode", "retensor", "parameter_wrap", "numpy_roundtrip", "stop_gradient",
     "copied_module", "sample_no_reparam", "checkpoint_reentrant", "detached_hidden_state", "tape_closed", "state_assign"]
)  # fmt: skip
INDEX_TOO = ops("max min cummax cummin sort topk kthvalue median mode msort TopKV2 nanmedian top_k")


def find_cut(question: Question) -> list[Finding]:
    """Why no gradient of y reaches x, the most likely reason first."""
    evidence, route = question.evidence, question.route
    graph = evidence.graph
    if not _is_float(graph.tensors[route.x].dtype):
        dtype = graph.tensors[route.x].dtype
        where = question.where_made(route.x)
        return [question.finding("int_input", where, f"{question.names[1]} is {dtype}", certain=True)]
    if route.stops:
        return _find_stops(question)
    if route.reaches and not route.connected:
        return [_find_unfollowed(question)]
    return list(_find_unconnected(question))


def _is_float(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype or dtype.startswith("bf") or dtype == "resource"


# ---------------------------------------------------------------- the path is cut


def _find_stops(question: Question) -> list[Finding]:
    found = []
    seen: set[int] = set()
    for stop in question.route.stops:
        if stop.node.id not in seen:
            seen.add(stop.node.id)
            found.append(explain_stop(question, stop))
    # Stable: among equals the first in time; but an earlier round of a loop lies outside the tape of the last one.
    found.sort(key=lambda finding: (finding.cause not in REMOVABLE, finding.cause == "tape_closed"))
    fresh = _find_fresh_leaf(question, found[0])
    return [fresh, *found[1:]] if fresh is not None else found


def explain_stop(question: Question, stop: Stop) -> Finding:
    """The path is cut here."""
    slug, node = _stop_cause(question, stop)
    graph = question.graph
    gone = graph.tensors[stop.output]
    words = f"{node.op} takes a value with a gradient and gives one without ({gone.dtype}{list(gone.shape)})"
    off = question.evidence.off(node)
    if off:
        words += f", under {off}"
    what = f"{node.op} under {slug}" if slug in ("no_grad", "inference_mode") else node.op
    sentence = f"{what} cuts the path from {question.names[1]} to {question.names[0]}"
    where = question.evidence.outside(node) if slug == "tape_closed" else node.where
    return question.finding(slug, where, words, certain=True, sentence=sentence)


def _stop_cause(question: Question, stop: Stop) -> tuple[str, Node]:
    """The cause behind a stop, and the operation to blame."""
    evidence, node = question.evidence, stop.node
    copy = _copy_of_module(question, stop)
    if copy is not None:
        return "copied_module", copy
    slug = by_operation("stops").get(key(node.op), "")
    dtype = evidence.graph.tensors[stop.output].dtype
    if slug in ("argmax", "sort_indices") and _is_float(dtype) and key(node.op) in INDEX_TOO:
        slug = ""
    if slug in ("integer_cast", "retensor") and _is_float(dtype) and key(node.op) in CASTS:
        slug = ""
    if slug in ("detach", "dot_data", "stop_gradient"):
        slug = "numpy_roundtrip" if _goes_to_numpy(question, stop) else slug
        return ("detached_hidden_state" if _is_recurrent(question, stop) else slug), node
    if slug == "state_assign" and _makes_variable(question, node):
        slug = "parameter_wrap"
    if slug:
        return slug, node
    via, off = evidence.via(node), evidence.off(node)
    if off and ".distributions." in via:
        return "sample_no_reparam", node
    if off and "checkpoint" in via:
        return "checkpoint_reentrant", node
    if off:
        return off, node
    if not _is_float(dtype):
        return ("comparison" if dtype == "bool" else "integer_output"), node
    return ("custom_backward_none" if node.gradient == "custom" else "no_derivative"), node


def _makes_variable(question: Question, node: Node) -> bool:
    """`tf.Variable(result)`: the assignment that made the variable."""
    maker = question.graph.producer(node.inputs[0]) if node.inputs else None
    return maker is not None and key(maker.op) == key("VarHandleOp")


def _copy_of_module(question: Question, stop: Stop) -> Node | None:
    """Whether the cut value went straight into the parameter of a copied module."""
    evidence = question.evidence
    values = {stop.output}
    for node in evidence.graph.nodes[stop.node.id :]:
        if values.isdisjoint(node.inputs) and node is not stop.node:
            continue
        if node.op == "Parameter of a copy":
            return stop.node
        if "load_state_dict" in evidence.via(node):
            return node
        if key(node.op) in ("clone", "detach", "data", "copy", "setitem", "contiguous", "to"):
            values.update(node.outputs)
    return None


def _goes_to_numpy(question: Question, stop: Stop) -> bool:
    """`.detach().numpy()`: the detach only serves the step out of the framework."""
    values = {stop.output}
    for node in question.graph.nodes[stop.node.id + 1 :]:
        if values.isdisjoint(node.inputs):
            continue
        slug = by_operation("stops").get(key(node.op))
        if slug == "numpy_roundtrip":
            return True
        if key(node.op) in ("cpu", "to", "contiguous", "squeeze", "flatten", "resolveconj", "resolveneg"):
            values.update(node.outputs)
    return False


def _is_recurrent(question: Question, stop: Stop) -> bool:
    """Whether the cut value goes back into the code that made it: the same weights before and after the cut."""
    evidence = question.evidence
    graph = evidence.graph
    leaves = {k for k in upstream(graph, *stop.node.inputs) if graph.tensors[k].node is None or _is_parameter(question, k)}
    before = {k for k in leaves if graph.tensors[k].requires_grad}
    after: set[int] = {stop.output}
    for node in graph.nodes[stop.node.id + 1 :]:
        if after.isdisjoint(node.inputs) or key(node.op) in SHAPE_ONLY:
            continue
        weights = {k for k in node.inputs if k not in after and k != question.route.x}
        shared = weights & before if node.write is None and node.op != "data=" else set()
        if shared and question.route.needed.intersection(node.outputs):
            return True
        after.update(k for k in node.outputs if k in question.route.needed)
    return False


def _is_parameter(question: Question, tensor: int) -> bool:
    node = question.graph.producer(tensor)
    return node is not None and (not node.inputs or node.op.startswith("Parameter") or node.write is not None)


def _find_fresh_leaf(question: Question, first: Finding) -> Finding | None:
    """`loss.requires_grad_()` on a result that had lost its graph."""
    evidence = question.evidence
    start = evidence.starts(question.y)
    if start is None or start < 0 or evidence.graph.producer(question.y) is None:
        return None
    setter = evidence.graph.nodes[start]
    words = f"{setter.where} sets requires_grad on {question.names[0]}, which had lost its graph here: {first.evidence}"
    return question.finding("fresh_leaf_loss", first.where, words, certain=True, also=(first.cause,))


# ---------------------------------------------------------------- x itself


def _find_unfollowed(question: Question) -> Finding:
    """The value of x reaches y, but the engine was not following x when it was used."""
    evidence, route = question.evidence, question.route
    name = question.names[1]
    special = evidence.unfollowed(route.x)
    if special is not None:
        slug, where, words = special
        return question.finding(slug, where or question.where_made(route.x), f"{name}: {words}", certain=True)
    start = evidence.starts(route.x)
    if start is not None:
        setter = evidence.graph.nodes[start]
        used = route.uses[0]
        words = f"{used.op} at {used.where} had used {name} before"
        return question.finding("late_requires_grad", setter, words, certain=True)
    would = follow(evidence, route.y, route.x, -1)
    words = f"{name} is used by {route.uses[0].op} at {route.uses[0].where}, with requires_grad=False"
    where = question.where_made(route.x)
    return question.finding("not_requires_grad", where, words, certain=bool(route.uses) and would.reaches)


# ---------------------------------------------------------------- y does not come from x


def _find_unconnected(question: Question) -> Iterator[Finding]:
    route = question.route
    leaving = _leaving(question)
    yield from _find_leaving(question, leaving)
    recomputed = _find_recomputed(question)
    if recomputed is not None:
        yield recomputed
        return
    graph = question.graph
    unrecorded = question.evidence.unrecorded(question.y, route.x)
    certain = not leaving and not unrecorded
    name, of = question.names[1], question.names[0]
    if not leaving:
        for where in filter(None, unrecorded):
            words = f"{of} uses an array made while {name} was at hand; what it was made of was not recorded"
            yield question.finding("numpy_roundtrip", where, words, certain=False)
    if not any(graph.tensors[k].node is None or graph.tensors[k].requires_grad for k in route.needed - {question.y}):
        words = f"{of} is a constant: nothing that can be differentiated went into it"
        yield question.finding("unused_input", question.where_made(question.y), words, certain=certain)
        return
    dropped = dead_end(question)
    if dropped is not None:
        words = f"what {dropped.op} makes of {name} is never used again"
        yield question.finding("unused_input", dropped, words, certain=certain)
        return
    words = f"no operation on the way to {of} takes {name}"
    yield question.finding("unused_input", question.where_made(route.x), words, certain=certain)


def dead_end(question: Question) -> Node | None:
    """The last operation that made something of x which nobody used."""
    route = question.route
    for node in reversed(question.graph.nodes):
        carried = not route.value.isdisjoint(node.inputs) and bool(node.outputs) and node.write is None
        if carried and route.needed.isdisjoint(node.outputs) and not node.op.startswith(("grad", "Parameter")):
            slug = by_operation("stops").get(key(node.op))
            if slug is None and not question.evidence.off(node):
                return node
    return None


def _find_leaving(question: Question, leaving: list[Node]) -> Iterator[Finding]:
    """Numbers that were read out of the framework may have come back as constants; nobody recorded how."""
    found = []
    for node in leaving:
        slug = by_operation("stops").get(key(node.op))
        if slug is not None:
            words = f"{node.op} takes the number out; whether {question.names[0]} uses it was not recorded"
            found.append(question.finding(slug, node, words, certain=False))
    found.sort(key=lambda finding: finding.cause == "comparison")
    yield from found


def _leaving(question: Question) -> list[Node]:
    """The operations that took x out of the framework while y was not done yet."""
    graph, left = question.graph, question.route.left
    if graph.framework == "jax":  # its operations stand in the order of need, not of time
        return left
    before = done_by(graph, question.route.needed)
    return [node for node in left if node.id < before]


# ---------------------------------------------------------------- y comes from another tensor with the same history


def _find_recomputed(question: Question) -> Finding | None:
    """A value on the way to y that was made exactly as x was."""
    graph = question.graph
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
            certain = _is_same_value(question, other)
            return question.finding("recomputed_tensor", node, words, certain=certain, sentence=sentence)
    return None


def _is_same_value(question: Question, other: int) -> bool:
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
