"""One recorded run of a model under test: its input as something differentiable, and the output to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import wrt
from wrt._testing.verdict import Undecided
from wrt.extend import handle_of, is_float, kept, tensors_of


@dataclass(frozen=True, slots=True)
class Subject:
    """What is tested: a model, what comes after its first input, and which of its outputs is meant."""

    model: Callable[..., Any]
    more: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] | None = None
    output: Callable[[Any], Any] | None = None

    def run(self, x: Any, fits: Callable[[wrt.Handle, wrt.Handle], bool]) -> Run:
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
        y = self._output(trace, given, fits)
        return Run(trace, y, given if is_float(given) else embedded(trace, given), given)

    def _output(self, trace: wrt.Trace, x: wrt.Handle, fits: Callable[[wrt.Handle, wrt.Handle], bool]) -> wrt.Handle:
        whole = trace.output
        chosen = whole if self.output is None else self.output(whole)
        found = [one for one in leaves(chosen) if is_float(one)]
        fitting = [one for one in found if fits(one, x)]
        if not fitting:
            shapes = ", ".join(str(one.shape) for one in found) or "none of floating point"
            raise Undecided(
                f"no output of the model fits an input of shape {x.shape}",
                f"its outputs have the shapes {shapes}",
                "choose one with output=lambda out: ..., or tell which axis is meant with axis=",
            )
        return fitting[0]


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


def leaves(tree: Any) -> Iterator[wrt.Handle]:
    """Every handle in a container, in order."""
    if isinstance(tree, wrt.Handle):
        yield tree
    elif isinstance(tree, Mapping):
        for one in tree.values():
            yield from leaves(one)
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from leaves(one)


def embedded(trace: wrt.Trace, ids: wrt.Handle) -> wrt.Handle:
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
    raise Undecided(
        f"{ids.name or 'the input'} is of {_short(ids.dtype)}, and its embedding was not found",
        "whole numbers have no derivative: the tests look at the vectors that stand for them",
        "bind the embedding to a variable, or test the model from there: lambda h: model(inputs_embeds=h)",
    )


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.").removeprefix("<dtype: '").removesuffix("'>")
