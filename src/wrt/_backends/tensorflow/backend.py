"""TensorFlow as a backend: what it owns, how a run is recorded, and how its tensors become Values."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf

from wrt._backends.tensorflow import compat, refusals
from wrt._backends.tensorflow.arrays import TensorFlowArrays
from wrt._backends.tensorflow.record import OPEN, Recorder
from wrt._backends.tensorflow.recording import TensorFlowRecording
from wrt._backends.tensorflow.tensors import is_tensor, taped_as
from wrt._core.protocol import Arrays, Backend, Capability
from wrt._core.value import Value

COMPOSITE = (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)


class TensorFlowBackend:
    name = "tensorflow"
    arrays: Arrays = TensorFlowArrays()
    takes_numbers = False
    writes_in_place = False

    def __init__(self) -> None:
        self._recordings: list[weakref.ref[TensorFlowRecording]] = []
        self._last: TensorFlowRecording | None = None  # so that `with wrt.record():` without a name can be asked about

    def owns(self, obj: Any) -> bool:
        known = (tf.Tensor, tf.Module, *COMPOSITE)
        return is_tensor(obj) or isinstance(obj, known) or _is_layer(obj)

    def lift(self, obj: Any) -> Value:
        """Its Value in the recording that made it, or else in the latest one that met it."""
        if isinstance(obj, COMPOSITE):
            raise refusals.composite(obj)
        if not is_tensor(obj):
            raise refusals.symbolic(obj)
        dtype = compat.plain_variable(obj).dtype
        if not (dtype.is_floating or dtype.is_complex):
            raise refusals.not_a_float("it", dtype.name)
        met = self.recorded(obj)
        if met is None:
            raise refusals.bare(obj)
        return met

    def recorded(self, obj: Any) -> Value | None:
        """Its Value in the recording that made it, or else in the latest that met it, whatever its dtype."""
        if not is_tensor(obj):
            return None
        met = None
        for reference in reversed(self._recordings):
            recording = reference()
            found = None if recording is None else recording.find(obj)
            if recording is None or found is None:
                continue
            if recording.made(found):
                return found
            met = met or found
        return met

    def tree(self, obj: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
        """The trainable variables of a model, or the tensors of a container, and how to put answers in their places."""
        if _is_layer(obj) or (isinstance(obj, tf.Module) and not isinstance(obj, tf.Variable)):
            named = _named(obj)
            return list(named.values()), lambda answers: dict(zip(named, answers, strict=True))
        leaves = tf.nest.flatten(obj)
        if len(leaves) == 1 and leaves[0] is obj:
            return None
        return leaves, lambda answers: tf.nest.pack_sequence_as(obj, answers)

    def trace(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, values: bool = True
    ) -> TensorFlowRecording:
        """Run f once, for real, and remember the run."""
        recorder = self._recorder()
        with recorder.listen() as recording:
            for leaf in tf.nest.flatten((args, kwargs)):
                if is_tensor(leaf):
                    recorder.meet(taped_as(leaf), watch=True)
            recording.given = recording.keys.inside(list(args)), recording.keys.inside(kwargs)
            with recorder.watch_names():
                output = f(*args, **kwargs)
            for leaf in tf.nest.flatten(output):
                if is_tensor(leaf):
                    recorder.meet(taped_as(leaf))  # a constant that no operation made
            recording.returned = recording.keys.inside(output)
        return recording

    @contextmanager
    def record(self, **options: Any) -> Iterator[TensorFlowRecording]:
        """The same around a block of the user's code; tensors that have names are kept: `values` is always so."""
        recorder = self._recorder()
        with recorder.listen() as recording, recorder.watch_names():
            yield recording

    def tap(self, name: str, tensor: Any, frame: FrameType | None) -> None:
        """Name a tensor in every recording of this thread that is running."""
        for recorder in OPEN.recorders:
            recorder.name(name, tensor, frame)

    def _recorder(self) -> Recorder:
        recorder = Recorder(self)
        self._recordings = [r for r in self._recordings if r() is not None]
        self._recordings.append(weakref.ref(recorder.recording))
        self._last = recorder.recording
        return recorder

    def capabilities(self) -> dict[Capability, str]:
        return {}


def _named(model: Any) -> dict[str, Any]:
    """The trainable variables by their paths below the model, whose own name says little: `sequential_7`."""
    if not _is_layer(model):
        return compat.variables_by_attribute(model)
    named: dict[str, Any] = {}
    for variable in model.trainable_variables:
        path = variable.path.removeprefix(f"{model.name}/")
        named[path if path not in named else f"{path}#{len(named)}"] = variable
    return named


def _is_layer(obj: Any) -> bool:
    return isinstance(obj, compat.keras_class("Layer"))


BACKEND: Backend = TensorFlowBackend()
