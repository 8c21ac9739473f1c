"""What every rank asks, next to the model that is not sharded. Run by `test_sharded.py`, one process for each rank."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import wrt
from wrt import d, errors

Facts = dict[str, Any]


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def whole(x: torch.Tensor) -> torch.Tensor:
    gather = getattr(x, "full_tensor", None)
    return x if gather is None else gather()


def replicated(model: nn.Module, mesh: Any) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def fully_sharded(model: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for layer in model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(model: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


KINDS: dict[str, Callable[[nn.Module, Any], nn.Module]] = {
    "DDP": replicated,
    "FSDP2": fully_sharded,
    "tensor parallel": tensor_parallel,
}


def work(rank: int, world: int, folder: str) -> None:
    """All kinds in one process group."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
    found = {name: facts(shard(build(), mesh)) for name, shard in KINDS.items()}
    found["words"] = words(mesh)
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def facts(model: nn.Module) -> Facts:
    """The largest difference of each answer from that of the plain model, relative to its largest entry."""
    plain = build()
    x = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    here, there = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, truth = model(here), plain(there)
    J, T = d(y) / d(here), d(truth) / d(there)
    v = torch.ones(3, 6, dtype=torch.float64)
    found = {
        "whole": apart(J.value, T.value),
        "element": apart((d(y)[1, 2] / d(here)[1]).value, T.value[1, 2, 1]),
        "push": apart(J @ v, T @ v),
        "pull": apart(torch.ones(3, 4, dtype=torch.float64) @ J, torch.ones(3, 4, dtype=torch.float64) @ T),
        "blocks": apart(J.block_diagonal(), T.block_diagonal()),
        "gram": apart(J.gram().value, T.gram().value),
        "singular": abs(float(J.singular_values(1)[0]) / float(T.singular_values(1)[0]) - 1),
    }
    found |= parameters(model, plain, y, truth)
    found |= recorded(model, plain, x)
    found |= trained(model, plain, x)
    return found


def parameters(model: nn.Module, plain: nn.Module, y: torch.Tensor, truth: torch.Tensor) -> Facts:
    ours, theirs = d(y) / d(model), d(truth) / d(plain)
    each = {name.removeprefix("module."): J for name, J in ours.items()}
    first = next(iter(model.parameters()))
    all_of_them, _ = wrt.joined(d(y) / d(model))
    kernel, _ = wrt.joined(theirs)
    return {
        "parameters": max(apart(each[name].value, J.value) for name, J in theirs.items()),
        "one parameter": apart((d(y)[0, 0] / d(first)).value, (d(truth)[0, 0] / d(next(iter(plain.parameters())))).value),
        "tangent kernel": apart(all_of_them.T.gram().value, kernel.T.gram().value),
    }


def recorded(model: nn.Module, plain: nn.Module, x: torch.Tensor) -> Facts:
    t, p = wrt.trace(model, x.clone()), wrt.trace(plain, x.clone())
    return {
        "trace": apart((d(t.output) / d(t.inputs[0])).value, (d(p.output) / d(p.inputs[0])).value),
        "output of a trace": apart(t.output.value + 0, p.output.value),
    }


def trained(model: nn.Module, plain: nn.Module, x: torch.Tensor) -> Facts:
    """After all these questions the model trains as if nobody had asked."""
    (model(x) ** 2).sum().backward()
    (plain(x) ** 2).sum().backward()
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    return {"training": max(apart(whole(a.grad), b.grad) for a, b in pairs)}


def words(mesh: Any) -> str:
    """A result that stays sharded is refused."""
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model = parallelize_module(build(), mesh, {"2": ColwiseParallel(use_local_output=False)})
    x = torch.ones(3, 6, dtype=torch.float64).requires_grad_()
    y = model(x)
    try:
        d(y)
    except errors.NotDifferentiable as error:
        held = apart((d(y.full_tensor()) / d(x)).value, (d(build()(x)) / d(x)).value)
        return f"{error}\n{held < 1e-12}"
    return "not refused"


def apart(ours: torch.Tensor, truth: torch.Tensor) -> float:
    if type(ours) is not torch.Tensor or ours.shape != truth.shape:
        return float("inf")
    return float((ours - truth).abs().max() / truth.abs().max())
