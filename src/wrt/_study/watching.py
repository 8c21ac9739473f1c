"""`wrt.watch`: gradient sizes during training, every so many steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wrt._study.flow import Flow, flow, layer_of, named
from wrt._study.tensors import numbers


class Watch:
    """What was seen so far: `history` holds (step, Flow). Call it with gradients where no hook can see them."""

    def __init__(self, model: Any, every: int, log: Callable[[dict[str, float]], Any] | None) -> None:
        self.model = model
        self.every = max(1, every)
        self.log = log
        self.step = 0
        self.history: list[tuple[int, Flow]] = []
        self._waiting: dict[str, Any] = {}

    @property
    def latest(self) -> Flow | None:
        return self.history[-1][1] if self.history else None

    @property
    def alerts(self) -> list[str]:
        """Every spot that needed a look, with its step."""
        return [
            f"step {step}: {layer.name} {layer.spot}" for step, seen in self.history for layer in seen if layer.spot
        ]

    def __call__(self, gradients: Any) -> None:
        """One step by hand: a loss tensor of this step, or a tree of gradients (JAX, a GradientTape)."""
        if self.step % self.every == 0:
            self._note(flow(gradients, self.model) if _is_loss(gradients) else _of_tree(gradients))
        self.step += 1

    def arrived(self, name: str, gradient: Any, last: bool) -> None:
        """The gradient of one parameter, from a hook; the last of a backward ends the step."""
        if self.step % self.every == 0:
            self._waiting[name] = numbers(gradient)
        if last:
            if self._waiting:
                self._note(_of_tree(self._waiting))
                self._waiting = {}
            self.step += 1

    def _note(self, seen: Flow) -> None:
        self.history.append((self.step, seen))
        if self.log is not None:
            self.log(seen.to_dict())

    def __repr__(self) -> str:
        seen = f"{len(self.history)} looks in {self.step} steps"
        return f"Watch  {seen}" + (f", {len(self.alerts)} alerts" if self.alerts else "")


@contextmanager
def watch(model: Any, *, every: int = 100, log: Callable[[dict[str, float]], Any] | None = None) -> Iterator[Watch]:
    """Look at the gradients of a model every so many backward passes; `log` gets `to_dict()` each time.

    PyTorch parameters are watched by themselves. Elsewhere call the watch with the gradients of the step: `w(grads)`.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with watch(model, every=2) as w:
    ...     for _ in range(4):
    ...         model(torch.ones(1, 2)).sum().backward()
    >>> w
    Watch  2 looks in 4 steps
    """
    seen = Watch(model, every, log)
    handles = _hooks(model, seen)
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _hooks(model: Any, seen: Watch) -> list[Any]:
    """One hook for each parameter that has hooks; a backward is over when all that took part have been seen."""
    named_parameters = getattr(model, "named_parameters", None)
    if named_parameters is None:
        return []
    parameters = [(name, one) for name, one in named_parameters() if getattr(one, "requires_grad", False)]
    arrived: set[str] = set()

    def hook(name: str) -> Callable[[Any], None]:
        def note(parameter: Any) -> None:
            if name in arrived:  # its second time: another backward has begun
                arrived.clear()
            arrived.add(name)
            seen.arrived(name, parameter.grad, last=len(arrived) == len(parameters))

        return note

    return [one.register_post_accumulate_grad_hook(hook(name)) for name, one in parameters]


def _is_loss(given: Any) -> bool:
    return not isinstance(given, (dict, list, tuple)) and getattr(given, "shape", None) in ((), (1,))


def _of_tree(gradients: Any) -> Flow:
    found = [(name, numbers(one)) for name, one in named(gradients) if one is not None]
    layers = [layer_of(name, "parameter", g.shape, g, channels_last=False) for name, g in found]
    return Flow(layers, dict(found))
