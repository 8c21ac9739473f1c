"""`wrt.flow`: how large gradients are on their way back, layer by layer; where they vanish, explode or die."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wrt._core.value import Value
from wrt._notation.d import d
from wrt._notation.trace import Handle
from wrt._pictures import draw
from wrt._study.tensors import Numbers, is_float, numbers
from wrt.errors import UnknownName, WrongShape, WrtError

VANISHED = 1e-6  # of the largest mean size among the layers of its kind
EXPLODED = 1e4  # times the median


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
        self.layers = tuple(_judged(layers))
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
        return draw.bars(names, [layer.mean for layer in self.layers], ax, title=title, across="mean |gradient|", marked=marked)

    def plot_maps(self, name: str, *, sample: int = 0, channels: int = 8) -> Any:
        """The gradient at a feature map of an image, one picture for each channel; returns the figure."""
        g = self.maps(name)
        if g.ndim != 4:
            raise WrongShape(f"{name} is no map of an image", f"its shape is {g.shape}", "choose a convolution's output")
        first = draw.axes(size=(9.0, 2.4 * (1 + (min(channels, g.shape[1]) - 1) // 4)))
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
    layers, maps = [], {}
    for name, handle in _feature_maps(record, model):
        layers.append((name, "feature map", handle))
    found = [(name, kind, y / d(handle)) for name, kind, handle in layers] if len(layers) < 2 else _together(y, layers)
    if model is not None:
        found += [(name, "parameter", one) for name, one in named(y / d(model))]
    last = record.backend.name != "torch"  # where channels stand
    told = []
    for name, kind, derivative in found:
        g = _numbers(derivative)
        maps[name] = g if g is not None else np.zeros(derivative.shape)
        told.append(layer_of(name, kind, derivative.shape, g, channels_last=last))
    return Flow(told, maps)


def _together(y: Any, layers: list[tuple[str, str, Handle]]) -> list[tuple[str, str, Any]]:
    answers = y / d([handle for *_, handle in layers])
    return [(name, kind, one) for (name, kind, _), one in zip(layers, answers)]


def _numbers(derivative: Any) -> Numbers | None:
    """The gradient; None where none arrives."""
    try:
        g = numbers(derivative)
    except WrtError:
        return None
    return g if derivative.connected else None


def _feature_maps(record: Any, model: Any) -> Iterator[tuple[str, Handle]]:
    """What the layers of a model gave, in the order of the run; without a model every named value of the run."""
    bindings = getattr(record, "names", None)
    if bindings is None:
        return
    wanted = _layer_names(model)
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


def named(answers: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a tree with its path."""
    if isinstance(answers, Mapping):
        for key, one in answers.items():
            yield from named(one, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(answers, (list, tuple)):
        for place, one in enumerate(answers):
            yield from named(one, f"{prefix}[{place}]")
    else:
        yield prefix or "x", answers


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


def _judged(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Each compared with the others of its kind."""
    layers = list(layers)
    for kind in ("feature map", "parameter"):
        some = [one for one in layers if one.kind == kind]
        means = [one.mean for one in some if np.isfinite(one.mean) and one.mean > 0]
        for one in some:
            spot = one.spot
            if not spot and means and one.mean < VANISHED * max(means):
                spot = "vanishing"
            if not spot and means and one.mean > EXPLODED * float(np.median(means)):
                spot = "exploding"
            yield one if spot == one.spot else Layer(**{**asdict(one), "spot": spot})
