"""A model while it runs and learns: its state, put back afterwards, and its gradients.

The gradients of a training loop are what `tape.gradient` gives for the variables of a model, also inside Keras' `fit`.
Code that runs eagerly hands them over as it goes. `fit` compiles its step: there each gradient is copied into a variable of
our own when a step is due, and read when the compiled step has returned. The compiled step that was there before is put
back in the end, so that nothing of this stays in the model. A `tf.function` of the user's own stays as it is: its gradients
are not seen, and the watch says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.patching import Patch
from wrt._backends.tensorflow.tensors import dense

Due = Callable[[], bool]
Saw = Callable[[dict[str, Any] | None], None]

UNSEEN = "gradients inside a tf.function are not seen: return them from it, and call the watch with them"


@contextmanager
def kept(objects: Sequence[Any]) -> Iterator[None]:
    """Keras models among the objects run inside without a trace of it in their variables or in the generator."""
    variables = [variable for one in objects for variable in getattr(one, "non_trainable_variables", ())]
    before = [tf.identity(tf.convert_to_tensor(variable)) for variable in variables]
    generator = tf.random.get_global_generator()
    state = tf.identity(generator.state)
    try:
        yield
    finally:
        for variable, saved in zip(variables, before, strict=True):
            variable.assign(saved)
        generator.state.assign(state)


@contextmanager
def stepping(model: Any, due: Due, saw: Saw, missed: Callable[[str], None]) -> Iterator[None]:
    """Call `saw` for every gradient of the model's variables that a tape was asked for, with the numbers if it is due."""
    loop = _Loop(model, due, saw, missed)
    with ExitStack() as stack:
        stack.enter_context(Patch(tf.GradientTape, "gradient", loop.gradient))
        trainer = _trainer(model)
        if trainer is not None:
            stack.enter_context(_own_train_function(model))
            stack.enter_context(Patch(trainer, "make_train_function", loop.make_train_function))
        yield


def _trainer(model: Any) -> type | None:
    """The class of Keras that compiles `fit`; None for anything that is no Keras model on TensorFlow."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, keras.Model) or keras.backend.backend() != "tensorflow":
        return None
    return next((cls for cls in type(model).__mro__ if "make_train_function" in vars(cls)), None)


@contextmanager
def _own_train_function(model: Any) -> Iterator[None]:
    before, model.train_function = model.train_function, None
    try:
        yield
    finally:
        model.train_function = before


class _Loop:
    """What is known while the loop runs; the names of variables are looked up when gradients come, for lazy models."""

    def __init__(self, model: Any, due: Due, saw: Saw, missed: Callable[[str], None]) -> None:
        self.model, self.due, self.saw, self.missed = model, due, saw, missed
        self.in_fit = False
        self.is_due: tf.Variable | None = None
        self.copies: dict[str, tf.Variable] = {}
        self._names: dict[int, str] = {}

    def names(self) -> dict[int, str]:
        from wrt._backends.tensorflow.backend import BACKEND

        found = BACKEND.tree(self.model)
        if found is not None and len(found[0]) != len(self._names):
            answers = found[1](list(range(len(found[0]))))
            self._names = {id(compat.plain_variable(found[0][k])): name for name, k in answers.items()}
        return self._names

    # ---------------------------------------------------------------- tapes

    def gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def gradient(tape: Any, target: Any, sources: Any, *rest: Any, **keywords: Any) -> Any:
            found = original(tape, target, sources, *rest, **keywords)
            if not compat.is_quiet():
                self.arrived(tf.nest.flatten(sources), tf.nest.flatten(found))
            return found

        return gradient

    def arrived(self, sources: list[Any], gradients: list[Any]) -> None:
        names = self.names()
        some = {
            names[id(variable)]: gradient
            for variable, gradient in zip(map(compat.plain_variable, sources), gradients, strict=True)
            if id(variable) in names
        }
        if not some:
            return
        if tf.executing_eagerly():
            self.saw({name: dense(g) for name, g in some.items()} if self.due() else None)
        elif self.in_fit and not tf.distribute.has_strategy():
            self.copy(some)
        else:
            self.missed(UNSEEN)

    # ---------------------------------------------------------------- fit

    def make_train_function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def make_train_function(model: Any, force: bool = False) -> Any:
            made = original(model, force)
            if model is self.model and not isinstance(model.train_function, _Watched):
                model.train_function = _Watched(self, model.train_function)
            return made

        return make_train_function

    def copy(self, gradients: dict[str, Any]) -> None:
        """Inside the compiled step: copies of the gradients, where Python said beforehand that the step is due."""
        arrays = {name: dense(g) for name, g in gradients.items() if g is not None}
        with tf.init_scope():
            for name, g in arrays.items():
                if name not in self.copies:
                    self.copies[name] = tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False)

        def assigned() -> Any:
            for name, g in arrays.items():
                self.copies[name].assign(g)
            return tf.constant(True)

        tf.cond(self.flag, assigned, lambda: tf.constant(False))

    @property
    def flag(self) -> tf.Variable:
        if self.is_due is None:
            with tf.init_scope():
                self.is_due = tf.Variable(False, trainable=False)
        return self.is_due


class _Watched:
    """A compiled step of `fit`, and what it brought."""

    def __init__(self, loop: _Loop, step: Callable[..., Any]) -> None:
        self.loop, self.step = loop, step

    def __call__(self, *arguments: Any) -> Any:
        loop = self.loop
        compiled = not loop.model.run_eagerly and not tf.config.functions_run_eagerly()
        if compiled:
            loop.flag.assign(loop.due())
        loop.in_fit = True
        try:
            result = self.step(*arguments)
        finally:
            loop.in_fit = False
        for k in range(loop.model.steps_per_execution if compiled and loop.copies else 0):
            last = k == loop.model.steps_per_execution - 1
            loop.saw({name: one.value() for name, one in loop.copies.items()} if last and loop.due() else None)
        return result
