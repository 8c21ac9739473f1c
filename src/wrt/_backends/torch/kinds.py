"""Tables of torch functions, by what a recording has to do about them."""

from __future__ import annotations

from types import BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any, NamedTuple

import torch
from torch import Tensor

_PROPERTIES = (
    "shape dtype device layout ndim is_leaf requires_grad _version _base names is_cuda is_cpu is_sparse "
    "is_quantized is_meta is_mkldnn is_nested output_nr _backward_hooks retains_grad itemsize nbytes is_sparse_csr "
    "_grad _cdata is_mps is_xpu"
).split()
_METHODS = (
    "size dim ndimension numel nelement stride storage_offset is_floating_point is_complex is_contiguous "
    "element_size is_inference is_signed is_conj is_neg __len__ __hash__ "
    "get_device _is_view has_names is_same_size is_set_to is_pinned is_shared retain_grad "
    "register_post_accumulate_grad_hook __dlpack_device__ __dir__ __class__ dense_dim sparse_dim _nnz "
    "is_coalesced __array_wrap__"
).split()


PLAIN: frozenset[Any] = frozenset(
    {getattr(Tensor, name).__get__ for name in _PROPERTIES if hasattr(getattr(Tensor, name, None), "__get__")}
    | {getattr(Tensor, name) for name in _METHODS if hasattr(Tensor, name)}
    | {
        torch.is_tensor,
        torch.is_floating_point,
        torch.is_complex,
        torch.is_grad_enabled,
        torch.numel,
        torch.is_inference_mode_enabled,
        torch.get_default_dtype,
        torch.is_same_size,
        torch.is_storage,
        torch.result_type,
        torch.promote_types,
        torch.can_cast,
    }
)
"""Questions about a tensor that read no numbers and make no value: passed through, not recorded."""

VERBATIM = frozenset(
    (
        "detach detach_ data item tolist numpy __array__ __float__ __int__ __bool__ __index__ __complex__ __contains__ "
        "requires_grad_ requires_grad grad backward tensor as_tensor from_numpy asarray scalar_tensor set_ "
        "_make_subclass is_nonzero allclose equal __reversed__ _grad share_memory_ pin_memory __dlpack__ "
        "set_grad_enabled _set_grad_enabled manual_seed save register_hook __deepcopy__ data= grad= requires_grad= "
        "autograd.grad resize_ resize_as_ apply_ map_ map2_ __reduce_ex__ untyped_storage storage data_ptr to_dlpack grad_fn "
        "__repr__ __format__ __cuda_array_interface__"
    ).split()
)
"""Run on the user's own tensors, never on shadows: they leave the graph, or are about its state."""

KINKED = frozenset(["max", "min", "maximum", "minimum", "fmax", "fmin", "amax", "amin", "abs", "absolute"])
"""Functions with a kink or a tie: their arguments are kept (copied if overwritten), to look at both sides of it."""

REBOUND = frozenset(["detach_", "data=", "set_", "resize_", "resize_as_", "apply_", "map_", "map2_"])
"""Calls after which a tensor is another one, with no history that autograd knows: its shadow is given up."""

TURNED = frozenset("squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ as_strided_".split())
"""Calls that leave the numbers where they are and give a tensor another shape: its shadow becomes a view of what it was."""

REMEMBERED = KINKED | REBOUND | {"requires_grad_", "requires_grad="}
"""Calls of which more than inputs and outputs is noted."""

STORAGE = frozenset("untyped_storage storage data_ptr __cuda_array_interface__ grad_fn".split())
"""The memory itself, or what the graph saved: who has it can read the numbers and make other tensors of them."""

EXPOSING = (STORAGE | {"numpy", "__array__", "__dlpack__", "to_dlpack"}) - {"grad_fn"}
"""Calls that hand out the memory of a tensor: whoever has it can write there unseen."""

LEAVES_TENSORS = STORAGE | frozenset(
    (
        "item tolist numpy __array__ __float__ __int__ __bool__ __index__ __complex__ is_nonzero __contains__ allclose "
        "equal __dlpack__ to_dlpack __reduce_ex__ __repr__ __format__"
    ).split()
)
"""The value goes on as a Python or NumPy object, or as bytes; the gradient cannot."""


UNDIFFERENTIABLE_INPUTS = frozenset({"batch_norm", "instance_norm"})
"""Running statistics among the inputs: torch refuses them if they require grad; only what is normalized gets a shadow."""

REFUSALS = (
    "not differentiable with respect to",
    "derivative for",
    "don't support automatic differentiation",
    "Can't call numpy() on Tensor that requires grad",
    "does not support automatic differentiation",
    "requires grad",
    "not differentiable twice",
    "Autograd not support dtype",  # cumsum(..., dtype=torch.int32) of whole numbers kept as floats
)
"""How torch says, before it computes anything, that an input must not require grad."""


class Traits(NamedTuple):
    """What a recording has to know of a function, looked up once for every call."""

    name: str
    """As the user would say it: `tanh`, `__setitem__`, `data` for the getter of a property."""
    verbatim: bool = False
    writes: bool = False
    """It may write into its first argument."""
    pure: bool = False
    """Compiled, and by its name not writing anything: nobody has to look whether it did."""
    remembered: bool = False
    quick: bool = False
    """Nothing of the above but pure: noted without ado."""


PLAIN_QUESTION = Traits("")
"""The traits of everything in PLAIN."""


class _Table(dict[Any, Traits]):
    """torch function -> its traits; torch has a few thousand functions, so nothing is ever dropped."""

    def __missing__(self, func: Any) -> Traits:
        if func in PLAIN:
            self[func] = PLAIN_QUESTION
            return PLAIN_QUESTION
        name = name_of(func)
        writes = writes_in_place(name)
        pure, verbatim, remembered = isinstance(func, _COMPILED) and not writes, name in VERBATIM, name in REMEMBERED
        found = Traits(name, verbatim, writes, pure, remembered, pure and not verbatim and not remembered)
        self[func] = found
        return found


TRAITS = _Table()
_COMPILED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType)


def name_of(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    if func is torch.autograd.grad:
        return "autograd.grad"  # not the property `.grad`
    if name in ("__get__", "__set__", "__delete__"):
        owner = getattr(func, "__self__", None)
        name = getattr(owner, "__name__", name) + ("=" if name == "__set__" else "")
    return str(name)


def writes_in_place(name: str) -> bool:
    """Whether a function may write into its first argument, judged by torch's own naming rule."""
    if name in ("__setitem__", "batch_norm", "instance_norm", "embedding", "embedding_bag", "data=", "set_"):
        return True
    if name.startswith("__i") and name.endswith("__"):
        return name not in ("__invert__", "__index__", "__int__", "__init__")
    return name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "detach_")
