"""One torch program for each kind of plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F

from tests.faults.questions import Program

Tensor = torch.Tensor


@cache
def weights(*shape: int, seed: int = 0) -> Tensor:
    made = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return made / shape[-1] ** 0.5


def like(x: Tensor, *shape: int, seed: int = 0) -> Tensor:
    return weights(*shape, seed=seed).to(x.dtype)


def network(m: int, n: int) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.sin(like(x, m, n) @ torch.tanh(x)) + 0.1


def tokens(x: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(x @ like(x, 8, 8)) @ like(x, 8, 8, seed=1))


def burgers(u: Tensor) -> Tensor:
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return torch.cat([u[:1], inner, u[-1:]])


def readings(a: Tensor) -> Tensor:
    """Six quantities at every point of a grid, each from the point and its four neighbors."""
    around = F.pad(a[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
    five = (around[2:, 1:-1], around[:-2, 1:-1], around[1:-1, 2:], around[1:-1, :-2], a)
    return torch.stack([sum((k + j + 1) * one.sin() for j, one in enumerate(five)) for k in range(6)])  # type: ignore[misc]


@cache
def links(count: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).permutation(count))


def mesh(x: Tensor) -> Tensor:
    """Every node reads three others, in no order."""
    near = [x[links(len(x), seed)] for seed in range(3)]
    return torch.tanh(x + 0.3 * near[0] * near[1]) + 0.5 * near[2].sin()


def arrow(x: Tensor) -> Tensor:
    """A mesh in which every node reads one of them, and one of them all nodes."""
    return torch.cat([mesh(x)[:-1] * x[7].sin(), (x**2).sum()[None]])


def narrow(x: Tensor) -> Tensor:
    inner = torch.tanh(like(x, 80, 200) @ torch.sin(x))
    inner = torch.tanh(like(x, 80, 6) @ torch.tanh(like(x, 6, 80) @ inner))
    return torch.sin(like(x, 200, 80) @ inner)


def two_narrow(x: Tensor) -> Tensor:
    inner = torch.tanh(like(x, 80, 200) @ torch.sin(x))
    one, other = torch.tanh(like(x, 4, 80) @ inner), torch.sin(like(x, 5, 80) @ inner)
    return torch.sin(like(x, 200, 80) @ torch.tanh(like(x, 80, 4) @ one + like(x, 80, 5) @ other))


def residual(x: Tensor) -> Tensor:
    inner = torch.tanh(like(x, 60, 200) @ torch.sin(x))
    return x + like(x, 200, 60) @ torch.tanh(like(x, 60, 5) @ (like(x, 5, 60) @ inner))


def attention(x: Tensor) -> Tensor:
    """A block with a residual, and a network for each token."""
    mixed = x + torch.softmax(x @ x.T, -1) @ x
    return mixed + F.gelu(mixed @ like(x, 16, 128)) @ like(x, 128, 16)


def heads(x: Tensor) -> Tensor:
    """Heads that do not mix, with a residual, then a network for each token."""
    t, d = x.shape
    q, k, v = (one.reshape(t, 4, -1).transpose(0, 1) for one in (F.layer_norm(x, (d,)) @ like(x, d, 3 * d)).chunk(3, -1))
    mixed = (q @ k.transpose(1, 2)).tril().softmax(-1) @ v
    mixed = x + mixed.transpose(0, 1).reshape(t, d) @ like(x, d, d)
    return mixed + F.gelu(mixed @ like(x, d, 8 * d)) @ like(x, 8 * d, d)


def last_layer(x: Tensor) -> Tensor:
    return like(x, 70, 90) @ torch.tanh(like(x, 90, 100) @ x)


def convolutions(x: Tensor) -> Tensor:
    for k in range(3):
        x = torch.tanh(F.conv2d(x, like(x, 4, 1 if k == 0 else 4, 3, 3, seed=k), padding=1))
    return x


PROGRAMS: dict[str, Program] = {
    "direct pull": Program(network(40, 50), (50,), "direct"),
    "direct pull, many calls": Program(network(40, 50), (50,), "direct", lines=7),
    "direct push": Program(network(120, 20), (20,), "direct", "push"),
    "direct push, many calls": Program(network(120, 20), (20,), "direct", "push", lines=7),
    "structured pull": Program(tokens, (12, 8), "structured"),
    "structured push": Program(readings, (8, 10), "structured", "push"),
    "banded": Program(burgers, (120,), "structured"),
    "colored": Program(mesh, (280,), "colored"),
    "colored, columns apart": Program(arrow, (280,), "colored"),
    "cut": Program(narrow, (200,), "cut"),
    "cut of two tensors": Program(two_narrow, (200,), "cut"),
    "sum": Program(residual, (200,), "sum"),
    "chain": Program(attention, (18, 16), "chain"),
    "chain with heads": Program(heads, (18, 16), "chain"),
    "last layer's weights": Program(last_layer, (100,), "direct"),
    "patch": Program(
        convolutions,
        (1, 1, 64, 64),
        "patch",
        rows=(0, slice(None), slice(30, 33), 31),
        columns=(0, 0, slice(28, 36), slice(29, 34)),
    ),
}
