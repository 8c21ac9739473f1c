"""A model under test, run and probed: random pulls that tell a dependence from none, and a dependence from roundoff.

A pull with random weights on some rows of a Jacobian gives, at every column, a random combination of those rows: zero
at a column means, with certainty, that all of them are zero there, unless they cancel by an accident of measure zero.
Where no path leads, engines give an exact 0.0. A number that is not zero may still be roundoff, where a path is dense but
cancels (a Fourier transform, a difference of running sums): then pulling the same weights, scaled, gives other digits,
while a true derivative scales along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import wrt
from wrt import d
from wrt._testing.verdict import Undecided
from wrt.errors import GradientCut, NoPath, WrtError
from wrt.extend import handle_of, is_float, kept, named, numbers, tensor_like, tensors_of

Numbers = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Fits = Callable[[wrt.Handle, wrt.Handle], bool]


# ---- one recorded run ----


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tested: a model, what comes after its first input, and which of its outputs is meant."""

    model: Callable[..., Any]
    more: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] | None = None
    output: Callable[[Any], Any] | None = None

    def run(self, x: Any, fits: Fits) -> Run:
        """Run it once on x, recorded; `fits(y, x)` says which output can be the one that is meant."""
        with kept(self.model):
            trace = wrt.trace(self.model, x, *self.more, **(self.keywords or {}))
        given = trace.inputs[0]
        if not isinstance(given, wrt.Handle):
            raise Undecided(
                f"the first input is a {type(x).__name__}",
                "the tests follow one tensor through the model",
                "wrap the model: lambda x: model({'x': x}), and give x",
            )
        given_back = trace.output if self.output is None else self.output(trace.output)
        outputs = [one for _, one in named(given_back) if isinstance(one, wrt.Handle) and is_float(one)]
        y = next((one for one in outputs if fits(one, given)), None)
        if y is None:
            shapes = ", ".join(str(one.shape) for one in outputs) or "none of floating point"
            raise Undecided(
                f"no output of the model fits an input of shape {given.shape}",
                f"its outputs have the shapes {shapes}",
                "choose one with output=lambda out: ..., or tell which axis is meant with axis=",
            )
        return Run(trace, y, given if is_float(given) else _embedding(trace, given), given)


@dataclass(frozen=True, slots=True)
class Run:
    """`y` and `x` are handles; for token ids `x` is their embedding and `given` the ids themselves."""

    trace: wrt.Trace
    y: wrt.Handle
    x: wrt.Handle
    given: wrt.Handle

    @property
    def embedded(self) -> bool:
        return self.x is not self.given


def _embedding(trace: wrt.Trace, ids: wrt.Handle) -> wrt.Handle:
    """The first floating-point value that has a vector for each of the ids."""
    graph = trace.graph
    whole = tensors_of(trace, ids)
    for node in graph:
        if not whole.intersection(node.inputs):
            continue
        for made in node.outputs:
            tensor = graph.tensors[made]
            if "float" not in tensor.dtype:
                whole.add(made)
            elif tuple(tensor.shape[: len(ids.shape)]) == ids.shape and len(tensor.shape) == len(ids.shape) + 1:
                found = handle_of(trace, made)
                if found is not None:
                    return found
                whole.add(made)  # nobody named it: what is made of it next may have a name
    dtype = str(ids.dtype).removeprefix("torch.").removeprefix("<dtype: '").removesuffix("'>")
    raise Undecided(
        f"{ids.name or 'the input'} is of {dtype}, and its embedding was not found",
        "whole numbers have no derivative: the tests look at the vectors that stand for them",
        "bind the embedding to a variable, or test the model from there: lambda h: model(inputs_embeds=h)",
    )


# ---- other inputs ----


def other_inputs(given: wrt.Handle, count: int, seed: int) -> Iterator[Any]:
    """More inputs of the same shape: floats around the given ones, token ids drawn from those that were given."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield tensor_like(_another(numbers(given), random), given)


def _another(x: Numbers, random: np.random.Generator) -> Numbers:
    """Numbers like these, but none of them the same where there is a choice."""
    if np.issubdtype(x.dtype, np.floating):
        spread = float(x.std()) or 1.0
        return (x + spread * random.standard_normal(x.shape)).astype(x.dtype)
    if x.dtype == bool:
        return random.random(x.shape) < 0.5
    return random.choice(np.unique(x), size=x.shape).astype(x.dtype)


def changes(x: Numbers, where: Mask, random: np.random.Generator) -> Iterator[Numbers]:
    """x with other numbers at some places: near ones, far ones, and turned around. Decisions have to be pushed over an edge."""
    near, again = _another(x, random), _another(x, random)
    if np.issubdtype(x.dtype, np.floating):
        moved = [near, x + 4.0 * (again - x), -x]
    else:
        moved = [near, again, _another(x, random)]
    for other in moved:
        yield np.where(where, other, x).astype(x.dtype)


def most_changed(before: Numbers, after: Numbers, where: Mask, precision: float) -> tuple[int, ...] | None:
    """The element that changed most where nothing may change; None where all of it is roundoff, at most 64 roundings."""
    same = (after == before) | (np.isnan(after) & np.isnan(before))
    with np.errstate(invalid="ignore"):
        off = np.nan_to_num(np.abs(after - before), nan=np.inf)  # what became a NaN has changed
    difference = np.where(where & ~same, off, 0.0)
    largest = max(float(np.abs(one[np.isfinite(one)]).max(initial=1e-30)) for one in (before, after))
    if not difference.max(initial=0.0) > 64 * precision * largest:
        return None
    return _index(difference.argmax(), difference.shape)


# ---- random pulls ----


class Probe:
    """Pulls from y to x, counted; both are handles, tensors or elements of them."""

    def __init__(self, y: Any, x: Any, seed: int = 0) -> None:
        self.J = d(y) / d(x)
        self.names = name(y, "y"), name(x, "x")
        self.rows: tuple[int, ...] = self.J.rows.shape
        self.columns: tuple[int, ...] = self.J.shape[len(self.rows) :]
        self.random = np.random.default_rng(seed)
        self.passes = 0
        self.cut = ""

    def weights(self, rows: Mask | None = None) -> Numbers:
        """Random weights on some elements of y (None: on all), never near zero."""
        drawn = self.random.choice([-1.0, 1.0], size=self.rows) * self.random.uniform(0.5, 1.5, size=self.rows)
        return np.asarray(drawn if rows is None else np.where(rows, drawn, 0.0))

    def pull(self, weights: list[Numbers]) -> list[Numbers]:
        """u J for each u, in x's shape; zeros where no path leads there."""
        found: list[Numbers] = []
        for start in range(0, len(weights), 8):  # whose weights are in memory together
            some = np.stack(weights[start : start + 8])
            try:
                pulled = numbers(some @ self.J)
            except NoPath as missing:
                self.cut = missing.where if isinstance(missing, GradientCut) else self.cut
                pulled = np.zeros((len(some), *self.columns))
            self.passes += len(some)
            found.extend(pulled.astype(np.float64))
        return found

    def true_leak(self, u: Numbers, g: Numbers, forbidden: Mask) -> bool:
        """Whether what came out at forbidden columns is a derivative; False for roundoff and for nothing at all."""
        self.refuse_not_finite(g)
        largest = float(np.abs(g[forbidden]).max(initial=0.0))
        if largest <= 1e-12 * float(np.abs(g).max(initial=0.0)):
            return False  # what a mask of -30 lets through is no path
        scale = 1.5  # not a power of two: every product is rounded anew
        (again,) = self.pull([scale * u])
        noise = float(np.abs(again[forbidden] / scale - g[forbidden]).max(initial=0.0))
        return largest > 8 * noise

    def refuse_not_finite(self, g: Numbers) -> None:
        if not np.isfinite(g).all():
            y, x = self.names
            raise Undecided(
                f"the gradient from {y} to {x} is not finite",
                f"{int((~np.isfinite(g)).sum())} of {g.size} entries are NaN or infinite",
                f"ask wrt.why({y}, {x}) where they are born, or test at another input",
            )

    def pair(self, g: Numbers, rows: Mask, forbidden: Mask) -> tuple[tuple[int, ...], tuple[int, ...], float]:
        """One offending pair: the forbidden element of x with most in g, the row that depends on it, found by halving."""
        column = _index(np.argmax(np.where(forbidden, np.abs(g), -1)), g.shape)
        candidates = np.flatnonzero(rows)
        while len(candidates) > 1:
            halves = candidates[: len(candidates) // 2], candidates[len(candidates) // 2 :]
            chosen = [np.isin(np.arange(rows.size), half).reshape(rows.shape) for half in halves]
            first, second = self.pull([self.weights(one) for one in chosen])
            candidates = halves[0] if abs(first[column]) >= abs(second[column]) else halves[1]
        output = _index(candidates[0], rows.shape)
        return output, column, float(self.J[(*output, *column)].item().real)


def name(obj: Any, otherwise: str) -> str:
    """What a handle is called; a letter for anything else."""
    return (obj.name if isinstance(obj, wrt.Handle) else "") or otherwise


def _index(flat: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(int(flat), shape)) if shape else ()


def along(shape: tuple[int, ...], axis: int, chosen: Mask) -> Mask:
    """A mask of a shape that follows one axis."""
    form = [1] * len(shape)
    form[axis] = len(chosen)
    return np.broadcast_to(chosen.reshape(form), shape)


# ---- where a dependence begins ----


@dataclass(frozen=True, slots=True)
class Origin:
    """`name` is the first value with the dependence; `lines` lead there from the last value without it, and on to y."""

    name: str
    module: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        module = f" in {self.module}" if self.module and self.module != self.name else ""
        shown = self.lines if len(self.lines) <= 6 else (*self.lines[:5], "...", self.lines[-1])
        head = f"first seen in {self.name}{module}" if self.name else "along these lines"
        return head + "".join(f"\n    {line}" for line in shown)


def origin(run: Run, alike: Callable[[wrt.Handle], bool], leaks: Callable[[wrt.Handle], bool]) -> Origin:
    """The first value, among those with the same axes as x, that has the dependence."""
    graph = run.trace.graph
    made = [(tensor.node, handle_of(run.trace, k)) for k, tensor in sorted(graph.tensors.items()) if tensor.node is not None]
    values = [(node, handle) for node, handle in made if handle is not None and is_float(handle) and alike(handle)]
    first = _first_leak([handle for _, handle in values], leaks)
    if first is None:
        return Origin("", "", _lines(run, 0))
    since = values[first - 1][0] + 1 if first else 0
    node, handle = values[first]
    return Origin(handle.name, graph.nodes[node].module, _lines(run, since))


def _first_leak(values: list[wrt.Handle], leaks: Callable[[wrt.Handle], bool]) -> int | None:
    """The first that leaks; found by halving where there are many, since a leak that has begun stays."""

    def leaking(handle: wrt.Handle) -> bool:
        try:
            return leaks(handle)
        except WrtError:  # whole numbers, values of another run
            return False

    if len(values) <= 24:
        return next((k for k, handle in enumerate(values) if leaking(handle)), None)
    low, high = 0, len(values)  # below `low` all are clean, `high` leaks
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if leaking(values[middle]) else (middle + 1, high)
    return low if low < len(values) else None


def _lines(run: Run, since: int) -> tuple[str, ...]:
    """The distinct source lines of operations that read something computed from x, from one moment on."""
    reached = tensors_of(run.trace, run.given)
    found: dict[str, None] = {}
    for node in run.trace.graph:
        if reached.intersection(node.inputs):
            reached.update(node.outputs)
            if node.id >= since and node.where is not None:
                found[f"{node.where}  {node.where.text}".rstrip()] = None
    return tuple(found)
