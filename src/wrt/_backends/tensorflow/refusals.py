"""What TensorFlow cannot do, in our words."""

from __future__ import annotations

from typing import Any

from wrt._core.finding import first_line
from wrt._core.where import Where
from wrt.errors import DifferentRuns, EngineRefused, NotDifferentiable, NotRecorded, WrongIndex


def bare(obj: Any) -> NotRecorded:
    """A tensor that no recording at hand has met."""
    return NotRecorded(
        "a TensorFlow tensor carries no history of its own",
        f"no recording at hand has met this one, of shape {tuple(obj.shape)}",
        "t = wrt.trace(f, x), then d(t.output) / d(t.inputs[0]); or compute it inside `with wrt.record() as t:`",
    )


def symbolic(obj: Any) -> NotRecorded:
    return NotRecorded(
        "d() of a tensor of a graph that is being built",
        "inside a tf.function there are no numbers yet",
        "ask outside of it: wrt.trace(f, x) runs tf.functions eagerly and records what happens inside",
    )


def not_a_float(name: str, dtype: str) -> NotDifferentiable:
    return NotDifferentiable(
        f"{name} is a tensor of {dtype}",
        "whole numbers, booleans and strings have no derivative; the path ends where the value was made so",
        "ask for the floating-point tensor it was computed from, for example the embedding of token ids",
    )


def composite(obj: Any) -> NotDifferentiable:
    """Ragged and sparse tensors."""
    kind = type(obj).__name__
    inside = {"RaggedTensor": "tensor.flat_values", "SparseTensor": "tensor.values", "IndexedSlices": "slices.values"}
    return NotDifferentiable(
        f"d() of a {kind}",
        "its elements have no fixed positions, so no index could say which derivative is meant",
        f"ask for d({inside.get(kind, 'its values')}), or make it dense with tf.convert_to_tensor or .to_tensor()",
    )


def another_run() -> DifferentRuns:
    return DifferentRuns(
        "y and x come from two different recordings",
        "the run that y was made in never met x",
        "compute both inside one `with wrt.record():`, or in one wrt.trace(f, x)",
    )


def read_inside() -> EngineRefused:
    return EngineRefused(
        "the variable was assigned to between two reads, and read inside a gather or a compiled function since",
        "the tape adds both reads up, and cannot tell the old value's share from the new one's",
        "record the part after the assignment alone, or read the variable into a tensor first: w = tf.identity(v)",
    )


def read_in_gradient(where: Where) -> EngineRefused:
    return EngineRefused(
        "a custom gradient on the way cannot be differentiated again",
        f"{where}  {where.text}  reads numbers out of TensorFlow, where no tape follows: the answer would lack this branch",
        "compute the gradient with TensorFlow's operations, on tensors",
    )


def written_less_often(k: int, last: int) -> WrongIndex:
    times = "once" if last == 1 else f"{last} times"
    return WrongIndex(
        f".at({k}) of a tensor that was written {times if last else 'never'}",
        "an update is tf.tensor_scatter_nd_update and its kind, bound to the same name again",
        f"use .at(0) for the tensor before the first write, up to .at({last})",
    )


def engine_failed(error: Exception) -> EngineRefused:
    if "KeyError: b'pyfunc_" in str(error):
        return EngineRefused(
            "a tf.py_function on the way gives its gradient only once",
            "TensorFlow throws away what it kept of the call after the first pass, and this question takes more of them",
            "call the Python function itself: eager code needs no tf.py_function; or record again for each row",
        )
    return EngineRefused(
        "TensorFlow's tape could not run this pass",
        first_line(error),
        "the original error is chained below; an operation on the way has no gradient, or its gradient raised",
    )
