"""`wrt.watch`: gradient sizes during training, every so many steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from wrt import _backends
from wrt._study.flow import Flow, flow, layer_of, named
from wrt._study.tensors import numbers

F = TypeVar("F", bound=Callable[..., Any])


class Watch:
    """What was seen so far: `history` holds (step, Flow). Call it with gradients where no hook can see them."""

    def __init__(self, model: Any, every: int, log: Callable[[dict[str, float]], Any] | None) -> None:
        self.model = model
        self.every = max(1, every)
        self.log = log
        self.step = 0
        self.history: list[tuple[int, Flow]] = []
        self.missed = ""
        self._open = True

    @property
    def latest(self) -> Flow | None:
        return self.history[-1][1] if self.history else None

    @property
    def alerts(self) -> list[str]:
        """Every spot that needed a look, with its step."""
        return [f"step {step}: {layer.name} {layer.spot}" for step, seen in self.history for layer in seen if layer.spot]

    def __call__(self, gradients: Any) -> None:
        """One step by hand: a loss tensor of this step, or a tree of gradients (JAX, a GradientTape)."""
        if not self._open:
            return  # a compiled function may go on calling after the watch has ended
        if self._due():
            self._note(flow(gradients, self.model) if _is_loss(gradients) else _of_tree(gradients))
        self.step += 1

    def around(self, function: F) -> F:
        """The same function, watched: `grad = w.around(jax.grad(loss))`. What it returns is looked at and handed on.

        Inside `jit` too: the compiled function then hands its gradients over whenever it runs. Of a pair, as
        `value_and_grad` gives, the second half is looked at.
        """

        @wraps(function, updated=())  # what else a callable object carries stays with it
        def watched(*arguments: Any, **keywords: Any) -> Any:
            found = function(*arguments, **keywords)
            gradients = found[1] if isinstance(found, tuple) and len(found) == 2 and _is_value(found[0]) else found
            if not any(part.later(gradients, self) for part in _parts("later")):
                self(gradients)
            return found

        del watched.__wrapped__  # a transformation would look through it
        return watched  # type: ignore[return-value]

    def _due(self) -> bool:
        return self.step % self.every == 0

    def _saw(self, gradients: dict[str, Any] | None) -> None:
        """A step is over that a hook has seen; None where nobody wanted to look."""
        if gradients:
            self._note(_of_tree(gradients))
        self.step += 1

    def _missed(self, words: str) -> None:
        self.missed = words

    def _note(self, seen: Flow) -> None:
        self.history.append((self.step, seen))
        if self.log is not None:
            self.log(seen.to_dict())

    def __repr__(self) -> str:
        seen = f"Watch  {len(self.history)} looks in {self.step} steps"
        told = [seen, f"{len(self.alerts)} alerts" if self.alerts else "", self.missed]
        return ", ".join(one for one in told if one)


@contextmanager
def watch(model: Any, *, every: int = 100, log: Callable[[dict[str, float]], Any] | None = None) -> Iterator[Watch]:
    """Look at the gradients of a model every so many backward passes; `log` gets `to_dict()` each time.

    PyTorch modules, Keras models (`fit` too) and tf.Modules under a GradientTape are watched by themselves. In JAX no
    gradient passes a place that could be watched: write `grad = w.around(jax.grad(loss))`, inside `jit` or not, or call
    the watch with the gradients of the step: `w(grads)`.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with watch(model, every=2) as w:
    ...     for _ in range(4):
    ...         model(torch.ones(1, 2)).sum().backward()
    >>> w
    Watch  2 looks in 4 steps
    """
    seen = Watch(model, every, log)
    with ExitStack() as stack:
        for part in _parts("stepping"):
            stack.enter_context(part.stepping(model, seen._due, seen._saw, seen._missed))
        yield seen
    seen._open = False


def _parts(wanted: str) -> list[Any]:
    """The training loops of the frameworks that the program uses, as far as they have something to say."""
    found = [_part(backend.name) for backend in _backends.loaded()]
    return [part for part in found if hasattr(part, wanted)]


@cache
def _part(backend: str) -> Any:
    where = f"wrt._backends.{backend}.stepping"
    return import_module(where) if find_spec(where) is not None else None


def _is_value(given: Any) -> bool:
    """Whether this is a loss, alone or beside what else a function told."""
    return getattr(given[0] if isinstance(given, tuple) and given else given, "shape", None) == ()


def _is_loss(given: Any) -> bool:
    return not isinstance(given, (dict, list, tuple)) and getattr(given, "shape", None) in ((), (1,))


def _of_tree(gradients: Any) -> Flow:
    by_path = next((told for part in _parts("named") if (told := part.named(gradients)) is not None), None)
    found = {name: None if one is None else numbers(one) for name, one in by_path or named(gradients)}
    layers = [layer_of(name, "parameter", () if g is None else g.shape, g, channels_last=False) for name, g in found.items()]
    return Flow(layers, {name: g for name, g in found.items() if g is not None})
