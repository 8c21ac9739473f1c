"""One call of the run made again, on other numbers in double precision."""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from wrt._backends.torch.measures import as_numbers, quiet
from wrt._backends.torch.saved import opened
from wrt._core.evidence import Again, Numbers
from wrt._core.where import Where, function_name


def made_again(kept: tuple[Any, Any, Any], values: Sequence[int]) -> Again | None:
    """The call behind kept arguments, whose tensors are these values of the run."""
    func, args, kwargs = kept[0], opened(kept[1]), opened(kept[2])
    custom = isinstance(func, type) and issubclass(func, torch.autograd.Function)
    places = _places(args, kwargs)
    if any(t.layout != torch.strided for _, t in places):
        return None  # a sparse tensor has no fixed elements to move
    floats = [(k, t) for k, (_, t) in enumerate(places) if t.is_floating_point()]
    run = _Run(func.apply if custom else func, args, kwargs, [places[k][0] for k, _ in floats])
    inputs = tuple(t.detach().double().cpu().numpy().copy() for _, t in floats)
    rule = _last_return(func.backward) if custom else None
    name = func.__name__ if custom else ""
    return Again(inputs, tuple(values[k] for k, _ in floats), run, name, rule, push=run.push, is_narrow=lambda: run.narrow)


class _Run:
    """A call made again with some of its tensors replaced by double-precision numbers."""

    def __init__(self, func: Callable[..., Any], args: Any, kwargs: Any, places: list[tuple[Any, ...]]) -> None:
        self.func, self.args, self.kwargs, self.places = func, args, kwargs, places
        self.narrow = False

    def __call__(self, inputs: Sequence[Numbers]) -> list[Numbers | None]:
        results = self._results(inputs)
        self.narrow |= any(isinstance(r, Tensor) and r.dtype in (torch.float32, torch.float16, torch.bfloat16) for r in results)
        return [as_numbers(r) if isinstance(r, Tensor) else None for r in results]


    def push(self, inputs: Sequence[Numbers], place: int, tangent: Numbers) -> list[Numbers | None]:
        """Forward mode of the call, from one of its inputs."""
        with forward_ad.dual_level():
            results = self._results(inputs, place, torch.from_numpy(np.ascontiguousarray(tangent)))
            moved = [forward_ad.unpack_dual(r).tangent if isinstance(r, Tensor) else None for r in results]
            return [as_numbers(t) for t in moved]

    def _results(self, inputs: Sequence[Numbers], moving: int = -1, tangent: Tensor | None = None) -> Sequence[Any]:
        tensors = [torch.from_numpy(np.ascontiguousarray(array)).clone() for array in inputs]
        if tangent is not None:
            tensors[moving] = forward_ad.make_dual(tensors[moving], tangent)
        args = _replaced((self.args, self.kwargs), (), dict(zip(self.places, tensors, strict=True)))
        with quiet(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            result = self.func(*args[0], **args[1])
        return result if isinstance(result, (tuple, list)) else [result]


def _places(args: Any, kwargs: Any) -> list[tuple[tuple[Any, ...], Tensor]]:
    """Every tensor among the arguments with the way to it, in the order in which a recording numbers them."""
    found: list[tuple[tuple[Any, ...], Tensor]] = []
    for k, arg in enumerate(args):
        found += [((0, k, *rest), t) for rest, t in _inside(arg)]
    for key, arg in kwargs.items():
        found += [((1, key, *rest), t) for rest, t in _inside(arg)]
    return found


def _inside(arg: Any) -> list[tuple[tuple[Any, ...], Tensor]]:
    if isinstance(arg, Tensor):
        return [((), arg)]
    if type(arg) in (list, tuple):
        return [((k,), item) for k, item in enumerate(arg) if isinstance(item, Tensor)]
    return []


def _replaced(tree: Any, way: tuple[Any, ...], given: dict[tuple[Any, ...], Tensor]) -> Any:
    if way in given:
        return given[way]
    if isinstance(tree, Tensor) and tree.is_floating_point():
        return tree.double().cpu()
    if isinstance(tree, dict):
        return {key: _replaced(item, (*way, key), given) for key, item in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_replaced(item, (*way, k), given) for k, item in enumerate(tree))
    return tree


def _last_return(function: Any) -> Where | None:
    """The line in which a rule written by hand returns."""
    code: CodeType | None = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if code is None:
        return None
    lines = [i.positions.lineno for i in dis.get_instructions(code) if i.opname.startswith("RETURN") and i.positions]
    return Where(code.co_filename, lines[-1], function=function_name(code)) if lines and lines[-1] else None
