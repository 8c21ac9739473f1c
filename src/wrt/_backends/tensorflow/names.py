"""Names from Keras: every layer that is called names its output, its input and its weights.

`block1/conv` is the layer `conv` inside the layer `block1` of the model that was called; where a model keeps its layers
in attributes, the attribute path `block1.conv` names it too (Keras numbers unnamed layers through the whole process, so
that `conv2d_7` says little).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.patching import Patch
from wrt._core.where import user_frame

if TYPE_CHECKING:
    from wrt._backends.tensorflow.record import Recorder


def name_layers(recorder: Recorder) -> Patch:
    """Name what Keras layers give and take while they are called in this thread."""
    naming = Naming(recorder)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def named_call(self: Any, *arguments: Any, **keywords: Any) -> Any:
            if not tf.executing_eagerly():
                return original(self, *arguments, **keywords)
            with naming.inside(self), _watch_names(recorder.tracer, watched=not _is_of_keras(self)):
                output = original(self, *arguments, **keywords)
                naming.name(self, arguments, keywords, output)
            return output

        return named_call

    return Patch(compat.keras_class("Layer"), "__call__", make)


@contextmanager
def _watch_names(tracer: Any, *, watched: bool) -> Iterator[None]:
    """Keras' own layers bind no names of the user: inside them the watcher of names rests, which halves their time."""
    before = sys.gettrace()
    wanted = tracer if watched else None
    if tracer is None or before is wanted:
        yield
        return
    sys.settrace(wanted)
    try:
        yield
    finally:
        sys.settrace(before)


def _is_of_keras(layer: Any) -> bool:
    kind = type(layer)
    return kind.__module__.startswith("keras.") and kind.__name__ != "Lambda"


class Naming:
    """The layers that are being called, the outermost first."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.open: list[Any] = []
        self.known: set[str] = set()
        self.paths: list[str] = []  # by attributes, "" where a layer is in none

    @contextmanager
    def inside(self, layer: Any) -> Iterator[None]:
        attribute = _attribute(self.open[-1], layer) if self.open else ""
        outer = self.paths[-1] if self.paths else ""
        known = attribute and (len(self.open) < 2 or outer)
        self.paths.append((f"{outer}.{attribute}" if outer else attribute) if known else "")
        self.open.append(layer)
        self.recorder.layers.append(self.path)
        try:
            yield
        finally:
            self.recorder.layers.pop()
            self.open.pop()
            self.paths.pop()

    @property
    def path(self) -> str:
        """Layer names below the model that was called; the model's own name for itself."""
        inner = self.open[1:] or self.open
        return "/".join(layer.name for layer in inner)

    def name(self, layer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        frame = user_frame(sys._getframe(1))  # once: Keras stands on it with dozens of frames of its own
        for path in dict.fromkeys((self.path, self.paths[-1])):
            if path:
                self._bind(path, output, frame)
                self._bind(f"{path}.input", arguments[0] if len(arguments) == 1 else arguments, frame)
                if path not in self.known:  # its weights stay the same from call to call
                    self.known.add(path)
                    for variable in layer.weights:
                        self._bind(f"{path}.{_below(layer, variable)}", variable, frame)

    def _bind(self, name: str, found: Any, frame: FrameType | None) -> None:
        for label, tensor in _tensors(name, found):
            self.recorder.name(label, tensor, frame)


def _tensors(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, (list, tuple)):
        for k, part in enumerate(found):
            yield from _tensors(f"{name}[{k}]", part)
    elif isinstance(found, dict):
        for key, part in found.items():
            yield from _tensors(f"{name}[{key!r}]", part)
    else:
        yield name, found


def _below(layer: Any, variable: Any) -> str:
    """A weight by its name below the layer: `kernel`, `conv/kernel`."""
    path = str(getattr(variable, "path", variable.name))
    marker = f"{layer.name}/"
    return path.split(marker, 1)[1] if marker in path else str(variable.name)


def _attribute(parent: Any, child: Any) -> str:
    """The attribute of a layer under which another one is kept; empty where it is kept nowhere by name."""
    for name, kept in vars(parent).items():
        if name.startswith("_"):
            continue
        if kept is child:
            return name
        if isinstance(kept, (list, tuple)):
            for k, item in enumerate(kept):
                if item is child:
                    return f"{name}[{k}]"
    return ""
