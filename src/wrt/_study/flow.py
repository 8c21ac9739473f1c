"""`wrt.flow`: how large gradients are on their way back, and where they vanish, explode or die; `wrt.watch`: during training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from wrt import _backends, _pictures
from wrt._core.value import Value
from wrt._notation.d import d
from wrt._notation.trace import Handle
from wrt._study.tensors import Numbers, is_float, named, numbers
from wrt.errors import UnknownName, WrongShape, WrtError


@dataclass(frozen=True, slots=True)
class Layer:
    """The gradient at one place: a parameter, or what a layer gave (a feature map)."""

    name: str
    kind: str
    shape: tuple[int, ...]
    max: float
    mean: float
    zeros: float
    broken: float
    dead: int
    units: int
    spot: str = ""


class Flow:
    """Gradient sizes from the loss back to the input. Print it, plot it, log `to_dict()`."""

    def __init__(self, layers: list[Layer], maps: Mapping[str, Numbers]) -> None:
        self.layers = tuple(_judge(layers))
        self._maps = dict(maps)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, name: str) -> Layer:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise UnknownName(
            f"no layer {name!r}", f"there is {', '.join(layer.name for layer in self.layers[:12])}", "write one of these"
        )

    @property
    def vanishing(self) -> list[str]:
        return [layer.name for layer in self.layers if layer.spot in ("vanishing", "zero", "no gradient")]

    @property
    def exploding(self) -> list[str]:
        return [layer.name for layer in self.layers if layer.spot in ("exploding", "not finite")]

    @property
    def dead(self) -> dict[str, int]:
        """Units whose gradient is zero everywhere in the batch, by layer."""
        return {layer.name: layer.dead for layer in self.layers if layer.dead and layer.kind == "feature map"}

    def maps(self, name: str) -> Numbers:
        """The gradient itself at one place, as it came: for a feature map batch, channels and positions."""
        self[name]
        return self._maps[name]

    def to_dict(self, prefix: str = "flow") -> dict[str, float]:
        """Flat numbers for a logger: {"flow/fc1.weight/max": 0.03, ...}."""
        return {
            f"{prefix}/{layer.name}/{what}": float(value)
            for layer in self.layers
            for what, value in asdict(layer).items()
            if what in ("max", "mean", "zeros", "broken", "dead")
        }

    def plot(self, ax: Any = None) -> Any:
        """Mean gradient size for each layer on a logarithmic scale; spots that need a look stand out."""
        names = [f"{layer.name}  {'·' if layer.kind == 'parameter' else '▤'}" for layer in self.layers]
        marked = [layer.spot or (f"{layer.dead} of {layer.units} dead" if layer.dead else "") for layer in self.layers]
        title = "gradient size (· parameters, ▤ feature maps)"
        means = [layer.mean for layer in self.layers]
        return _pictures.bars(names, means, ax, title=title, across="mean |gradient|", marked=marked)

    def plot_maps(self, name: str, *, sample: int = 0, channels: int = 8) -> Any:
        """The gradient at a feature map of an image, one picture for each channel; returns the figure."""
        g = self.maps(name)
        if g.ndim != 4:
            raise WrongShape(f"{name} is no map of an image", f"its shape is {g.shape}", "choose a convolution's output")
        first = _pictures.axes(size=(9.0, 2.4 * (1 + (min(channels, g.shape[1]) - 1) // 4)))
        figure = first.figure
        first.remove()
        count = min(channels, g.shape[1])
        reach = float(np.abs(g[sample, :count]).max()) or 1.0
        for k in range(count):
            ax = figure.add_subplot(-(-count // 4), 4, k + 1)
            image = ax.imshow(g[sample, k], cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
            ax.set(title=f"{name}[{sample}, {k}]", xticks=[], yticks=[])
        figure.colorbar(image, ax=figure.axes, shrink=0.8)
        return figure

    def __repr__(self) -> str:
        rows = [("layer", "gradient of", "shape", "max", "mean", "zeros", "dead", "")]
        for one in self.layers:
            dead = f"{one.dead} of {one.units}" if one.dead else ""
            shape = "x".join(map(str, one.shape)) or "one"
            rows.append((one.name, one.kind, shape, f"{one.max:.2e}", f"{one.mean:.2e}", f"{one.zeros:.0%}", dead, one.spot))
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def flow(loss: Any, model: Any = None) -> Flow:
    """Gradient size at every parameter of the model and, where the run was recorded, at what every layer gave.

    `loss` is one number: a tensor, or a handle of a recording. Two passes in all.

    >>> import torch
    >>> model = torch.nn.Linear(3, 2)
    >>> [layer.name for layer in flow(model(torch.ones(1, 3)).sum(), model)]
    ['weight', 'bias']
    """
    y = d(loss)
    if y.elements.size != 1:
        raise WrongShape(
            "the loss is not one number", f"its shape is {y.shape}", "give a scalar, for example loss.mean() or t['loss']"
        )
    record = y.value.record
    layers = list(_feature_maps(record, model))
    answers = y / d([handle for _, handle in layers]) if layers else []  # one shared pass
    found = [(name, "feature map", one) for (name, _), one in zip(layers, answers)]
    if model is not None:
        found += [(name, "parameter", one) for name, one in named(y / d(model))]
    last = record.backend.name != "torch"  # where channels stand
    sizes, maps = [], {}
    for name, kind, derivative in found:
        g = _numbers(derivative)
        maps[name] = g if g is not None else np.zeros(derivative.shape)
        sizes.append(layer_of(name, kind, derivative.shape, g, channels_last=last))
    return Flow(sizes, maps)


def _numbers(derivative: Any) -> Numbers | None:
    """The gradient; None where none arrives."""
    try:
        g = numbers(derivative)
    except WrtError:
        return None
    return g if derivative.has_path else None


def _feature_maps(record: Any, model: Any) -> Iterator[tuple[str, Handle]]:
    """What the layers of a model gave, in the order of the run; without a model every named value of the run."""
    if record.graph is None:
        return  # a live graph has no names
    wanted, bindings = _layer_names(model), record.names
    given = [one for _, one in named(record.inputs) if isinstance(one, Value)]
    for name in list(bindings):
        if wanted is None and name.endswith((".input", ".weight", ".bias")):
            continue
        if wanted is not None and name not in wanted:
            continue
        value = record.bound(bindings.all(name)[-1])
        handle = Handle(record, value)
        if is_float(handle) and not any(record.same(value, one) for one in given):
            yield name, handle


def _layer_names(model: Any) -> set[str] | None:
    """The names of a model's innermost layers, in any framework that names them."""
    if hasattr(model, "named_modules"):
        return {name for name, one in model.named_modules() if name and not any(True for _ in one.children())}
    if isinstance(getattr(model, "layers", None), list):
        return {one.name for one in model.layers}
    return None


def layer_of(name: str, kind: str, shape: tuple[int, ...], g: Numbers | None, *, channels_last: bool) -> Layer:
    """Size and health of one gradient; None stands for one that never arrived."""
    if g is None or not g.size:
        return Layer(name, kind, shape, 0.0, 0.0, 1.0, 0.0, 0, 0, "no gradient" if g is None else "")
    sizes = np.abs(g.astype(np.float64))
    finite = np.isfinite(sizes)
    good = sizes[finite]
    dead, units = (0, 0) if kind == "parameter" else _dead(sizes, channels_last)
    spot = "not finite" if not finite.all() else "zero" if not sizes.any() else ""
    largest, mean = (float(good.max()), float(good.mean())) if good.size else (np.nan, np.nan)
    return Layer(name, kind, shape, largest, mean, float((sizes == 0).mean()), float(1 - finite.mean()), dead, units, spot)


def _dead(sizes: Numbers, channels_last: bool) -> tuple[int, int]:
    if sizes.ndim < 2:
        return 0, 0
    axis = sizes.ndim - 1 if channels_last or sizes.ndim == 3 else 1
    others = tuple(k for k in range(sizes.ndim) if k != axis)
    return int((sizes.max(axis=others) == 0).sum()), sizes.shape[axis]


def _judge(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Each compared with the others of its kind: below a millionth of the largest, or 10,000 times the median."""
    layers = list(layers)
    for kind in ("feature map", "parameter"):
        some = [one for one in layers if one.kind == kind]
        means = [one.mean for one in some if np.isfinite(one.mean) and one.mean > 0]
        for one in some:
            spot = one.spot
            if not spot and means and one.mean < 1e-6 * max(means):
                spot = "vanishing"
            if not spot and means and one.mean > 1e4 * float(np.median(means)):
                spot = "exploding"
            yield one if spot == one.spot else Layer(**{**asdict(one), "spot": spot})


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
            if not any(part.later(gradients, self) for part in _training("jax")):
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
        for part in _training():
            stack.enter_context(part.stepping(model, seen._due, seen._saw, seen._missed))
        yield seen
    seen._open = False


def _training(framework: str = "") -> list[Any]:
    """The training loops of the frameworks that the program uses, or of this one."""
    return [_backends.part(one.name, "training") for one in _backends.loaded() if framework in ("", one.name)]


def _is_value(given: Any) -> bool:
    """Whether this is a loss, alone or beside what else a function told."""
    return getattr(given[0] if isinstance(given, tuple) and given else given, "shape", None) == ()


def _is_loss(given: Any) -> bool:
    return not isinstance(given, (dict, list, tuple)) and getattr(given, "shape", None) in ((), (1,))


def _of_tree(gradients: Any) -> Flow:
    by_path = next((told for part in _training("jax") if (told := part.named(gradients)) is not None), None)
    found = {name: None if one is None else numbers(one) for name, one in by_path or named(gradients)}
    layers = [layer_of(name, "parameter", () if g is None else g.shape, g, channels_last=False) for name, g in found.items()]
    return Flow(layers, {name: g for name, g in found.items() if g is not None})
