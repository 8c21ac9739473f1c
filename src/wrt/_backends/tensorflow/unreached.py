"""Nothing flows back from y to x: proven independence, a cut at a known line, or not enough to tell."""

from __future__ import annotations

from dataclasses import dataclass

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.log import Leak, Log
from wrt._core.where import Spot, place
from wrt.errors import GradientCut, NoPath


@dataclass(frozen=True, slots=True)
class Unreached:
    """A question that no gradient answers: y and x by their numbers in the log, and as the user calls them."""

    log: Log
    y: int
    x: int
    named: tuple[str, str]

    @property
    def no_path(self) -> str:
        """The first line of every error about it."""
        return f"no gradient path from {self.named[1]} to {self.named[0]}"


def why_unreached(question: Unreached, given: set[int]) -> bool | Exception:
    """True when the recorded data flow proves that y does not depend on x; what was given to f is independent."""
    log = question.log
    if question.x not in log.tensors or question.y not in log.tensors:
        return NoPath(
            question.no_path,
            "one of the two was not met while the run was recorded",
            "compute both inside one `with wrt.record() as t:`",
        )
    path = log.between(question.x, question.y)
    if path:
        return _cut(question, path)
    return _older(question, given) or _left(question) or True


def _cut(question: Unreached, path: list[int]) -> GradientCut:
    """The first operation on the way that lets no gradient through."""
    for index in path:
        if question.log.gradient(index) == "cut":
            return _named(question, index)
    y, x = question.named
    return GradientCut(
        question.no_path,
        f"{y} is computed from {x} by {len(path)} operations, and the gradient of one of them does not reach its input",
        "a @tf.custom_gradient on the way, or an input that only selects: ask for what it selects from",
    )


def _named(question: Unreached, index: int) -> GradientCut:
    operation = question.log.operations[index]
    line = _line(operation.spot)
    y, x = question.named
    if any(number < 0 for number in operation.outputs) and not compat.is_call(operation.op):
        return GradientCut(
            question.no_path,
            f"{line} assigns to a variable, and TensorFlow keeps no gradient of an assignment",
            f"use the value itself instead of reading it back from the variable, or ask for d({y}) / d(variable)",
        )
    if index in question.log.blind:
        return GradientCut(
            question.no_path,
            f"{line} calls a compiled function with a tensor that the recording had not met before",
            f"hand it over as an argument of wrt.trace(f, {x}), or write {x} = tf.identity({x}) inside the recording first",
        )
    what = "stops every tape" if operation.stopped else f"{_words(operation.op)} cuts the path"
    return GradientCut(
        question.no_path,
        f"{y} is computed from {x}, but {line} {what}",
        f"remove {_remedy(operation.op)}, or ask for d({y}) / d(what this line makes)",
    )


def _older(question: Unreached, given: set[int]) -> NoPath | None:
    """A tensor made between x and the recording may have been computed from x, unseen."""
    log = question.log
    tensors, _ = log.ancestors([question.y])
    if question.x in given or not any(
        question.x < n <= log.start and n in log.first_seen and n not in given and log.tensors[n][1] in compat.FLOATS
        for n in tensors
    ):
        return None
    y, x = question.named
    return NoPath(
        question.no_path,
        f"{y} uses a tensor that was made after {x} and before the recording began: whether it depends on {x} is not recorded",
        f"compute it inside the recording, or give both as arguments: wrt.trace(f, {x}, other)",
    )


def _left(question: Unreached) -> NoPath | None:
    """Numbers that went through NumPy or Python may have come back as a constant: then nothing is proven."""
    log, (y, x) = question.log, question.named
    for where in arrays_from_outside(log, question.y, question.x):
        return NoPath(
            question.no_path,
            f"{_line(where)} uses a NumPy array, and what that was made of is not recorded",
            f"compute it with TensorFlow, or make it a tensor before the recording if it does not depend on {x}",
        )
    tensors, operations = log.ancestors([question.y])
    for number in sorted(tensors.intersection(log.foreign)):
        return NoPath(
            question.no_path,
            f"{_line(log.foreign[number])} uses a tensor that was made during the block where nobody looked: in another thread",
            f"compute it in the thread that records; whether it depends on {x} was not seen",
        )
    for k in sorted(operations):
        if log.operations[k].via == "from_generator":
            return NoPath(
                question.no_path,
                f"{_line(log.operations[k].spot)} calls Python in another thread; what the generator reads is not recorded",
                f"make {y} of tensors, or make the dataset before the recording if it does not depend on {x}",
            )
    reads = [k for k in operations if log.operations[k].op in compat.READS_VARIABLE]
    for after, spot in log.threads:
        if any(k >= after for k in reads):
            return NoPath(
                question.no_path,
                f"{_line(spot) if spot else 'before the block'} another thread began; {y} uses a variable, which it may write",
                f"assign to variables in the thread that records; whether it wrote what depends on {x} was not seen",
            )
    leak = _first_leak(log, question.x)
    if leak is None or not (
        any(log.first_seen.get(n, -1) >= leak.after and n > log.start for n in tensors)
        or any(k >= leak.after and compat.reads_the_world(log.operations[k].op) for k in operations)
    ):
        return None
    return NoPath(
        question.no_path,
        f"{_line(leak.spot)} reads a number computed from {x} into {leak.where}, and {y} uses a constant made afterwards",
        "keep the value a tensor: write tf operations instead of .numpy() or float()",
    )


def arrays_from_outside(log: Log, y: int, x: int) -> list[Spot | None]:
    """The lines at which arrays became tensors that y is computed from, with x at hand to be in them."""
    tensors, _ = log.ancestors([y])
    return [log.from_numpy[number] for number in sorted(tensors) if number in log.from_numpy and number > x]


def _first_leak(log: Log, x: int) -> Leak | None:
    """Where numbers made of x first went to Python, or into what gives nothing back (a file); shapes are no numbers."""
    reached, leaks = {x}, list(log.leaks)
    for index, operation in enumerate(log.operations):
        if operation.op not in compat.ABOUT_SHAPES and not reached.isdisjoint(operation.inputs):
            reached.update(operation.outputs)
            if not operation.outputs and operation.op not in compat.ONLY_LOOKS:
                leaks.append(Leak(x, index + 1, operation.spot, operation.op))
    return min((leak for leak in leaks if leak.number in reached), key=lambda leak: leak.after, default=None)


def _line(spot: Spot | None) -> str:
    if spot is None:
        return "a line of a library"
    where = place(*spot)
    return f"{where}  {where.text}".rstrip()


def _words(op: str) -> str:
    return {"StopGradient": "(tf.stop_gradient)", "ArgMax": "(tf.argmax)", "Cast": "(tf.cast)"}.get(op, f"({op})")


def _remedy(op: str) -> str:
    if op == "StopGradient":
        return "tf.stop_gradient"
    if op == "Cast":
        return "the cast to whole numbers"
    return f"{op}, which has no gradient"
