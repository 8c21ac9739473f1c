"""Models of Flax and Equinox: their arrays, and the paths of their parts. Only what the user has imported is touched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

from wrt._backends.jax import compat

Called = Callable[[str, Any], None]  # a path, and what its part returned


def model_classes() -> tuple[type, ...]:
    """Classes whose objects hold their own arrays."""
    equinox, nnx = sys.modules.get("equinox"), sys.modules.get("flax.nnx")
    found: tuple[type, ...] = () if equinox is None else (equinox.Module,)
    return found if nnx is None else (*found, nnx.Module)


def is_model(obj: Any) -> bool:
    return isinstance(obj, model_classes())


def parameters(model: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The floating-point arrays of a model, and how to put answers in their places; other leaves stay."""
    leaves, structure = jax.tree.flatten(model)
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) and compat.is_differentiable(leaf.dtype)]

    def rebuilt(answers: list[Any]) -> Any:
        filled = list(leaves)
        for k, answer in zip(places, answers, strict=True):
            filled[k] = answer
        return jax.tree.unflatten(structure, filled)

    return [leaves[k] for k in places], rebuilt


def named_arrays(tree: Any) -> Iterator[tuple[str, Any]]:
    """`layers[0].weight` of a model; `Dense_0.kernel` of the variables that a Flax linen module works on."""
    if is_model(tree):
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            yield jax.tree_util.keystr(path).lstrip(".").removesuffix(".value"), leaf
    elif isinstance(tree, Mapping) and isinstance(tree.get("params"), Mapping):
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree["params"])[0]:
            yield jax.tree_util.keystr(path, simple=True, separator="."), leaf


@contextmanager
def followed(trees: list[Any], called: Called) -> Iterator[None]:
    """Report what every part of these models returns, by its path, each time it is called."""
    with ExitStack() as stack:
        linen = sys.modules.get("flax.linen")
        if linen is not None:
            stack.enter_context(linen.intercept_methods(_interceptor(called)))
        paths = {id(part): path for tree in trees if is_model(tree) for path, part in _parts(tree, "", set()) if path}
        for cls in {type(part) for tree in trees if is_model(tree) for _, part in _parts(tree, "", set())}:
            stack.enter_context(_reporting(cls, paths, called))
        yield


def _interceptor(called: Called) -> Callable[..., Any]:
    def intercept(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        made = run(*args, **kwargs)
        if context.method_name == "__call__" and context.module.path:
            called(".".join(context.module.path), made)
        return made

    return intercept


def _parts(thing: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """A model and every model inside it, with their paths."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if is_model(thing):
        yield path, thing
        inside = [(f"{path}.{name}" if path else name, part) for name, part in vars(thing).items()]
    elif isinstance(thing, Mapping):
        inside = [(f"{path}[{key!r}]", part) for key, part in thing.items()]
    elif isinstance(thing, (list, tuple)):
        inside = [(f"{path}[{k}]", part) for k, part in enumerate(thing)]
    else:
        inside = []
    for name, part in inside:
        yield from _parts(part, name, seen)


@contextmanager
def _reporting(cls: type, paths: dict[int, str], called: Called) -> Iterator[None]:
    """The class's own `__call__`, with a report; put back as it was."""
    own = vars(cls).get("__call__")
    if own is None:  # inherited: the class it comes from is followed where a part is of that class
        yield
        return

    def reported(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = own.__get__(self, cls)(*args, **kwargs)
        path = paths.get(id(self))
        if path is not None:
            called(path, made)
        return made

    type.__setattr__(cls, "__call__", reported)
    try:
        yield
    finally:
        type.__setattr__(cls, "__call__", own)
