"""Ways that numbers take from x to y in torch, one program each."""

from __future__ import annotations

import asyncio
import copy
import ctypes
import io
import pickle
import queue
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_

DOUBLE = torch.float64


def weight() -> Parameter:
    return Parameter(torch.tensor([0.5, -1.0, 2.0], dtype=DOUBLE))


def backward_grad(x: Any, record: Any) -> Any:
    w = weight()
    with record():
        ((w * x) ** 2).sum().backward()
        y = (w.grad * 3).sum()
    return y


def backward_into_leaf(x: Any, record: Any) -> Any:
    w = weight()
    with record():
        loss = ((w * x) ** 2).sum()
        loss.backward()
        g = w.grad
        y = g * 2
    return y


def grad_hook(x: Any, record: Any) -> Any:
    w, seen = weight(), []
    with record():
        h = w * x
        h.register_hook(lambda g: seen.append(g * 1))
        (h * h).sum().backward()
        y = seen[0].sum() * 2
    return y


def grad_hook_bare(x: Any, record: Any) -> Any:
    w, seen = weight(), []
    with record():
        h = w * x
        h.register_hook(seen.append)
        (h * h).sum().backward()
        y = seen[0].sum() * 2
    return y


def accumulate_hook(x: Any, record: Any) -> Any:
    w, seen = weight(), []
    handle = w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    with record():
        ((w * x) ** 2).sum().backward()
        y = seen[0] * 2
    handle.remove()
    return y


def module_backward_hook(x: Any, record: Any) -> Any:
    layer, seen = torch.nn.Linear(3, 2, dtype=DOUBLE), []
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.fill_(0.1)
    with record():
        layer.register_full_backward_hook(lambda m, gi, go: seen.append(go[0]))
        (layer(x) ** 2).sum().backward()
        y = seen[0] * 2
    return y


def custom_backward(x: Any, record: Any) -> Any:
    seen = []

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(g)
            return g

    w = weight()
    with record():
        (Keep.apply(w) * x).sum().backward()
        y = seen[0] * 2
    return y


def optimizer_step(x: Any, record: Any) -> Any:
    w = weight()
    optimizer = torch.optim.SGD([w], lr=0.1)
    with record():
        ((w * x) ** 2).sum().backward()
        optimizer.step()
        y = (w * 3).sum()
    return y


def adam_step(x: Any, record: Any) -> Any:
    w = weight()
    optimizer = torch.optim.Adam([w], lr=0.1, eps=1.0)
    with record():
        for _ in range(2):
            optimizer.zero_grad()
            ((w * x) ** 2).sum().backward()
            optimizer.step()
        y = (w * 3).sum()
    return y


def manual_step(x: Any, record: Any) -> Any:
    w = weight()
    with record():
        loss = ((w * x) ** 2).sum()
        (g,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w.sub_(0.1 * g)
        y = (w * 3).sum()
    return y


def manual_step_grad(x: Any, record: Any) -> Any:
    w = weight()
    with record():
        ((w * x) ** 2).sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        y = (w * 3).sum()
    return y


def manual_data_step(x: Any, record: Any) -> Any:
    w = weight()
    with record():
        ((w * x) ** 2).sum().backward()
        w.data.add_(w.grad.data, alpha=-0.1)
        y = (w * 3).sum()
    return y


def clip_norm(x: Any, record: Any) -> Any:
    w = weight()
    with record():
        ((w * x) ** 2).sum().backward()
        clip_grad_norm_([w], 1.0)
        y = (w.grad * 3).sum()
    return y


def clip_norm_value(x: Any, record: Any) -> Any:
    w = weight()
    with record():
        ((w * x) ** 2).sum().backward()
        norm = clip_grad_norm_([w], 1.0)
        y = norm * 2
    return y


def dlpack(x: Any, record: Any) -> Any:
    with record():
        z = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach()))
        y = z * 2
    return y


def dlpack_of_torch(x: Any, record: Any) -> Any:
    with record():
        y = torch.from_dlpack(x.detach()) * 2
    return y


def dlpack_numpy(x: Any, record: Any) -> Any:
    with record():
        a = np.from_dlpack(x.detach())
        y = torch.from_numpy(a * 2) * 1
    return y


def storage_set(x: Any, record: Any) -> Any:
    with record():
        z = torch.empty(0, dtype=DOUBLE)
        z.set_(x.detach().untyped_storage(), 0, (3,), (1,))
        y = z * 2
    return y


def storage_typed(x: Any, record: Any) -> Any:
    with record():
        s = x.detach().storage()
        y = torch.ones(3, dtype=DOUBLE) * s[0] * 2
    return y


def storage_bytes(x: Any, record: Any) -> Any:
    with record():
        raw = bytes(x.detach().untyped_storage().tolist())
        y = torch.frombuffer(bytearray(raw), dtype=DOUBLE) * 2
    return y


def storage_copied(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    with record():
        v.untyped_storage().copy_(x.detach().untyped_storage())
        y = v * 2
    return y


def storage_from_before(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    target, source = v.untyped_storage(), x.detach().untyped_storage()
    with record():
        a = x * 1
        target.copy_(source)
        y = v * 2
    del a
    return y


def pointer(x: Any, record: Any) -> Any:
    with record():
        numbers = (ctypes.c_double * 3).from_address(x.data_ptr())
        y = torch.tensor(list(numbers), dtype=DOUBLE) * 2
    return y


def pointer_written(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    with record():
        z = x * 3
        ctypes.memmove(v.data_ptr(), z.data_ptr(), 24)
        y = v * 2
    return y


def saved_hooks(x: Any, record: Any) -> Any:
    w, seen = weight(), []
    with record():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
            h = (w * x).exp()
        y = seen[-1] * 2
    del h
    return y


def saved_tensor_of_node(x: Any, record: Any) -> Any:
    w = weight()
    with record():
        h = (w * x).exp()
        y = h.grad_fn._saved_result.detach() * 2
    return y


def data_copy(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    with record():
        v.data.copy_(x)
        y = v * 2
    return y


def data_assigned(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    with record():
        v.data = x.detach() * 3
        y = v * 2
    return y


def data_from_before(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    alias = v.data
    with record():
        alias.copy_(x)
        y = v * 2
    return y


def detach_from_before(x: Any, record: Any) -> Any:
    v = weight()
    alias = v.detach()
    with record():
        alias.mul_(x)
        y = v * 2
    return y


def numpy_written(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    with record():
        v.detach().numpy()[:] = x.detach().numpy()
        y = v * 2
    return y


def numpy_from_before(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    array, source = v.numpy(), x.detach().numpy()
    with record():
        a = x * 1
        array[:] = source * 2
        y = v * 2
    del a
    return y


def from_numpy_from_before(x: Any, record: Any) -> Any:
    array = np.zeros(3)
    v = torch.from_numpy(array)
    with record():
        z = x * 2
        array[:] = z.detach().numpy()
        y = v * 2
    return y


def asarray_written(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    with record():
        np.asarray(v)[:] = np.asarray(x.detach())
        y = v * 2
    return y


def numpy_result(x: Any, record: Any) -> Any:
    with record():
        y = torch.from_numpy(np.sin(x.detach().numpy())) * 2
    return y


def item_back(x: Any, record: Any) -> Any:
    with record():
        s = x.sum().item()
        y = torch.ones(2, dtype=DOUBLE) * s
    return y


def tolist_back(x: Any, record: Any) -> Any:
    with record():
        y = torch.tensor(x.tolist(), dtype=DOUBLE) * 2
    return y


def pickled(x: Any, record: Any) -> Any:
    with record():
        y = pickle.loads(pickle.dumps(x.detach())) * 2
    return y


def saved_file(x: Any, record: Any) -> Any:
    with record():
        buffer = io.BytesIO()
        torch.save(x.detach(), buffer)
        buffer.seek(0)
        y = torch.load(buffer) * 2
    return y


def state_dict(x: Any, record: Any) -> Any:
    layer = torch.nn.Linear(3, 1, bias=False, dtype=DOUBLE)
    with record():
        layer.load_state_dict({"weight": x.detach().reshape(1, 3) * 2})
        y = layer.weight.sum() * 2
    return y


def deep_copied(x: Any, record: Any) -> Any:
    with record():
        y = copy.deepcopy(x.detach()) * 2
    return y


def text(x: Any, record: Any) -> Any:
    with record():
        words = repr(x.detach().tolist()) if False else str(x.sum().detach())
        y = torch.ones(2, dtype=DOUBLE) * float(words.split("(")[1].split(",")[0])
    return y


def formatted(x: Any, record: Any) -> Any:
    with record():
        y = torch.ones(2, dtype=DOUBLE) * float(f"{x.detach().sum():.12f}")
    return y


def index_taken(x: Any, record: Any) -> Any:
    table = torch.linspace(0, 1, 100001, dtype=DOUBLE) ** 2
    with record():
        k = (x[0].detach() * 10000).round().long()
        y = table[k] * 2
    return y


def overwritten_after(x: Any, record: Any) -> Any:
    """y is made, z from y, then y is overwritten from x."""
    v = torch.zeros(3, dtype=DOUBLE)
    with record():
        y = v * 2
        y.data.copy_(x)
    return y


def worker(tasks: queue.Queue[Any], done: queue.Queue[Any]) -> None:
    while (task := tasks.get()) is not None:
        done.put(task())


def thread_before(x: Any, record: Any) -> Any:
    tasks: queue.Queue[Any] = queue.Queue()
    done: queue.Queue[Any] = queue.Queue()
    thread = threading.Thread(target=worker, args=(tasks, done))
    thread.start()
    try:
        with record():
            tasks.put(lambda: x.detach().sin())
            y = done.get() * 2
    finally:
        tasks.put(None)
        thread.join()
    return y


def thread_before_writes(x: Any, record: Any) -> Any:
    tasks: queue.Queue[Any] = queue.Queue()
    done: queue.Queue[Any] = queue.Queue()
    v = torch.zeros(3, dtype=DOUBLE)
    thread = threading.Thread(target=worker, args=(tasks, done))
    thread.start()
    try:
        with record():
            h = x * 3
            tasks.put(lambda: v.copy_(h.detach()))
            done.get()
            y = v * 2
    finally:
        tasks.put(None)
        thread.join()
    return y


def thread_inside(x: Any, record: Any) -> Any:
    made: list[Any] = []
    with record():
        thread = threading.Thread(target=lambda: made.append(x.detach().sin()))
        thread.start()
        thread.join()
        y = made[0] * 2
    return y


def run_tasks(tasks: Coroutine[Any, Any, None]) -> None:
    """In a thread of their own: a loop of somebody else's may be running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, tasks).result()


def two_tasks(x: Any, record: Any) -> Any:
    made: dict[str, Any] = {}

    async def first() -> None:
        with record():
            a = x * 2
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            made["y"] = a * a
            await asyncio.sleep(0)

    async def second() -> None:
        with record():
            b = x * 5
            await asyncio.sleep(0)
            made["z"] = b * b
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            made["y"] = made["y"] + made["z"]

    async def both() -> None:
        await asyncio.gather(first(), second())

    run_tasks(both())
    return made["y"]


def two_tasks_first_ends_first(x: Any, record: Any) -> Any:
    made: dict[str, Any] = {}

    async def first() -> None:
        with record():
            made["a"] = x * 2
            await asyncio.sleep(0)

    async def second() -> None:
        with record():
            b = x * 5
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            c = b * b
            made["y"] = c * 3

    async def both() -> None:
        await asyncio.gather(first(), second())

    run_tasks(both())
    return made["y"]


def order_of_ends(x: Any, record: Any) -> Any:
    first, second = record(), record()
    first.__enter__()
    a = x * 2
    second.__enter__()
    b = a * a
    first.__exit__(None, None, None)
    y = b * b
    second.__exit__(None, None, None)
    return y


def order_of_ends_late(x: Any, record: Any) -> Any:
    first, second = record(), record()
    first.__enter__()
    a = x * 1
    second.__enter__()
    b = torch.ones(3, dtype=DOUBLE) * 2
    first.__exit__(None, None, None)
    c = x * x
    y = b * c
    second.__exit__(None, None, None)
    del a
    return y


def random_seed(x: Any, record: Any) -> Any:
    with record():
        torch.manual_seed(int(x[0] * 1e6))
        y = torch.rand(2, dtype=DOUBLE)
    return y


def branch(x: Any, record: Any) -> Any:
    total = torch.zeros(2, dtype=DOUBLE)
    with record():
        while total[0] < x.sum():
            total = total + 1e-2
        y = total * 2
    return y


def written_after_the_block(x: Any, record: Any) -> Any:
    v = torch.zeros(3, dtype=DOUBLE)
    with record():
        z = x * 1
        y = v * 2
    with torch.no_grad():
        y.copy_(z.detach())
    return y


def shadow_of_saved(x: Any, record: Any) -> Any:
    w, seen = weight(), []
    with record():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
            h = w * x
        y = seen[0] * 2
    del h
    return y


def constant(x: Any, record: Any) -> Any:
    """Healthy: what was made before the block, an index, a mask, a detach; y does not depend on x."""
    c, k = torch.ones(3, dtype=DOUBLE), torch.tensor([0, 2])
    with record():
        z = x * 2
        y = (c * 3)[k] + torch.where(c > 0, c, -c)[k] + c.detach()[k]
    del z
    return y


def backward_beside(x: Any, record: Any) -> Any:
    """Healthy: a backward of something else, an optimizer, a hook; y does not depend on x."""
    w, c = weight(), torch.ones(3, dtype=DOUBLE)
    w.register_hook(lambda g: g * 2)
    optimizer = torch.optim.SGD([w], lr=0.1)
    with record():
        z = x * 2
        (w * 3).sum().backward()
        optimizer.step()
        y = w * c
    del z
    return y


def looked_at(x: Any, record: Any) -> Any:
    """Healthy: numbers are looked at after y is done, memory is handed out and only read."""
    c, b = torch.ones(3, dtype=DOUBLE), torch.ones(3, dtype=DOUBLE)
    with record():
        y = c * 3 + b.abs()
        later = (x * 2).sum().item()
    with record():
        z = x * 2
        seen = b.numpy().sum()
        y = c * 3 + b
    del later, seen, z
    return y


CHANNELS: dict[str, tuple[str, list[Any]]] = {
    "`loss.backward()`, then `.grad`": ("cut", [backward_grad, backward_into_leaf, manual_step_grad, manual_data_step]),
    "`torch.autograd.grad`": ("cut", [manual_step]),
    "an optimizer's step": ("cut", [optimizer_step, adam_step]),
    "`clip_grad_norm_`": ("cut", [clip_norm, clip_norm_value]),
    "a gradient hook, a backward of your own": (
        "left or cut", [grad_hook, grad_hook_bare, accumulate_hook, module_backward_hook, custom_backward],
    ),
    "`saved_tensors_hooks`, what a node saved": ("left or right", [saved_hooks, shadow_of_saved, saved_tensor_of_node]),
    "DLPack": ("left", [dlpack, dlpack_of_torch, dlpack_numpy]),
    "`storage()`, `data_ptr()`": (
        "left", [storage_set, storage_typed, storage_bytes, storage_copied, pointer, pointer_written],
    ),
    "`.data`, `.detach()`, written": (
        "cut", [data_copy, data_assigned, data_from_before, detach_from_before, overwritten_after],
    ),
    "NumPy, its view written": ("left", [numpy_written, from_numpy_from_before, asarray_written, numpy_result]),
    "`.item()`, `.tolist()`, text": ("left", [item_back, tolist_back, text, formatted, random_seed]),
    "`if` and `while` of Python": ("left", [branch]),
    "pickle, `torch.save`, `load_state_dict`, a copy": ("left or cut", [pickled, saved_file, state_dict, deep_copied]),
    "an index, a rounded number": ("cut", [index_taken]),
    "a thread, also one that began before": ("left", [thread_inside, thread_before, thread_before_writes]),
    "a write after the block": ("since", [written_after_the_block]),
    "recordings that overlap, in any order": (
        "right", [two_tasks, two_tasks_first_ends_first, order_of_ends, order_of_ends_late],
    ),
    "a constant, a mask, a look at numbers": ("right", [constant, backward_beside, looked_at]),
    "memory that NumPy or a storage held before the block": ("unseen", [numpy_from_before, storage_from_before]),
}
"""What the table in docs/meaning.md says, and the programs behind each line."""
