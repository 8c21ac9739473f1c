"""Every use of TensorFlow's private or drifting API. Written against TensorFlow 2.18 to 2.21 and Keras 3.8 to 3.15."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, execute, imperative_grad, record
from tensorflow.python.eager import tape as tape_lib
from tensorflow.python.framework import constant_op, op_callbacks, ops, override_binary_operator
from tensorflow.python.util import traceback_utils

from wrt._backends.tensorflow.patching import Patch, Switch

Tensor = Any  # tf.Tensor, or the handle of a variable
Callback = Callable[..., None]

EagerTensor = ops.EagerTensor
RESOURCE = tf.resource.as_datatype_enum
FLOATS = frozenset(
    dtype.as_datatype_enum for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128)
)
CARRIES_GRADIENT = FLOATS | {tf.variant.as_datatype_enum}

READS_VARIABLE = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "ResourceStridedSlice"})
LOOKS_AT_VARIABLE = READS_VARIABLE | {"VariableShape", "VarIsInitializedOp", "DestroyResourceOp", "VarHandleOp"}
"""Operations that leave a variable as it is; any other one that takes its handle writes to it."""
ABOUT_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "BroadcastGradientArgs"})
ONLY_LOOKS = frozenset({"PrintV2", "Assert", "CheckNumerics", "DestroyResourceOp", "DeleteIterator", "NoOp"})
"""Operations that give nothing back, and write nothing that a program reads."""


@cache
def is_call(op: str) -> bool:
    """Whether an operation is a whole compiled function: its gradient is recorded by the call, or not at all."""
    return op.startswith(("__inference_", "__forward_")) or op in ("PartitionedCall", "StatefulPartitionedCall")


class _Quiet(threading.local):
    """How deep this thread is in work of our own, and the tapes of its open recordings."""

    depth = 0

    def __init__(self) -> None:
        self.tapes: list[Any] = []


_quiet = _Quiet()


# ---------------------------------------------------------------- the tape


def open_tape() -> Any:
    tape = tf.GradientTape(persistent=True)
    tape.__enter__()
    _quiet.tapes.append(tape)
    return tape


def close_tape(tape: Any) -> None:
    _quiet.tapes.remove(tape)
    tape.__exit__(None, None, None)


def tape_settings(tape: Any) -> tuple[bool, bool]:
    """Whether a tape is persistent, and whether it watches variables by itself."""
    return bool(tape._persistent), bool(tape._watch_accessed_variables)


@contextmanager
def reopened(tape: Any) -> Iterator[None]:
    """Let the tape go on recording: what is computed inside can be differentiated by it again."""
    if tape._recording:
        yield
        return
    tape._push_tape()
    try:
        yield
    finally:
        tape._pop_tape()


def watch(tape: Any, tensor: Tensor) -> None:
    """Heard only by a tape that is open and not stopped."""
    tape_lib.watch(tape._tape, tensor)


def tapes_are_stopped() -> bool:
    return bool(pywrap_tfe.TFE_Py_TapeSetIsStopped())


def record_by_hand(op: str, inputs: Sequence[Tensor], attributes: Any, outputs: Sequence[Tensor]) -> None:
    """Put an operation on the tape after it ran: its inputs were not watched yet when it did."""
    execute.record_gradient(op, list(inputs), attributes, list(outputs))


def pull(tape: Any, ys: Sequence[Tensor], sources: Sequence[Tensor], seeds: Sequence[Tensor]) -> list[Any]:
    """The tape's own gradient, without the remarks `GradientTape.gradient` makes inside its block."""
    found: list[Any] = imperative_grad.imperative_grad(tape._tape, list(ys), list(sources), output_gradients=list(seeds))
    return found


@contextmanager
def second_tape(seed: Tensor) -> Iterator[Any]:
    """A tape of our own that sees how a pull depends on its seed."""
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(seed)
        yield tape


def compile_for(sweep: Callable[..., Any], like: Sequence[Tensor]) -> Callable[..., Any]:
    """`sweep` as a graph for tensors like these: what it does while it is traced is done every time.

    Traced at once: a tf.function that is called runs as plain Python while a recording lasts.
    """
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in like]
    found: Callable[..., Any] = tf.function(sweep, autograph=False).get_concrete_function(*specs)
    return found


def for_each(sweep: Callable[..., Any], size: int) -> Callable[..., Any]:
    """`sweep` for `size` lines side by side (pfor); raises where an operation has no batching rule."""
    from tensorflow.python.ops.parallel_for import control_flow_ops

    def sweep_all(*lines: Tensor) -> Any:
        with _calm():
            return control_flow_ops.pfor(
                lambda k: sweep(*[tf.gather(line, k) for line in lines]), size, fallback_to_while_loop=False
            )

    return sweep_all


@contextmanager
def _calm() -> Iterator[None]:
    """Where an operation has no batching rule, TensorFlow logs pages about it: to us that is an answer, not an error."""
    here, logger = threading.get_ident(), tf.get_logger()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != here or "parallel_for" not in record.pathname

    logger.addFilter(of_others)
    try:
        yield
    finally:
        logger.removeFilter(of_others)


# ---------------------------------------------------------------- stepping aside


class unrecorded:
    """Around work of our own: no recording of ours logs it."""

    __slots__ = ()

    def __enter__(self) -> None:
        _quiet.depth += 1

    def __exit__(self, *exception: object) -> None:
        _quiet.depth -= 1


class sweeping:
    """Around a sweep: unrecorded, and off the tapes of open recordings.

    The tapes as a whole are not stopped: a gradient function may use a tape of its own, as `tf.recompute_grad` does,
    and would silently answer zero.
    """

    __slots__ = ("_paused",)

    def __enter__(self) -> None:
        self._paused = [tape for tape in _quiet.tapes if tape._recording] if _quiet.tapes else ()
        for tape in self._paused:
            tape._pop_tape()
        _quiet.depth += 1

    def __exit__(self, *exception: object) -> None:
        _quiet.depth -= 1
        for tape in self._paused:
            tape._push_tape()


class off_tapes:
    """Around plain arithmetic of ours: off our recordings, and off every tape of the user."""

    __slots__ = ("_stopped",)

    def __enter__(self) -> None:
        _quiet.depth += 1
        self._stopped = not pywrap_tfe.TFE_Py_TapeSetIsStopped()
        if self._stopped:
            pywrap_tfe.TFE_Py_TapeSetStopOnThread()

    def __exit__(self, *exception: object) -> None:
        if self._stopped:
            pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
        _quiet.depth -= 1


def is_quiet() -> bool:
    return _quiet.depth > 0


# ---------------------------------------------------------------- operations


def add_callback(callback: Callback) -> None:
    op_callbacks.add_op_callback(callback)


def remove_callback(callback: Callback) -> None:
    op_callbacks.remove_op_callback(callback)


@cache
def gives_the_same_again(op: str) -> bool:
    """Whether an operation on the same tensors has the same result: no random numbers, no variable, no state."""
    from tensorflow.python.framework import op_def_registry

    known = None if is_call(op) else op_def_registry.get(op)
    return known is not None and not known.is_stateful


def reads_the_world(op: str) -> bool:
    """Whether an operation may give what was written somewhere before: a file, a queue, a generator."""
    return not (gives_the_same_again(op) or is_call(op) or op in LOOKS_AT_VARIABLE or "Random" in op)


STEPS = frozenset({"Round", "Rint", "Floor", "Ceil", "FloorDiv", "TruncateDiv", "ArgMax", "ArgMin"})
"""Operations that have a gradient function, which answers None whatever it is given."""


def gradient_is_none(op: str) -> bool:
    """Whether TensorFlow lets no gradient through an operation."""
    try:
        return op in STEPS or ops._gradient_registry.lookup(op) is None
    except LookupError:
        return False


OPERATIONS = os.path.join(os.path.dirname(tf.__file__), "python", "ops")
BINARY_OPERATORS: str = override_binary_operator.__file__
ERROR_HANDLER: str = traceback_utils.__file__
"""The folder and the files through which the user's calls reach an operation."""

EAGERLY = Switch(tf.config.functions_run_eagerly, tf.config.run_functions_eagerly, True)


def local_pull(op: str, inputs: Sequence[Tensor], attributes: Any, outputs: Sequence[Tensor], seeds: Sequence[Any]) -> list[Any]:
    """One operation's own gradient, as the tape would run it."""
    with tf.GradientTape(persistent=False, watch_accessed_variables=False) as tape:
        for tensor in inputs:
            tape_lib.watch(tape._tape, tensor)
        execute.record_gradient(op, list(inputs), attributes, list(outputs))
    live = [(o, s) for o, s in zip(outputs, seeds, strict=True) if s is not None]
    sources = [t for t in inputs if kind(t) in FLOATS or kind(t) == RESOURCE]
    found = iter(
        imperative_grad.imperative_grad(tape._tape, [o for o, _ in live], sources, output_gradients=[s for _, s in live])
    )
    return [next(found) if kind(t) in FLOATS or kind(t) == RESOURCE else None for t in inputs]


def run_again(op: str, inputs: Sequence[Tensor], attributes: Any, outputs: int) -> list[Any]:
    """One operation on other numbers."""
    pairs = zip(attributes[::2], attributes[1::2], strict=True)
    given = tuple(item for name, setting in pairs if setting is not None for item in (name, setting))
    found: list[Any] = execute.execute(op, outputs, list(inputs), given, context.context())
    return found


# ---------------------------------------------------------------- tensors


number: Callable[[Tensor], int] = attrgetter("_id")
"""A number no other tensor of this process ever has."""
kind: Callable[[Tensor], int] = methodcaller("_datatype_enum")
shape: Callable[[Tensor], tuple[int, ...]] = methodcaller("_shape_tuple")


def next_number() -> int:
    """Tensors made from now on have larger numbers."""
    return number(tf.constant(0))


def dtype_of(enum: int) -> Any:
    return tf.dtypes.as_dtype(enum)


def handle(variable: Any) -> Tensor:
    """What the tape knows a variable by."""
    return variable.handle


def variables_by_attribute(module: Any) -> dict[str, Any]:
    """The trainable variables of a tf.Module by the attributes they are kept in: `layers[0].w`."""

    def is_trained(found: Any) -> bool:
        return isinstance(found, tf.Variable) and found.trainable

    named = {}
    for path, variable in module._flatten(predicate=is_trained, with_path=True):
        words = "".join(f"[{part!r}]" if isinstance(part, int) else f".{part}" for part in path)
        named[words.removeprefix(".")] = variable
    return named


def keras_class(name: str) -> Any:
    """A class of Keras, if Keras is in use: its layers, its own variables; otherwise one that nothing is an instance of."""
    return getattr(sys.modules.get("keras"), name, _Nothing)


class _Nothing:
    """What is there without Keras."""

    def __call__(self) -> None: ...


def plain_variable(obj: Any) -> Any:
    """The tf.Variable inside Keras' own; anything else as it is."""
    return obj.value if isinstance(obj, keras_class("Variable")) else obj


# ---------------------------------------------------------------- functions of TensorFlow that a recording listens at


def notice_reads(notice: Callable[[Tensor], None]) -> Patch:
    """Call `notice` for every tensor whose numbers leave TensorFlow through Python: numpy(), float(), __array__()."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(self: Any) -> Any:
            notice(self)
            return original(self)

        return noticed

    return Patch(ops._EagerTensorBase, "_numpy", make)


def notice_custom_gradients(notice: Callable[..., None]) -> Patch:
    """Call `notice(name, outputs, inputs, backward)` for every operation whose gradient is about to be recorded as a whole."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(op: Any, outputs: Any, inputs: Any, *rest: Any, **keywords: Any) -> Any:
            notice(op, outputs, inputs, rest[0] if rest else keywords.get("backward_function"))
            return original(op, outputs, inputs, *rest, **keywords)

        return noticed

    return Patch(record, "record_operation", make)


def notice_host_functions(notice: Callable[..., None]) -> Patch:
    """Call `notice(inputs, outputs)` for every Python function that is called with arrays: numpy_function."""
    from tensorflow.python.ops import script_ops

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(func: Any, inp: Any, Tout: Any, *rest: Any, **keywords: Any) -> Any:
            made = original(func, inp, Tout, *rest, **keywords)
            notice(inp, made)
            return made

        return noticed

    return Patch(script_ops, "py_func_common", make)


@contextmanager
def notice_arrays(notice: Callable[[Tensor, bool], None]) -> Iterator[None]:
    """Call `notice` for every tensor made of numbers; True: of a NumPy array, or of memory that somebody else shares."""

    def shared(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(*arguments: Any) -> Any:
            made = original(*arguments)
            notice(made, True)
            return made

        return noticed

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(value: Any, *rest: Any, **keywords: Any) -> Any:
            made = original(value, *rest, **keywords)
            if made is not value:
                notice(made, isinstance(value, (np.ndarray, np.generic)))
            return made

        return noticed

    with Patch(constant_op, "convert_to_eager_tensor", make), Patch(pywrap_tfe, "TFE_FromDlpackCapsule", shared):
        yield


@contextmanager
def notice_failures(notice: Callable[[], None]) -> Iterator[None]:
    """Call `notice` when an operation raises, before the user's code can handle it."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def noticed(*arguments: Any, **keywords: Any) -> Any:
            notice()
            return original(*arguments, **keywords)

        return noticed

    kernels, checks = (ops, "raise_from_not_ok_status"), (traceback_utils, "_process_traceback_frames")
    with Patch(*kernels, make), Patch(*checks, make):
        yield
