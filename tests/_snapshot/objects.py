"""What can be seen of a tensor, a module, an array or a container of them."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from tests._snapshot.aside import aside
from tests._snapshot.compare import Bits, Facts, Is

Fact = tuple[str, object]


def facts_of(*objects: object, **named: object) -> Facts:
    """Every fact of these objects, by a readable name.

    >>> sorted(facts_of(rows=[[1, 2], 3]))
    ['rows', 'rows[0]']
    """
    labelled = {f"argument {k} ({type(thing).__name__})": thing for k, thing in enumerate(objects)} | named
    with aside(sys.modules["torch"]) if "torch" in sys.modules else nullcontext():
        return {f"{label}{path}": fact for label, thing in labelled.items() for path, fact in _facts(thing)}


def _facts(thing: Any) -> Iterator[Fact]:
    for framework, probe in PROBES.items():
        if (module := sys.modules.get(framework)) is not None and (found := probe(module, thing)) is not None:
            yield from found
            return
    if isinstance(thing, Mapping):
        yield "", tuple(thing)
        yield from _within((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, list | tuple):
        yield "", len(thing)
        yield from _within((f"[{k}]", value) for k, value in enumerate(thing))
    elif not isinstance(thing, str | bytes | int | float | complex | None):
        raise TypeError(f"cannot watch a {type(thing).__name__}: name its tensors instead")


def _within(children: Iterable[tuple[str, Any]]) -> Iterator[Fact]:
    for label, child in children:
        for path, fact in _facts(child):
            yield f"{label}{path}", fact


# ---- torch ----


def _torch(torch: Any, thing: Any) -> Iterator[Fact] | None:
    if isinstance(thing, torch.Tensor):
        return _torch_tensor(torch, thing)
    if isinstance(thing, torch.nn.Module):
        return _torch_module(torch, thing)
    return None


def _torch_tensor(torch: Any, tensor: Any) -> Iterator[Fact]:
    yield "", Is(tensor)
    for name in ("dtype", "device", "shape", "requires_grad", "retains_grad", "is_leaf"):
        yield f".{name}", getattr(tensor, name)
    yield ".grad_fn", Is(tensor.grad_fn)
    if tensor.grad_fn is not None:
        yield ".grad_fn.metadata", tuple(tensor.grad_fn.metadata)
    if not tensor.is_inference():
        yield "._version", tensor._version
    yield " hooks", _hooks(tensor._backward_hooks) + _hooks(tensor._post_accumulate_grad_hooks)
    yield " attributes", frozenset(vars(tensor))
    yield " values", _torch_bits(torch, tensor)
    if tensor.is_leaf or tensor.retains_grad:  # elsewhere reading `.grad` warns
        yield ".grad", Is(tensor.grad)
        if tensor.grad is not None:
            yield from ((f".grad{path}", fact) for path, fact in _torch_tensor(torch, tensor.grad))


def _torch_module(torch: Any, module: Any) -> Iterator[Fact]:
    for path, part in module.named_modules(remove_duplicate=False):
        label = f".{path}" if path else ""
        yield label, Is(part)
        yield f"{label}.training", part.training
        yield f"{label} attributes", frozenset(vars(part))
        for name, hooks in vars(part).items():
            if "hooks" in name and isinstance(hooks, dict):
                yield f"{label}.{name}", _hooks(hooks)
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    yield " tensors", tuple(name for name, _ in tensors)
    yield from _within((f".{name}", tensor) for name, tensor in tensors)


def _torch_bits(torch: Any, tensor: Any) -> Bits | str:
    if tensor.device.type == "meta":
        return "meta"
    plain = tensor.detach()
    dense = plain.to_dense() if plain.layout is not torch.strided else plain
    flat = dense.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return Bits(flat.view(torch.uint8).numpy().tobytes())


def _hooks(hooks: Mapping[Any, Any] | None) -> tuple[Is, ...]:
    return tuple(map(Is, hooks.values())) if hooks else ()


# ---- TensorFlow ----


def _keras(keras: Any, thing: Any) -> Iterator[Fact] | None:
    return _keras_layer(thing) if isinstance(thing, keras.layers.Layer) else None


def _keras_layer(layer: Any) -> Iterator[Fact]:
    parts = layer._flatten_layers() if hasattr(layer, "_flatten_layers") else [layer]
    for part in parts:
        yield f".{part.name}", Is(part)
        yield f".{part.name}.trainable", part.trainable
        yield f".{part.name} patched", "call" in vars(part)
    for variable in layer.variables:
        yield f".{variable.path}", Is(variable)
        yield f".{variable.path} values", Bits(variable.numpy().tobytes())


def _tensorflow(tf: Any, thing: Any) -> Iterator[Fact] | None:
    if isinstance(thing, tf.Variable):
        return iter([("", Is(thing)), (".trainable", thing.trainable), (" values", Bits(thing.numpy().tobytes()))])
    if isinstance(thing, tf.Tensor):
        return iter([("", Is(thing)), (" values", Bits(thing.numpy().tobytes()))])
    return None


# ---- JAX and NumPy ----


def _jax(jax: Any, thing: Any) -> Iterator[Fact] | None:
    if isinstance(thing, jax.Array):
        return _jax_array(thing)
    leaves = jax.tree_util.tree_leaves_with_path(thing)
    ours = isinstance(thing, list | tuple | dict | None)  # walked by `_facts`, which also sees other frameworks
    if ours or (len(leaves) == 1 and leaves[0][1] is thing):
        return None
    return _within((jax.tree_util.keystr(path), leaf) for path, leaf in leaves)


def _jax_array(array: Any) -> Iterator[Fact]:
    yield ".is_deleted()", array.is_deleted()
    if not array.is_deleted():
        yield " values", (array.dtype, array.shape, array.weak_type, Bits(array.__array__().tobytes()))


def _numpy(np: Any, thing: Any) -> Iterator[Fact] | None:
    if not isinstance(thing, np.ndarray | np.generic):
        return None
    shape = (thing.dtype, thing.shape, thing.strides, thing.flags.writeable)
    return iter([(" layout", shape), (" values", Bits(thing.tobytes()))])


PROBES = {"torch": _torch, "keras": _keras, "tensorflow": _tensorflow, "jax": _jax, "numpy": _numpy}
