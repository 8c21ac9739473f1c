"""Models that are spread over processes: what of them can be asked about, and how.

Activations are ordinary tensors on every rank and need nothing here. A parameter of a tensor-parallel module is a
DTensor: its gradients are gathered, which every rank has to ask for. FSDP2 computes with an unsharded twin of each
parameter, and that twin is what the graph of a run leads to.
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import torch

from wrt.errors import NotDifferentiable


def is_sharded(tensor: Any) -> bool:
    """Whether a tensor is a DTensor; costs nothing where torch.distributed.tensor was never imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def whole(gradient: torch.Tensor) -> torch.Tensor:
    """All of a sharded gradient, gathered from every rank."""
    if not is_sharded(gradient):
        return gradient
    gathered: torch.Tensor = gradient.full_tensor()
    return gathered


def refuse_parts(tensor: torch.Tensor) -> None:
    """A sharded parameter can be asked about; a sharded result would need seeds that are sharded too."""
    if tensor.is_leaf or not is_sharded(tensor):
        return
    raise NotDifferentiable(
        "d() of a sharded tensor (DTensor)",
        "this rank holds a part of it, and a question is about all of its elements",
        "ask for tensor.full_tensor() and compute on with that, or give the module use_local_output=True",
    )


def as_computed(parameter: torch.Tensor) -> torch.Tensor:
    """The tensor that a run computed with, for a parameter that FSDP2 keeps in shards; any other is itself."""
    if not is_sharded(parameter) or "torch.distributed.fsdp" not in sys.modules or _is_itself(parameter):
        return parameter
    for holder in gc.get_referrers(parameter):  # a shard knows nothing of the object that manages it
        held = holder if type(holder) is dict else getattr(holder, "__dict__", {})
        if held.get("sharded_param") is parameter:
            twin: torch.Tensor = held.get("_unsharded_param", parameter)
            return twin
    _THEMSELVES[id(parameter)] = weakref.ref(parameter)
    return parameter


def unsharded(module: torch.nn.Module, named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Parameters as the graph of the latest run knows them: for FSDP2 the unsharded twins, elsewhere themselves."""
    twins = _fsdp_twins(module)
    for tensor in named.values():
        if id(tensor) not in twins and is_sharded(tensor):
            _THEMSELVES[id(tensor)] = weakref.ref(tensor)
    return {name: twins.get(id(tensor), tensor) for name, tensor in named.items()} if twins else named


_THEMSELVES: dict[int, weakref.ref[torch.Tensor]] = {}
"""Sharded parameters that FSDP2 does not manage: finding that out looks through all objects there are."""


def _is_itself(parameter: torch.Tensor) -> bool:
    known = _THEMSELVES.get(id(parameter))
    return known is not None and known() is parameter


def _fsdp_twins(module: torch.nn.Module) -> dict[int, torch.Tensor]:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(fsdp, "FSDPModule", None)
    if kind is None:
        return {}
    found: dict[int, torch.Tensor] = {}
    for part in module.modules():
        if not isinstance(part, kind):
            continue
        state: Any = part._get_fsdp_state()
        group = getattr(state, "_fsdp_param_group", None)
        for each in getattr(group, "fsdp_params", ()):
            twin = getattr(each, "_unsharded_param", None)
            if twin is not None:
                found[id(each.sharded_param)] = twin
    return found
