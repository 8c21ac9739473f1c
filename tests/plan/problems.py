"""Functions whose Jacobians have a structure that a person would see; the tests ask whether the planner sees it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


@dataclass(frozen=True)
class Problem:
    """A function, the shape of its x, and how many passes rows swept together may take."""

    f: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    passes: int


def _weights(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def burgers(u: Tensor) -> Tensor:
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return torch.cat([u[:1], inner, u[-1:]])


def periodic(u: Tensor) -> Tensor:
    return 0.1 * (u.roll(1) - 2 * u + u.roll(-1)) - u * (u.roll(1) - u.roll(-1))


def brusselator(z: Tensor, mode: str = "replicate") -> Tensor:
    u, v = z

    def laplace(a: Tensor) -> Tensor:
        a = F.pad(a[None, None], (1, 1, 1, 1), mode=mode)[0, 0]
        return a[2:, 1:-1] + a[:-2, 1:-1] + a[1:-1, 2:] + a[1:-1, :-2] - 4 * a[1:-1, 1:-1]

    return torch.stack([1 + u * u * v - 4 * u + 0.1 * laplace(u), 3 * u - u * u * v + 0.1 * laplace(v)])


def readings(a: Tensor, mode: str = "replicate") -> Tensor:
    """Six quantities at every point of a grid, each from the point and its four neighbors."""
    around = F.pad(a[None, None], (1, 1, 1, 1), mode=mode)[0, 0]
    five = (around[2:, 1:-1], around[:-2, 1:-1], around[1:-1, 2:], around[1:-1, :-2], a)
    return torch.stack([sum((k + j + 1) * one.sin() for j, one in enumerate(five)) for k in range(6)])


def convolutions(x: Tensor) -> Tensor:
    for k in range(3):
        x = torch.tanh(F.conv2d(x[None], _weights(3, 3, 3, 3) * (k + 1), padding=1)[0])
    return x


def tokens(x: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(x @ _weights(16, 16)) @ _weights(16, 16))


def strided(x: Tensor) -> Tensor:
    return F.conv2d(x[None], _weights(4, 2, 3, 3), stride=2, padding=1)[0]


def dilated(x: Tensor) -> Tensor:
    return F.conv2d(x[None], _weights(2, 2, 3, 3), dilation=2, padding=2)[0]


def upward(x: Tensor) -> Tensor:
    return F.conv_transpose2d(x[None], _weights(2, 2, 4, 4), stride=2, padding=1)[0]


PROBLEMS: dict[str, Problem] = {
    "burgers": Problem(burgers, (200,), 3),
    "periodic": Problem(periodic, (200,), 4),
    "periodic, length divisible by 3": Problem(periodic, (201,), 3),
    "five-point stencil, two species": Problem(brusselator, (2, 16, 16), 6),
    "five-point stencil on a torus": Problem(lambda z: brusselator(z, "circular"), (2, 16, 16), 8),
    "flattened": Problem(lambda z: brusselator(z).flatten(), (2, 16, 16), 6),
    "permuted": Problem(lambda z: brusselator(z).permute(2, 0, 1), (2, 16, 16), 6),
    "permuted and flattened": Problem(lambda z: brusselator(z).permute(1, 2, 0).flatten(), (2, 16, 16), 6),
    "six readings of a grid": Problem(readings, (10, 11), 5),  # five pushes, thirty pulls
    "six readings of a torus": Problem(lambda a: readings(a, "circular"), (10, 10), 5),
    "six readings, points first": Problem(lambda a: readings(a).permute(1, 2, 0).flatten(0, 1), (10, 11), 5),
    "three convolutions": Problem(convolutions, (3, 14, 14), 147),
    "batch of networks": Problem(tokens, (24, 16), 16),
    "batch, flattened": Problem(lambda x: tokens(x).flatten(), (24, 16), 16),
    "batch, transposed": Problem(lambda x: tokens(x.T).T, (16, 24), 16),
    "elementwise": Problem(lambda x: x**2, (30, 20), 1),
    "strided": Problem(strided, (2, 16, 16), 18),  # 16 pulls; pushes of a convolution cost less
    "dilated": Problem(dilated, (2, 14, 14), 18),
    "transposed convolution": Problem(upward, (2, 9, 9), 72),
    "max-pool": Problem(lambda x: F.max_pool2d(x[None], 2)[0], (3, 24, 24), 1),
    "pixel shuffle": Problem(lambda x: F.pixel_shuffle(x, 2) ** 2, (8, 6, 6), 4),
    "nearest upsampling": Problem(lambda x: F.interpolate(x[None], scale_factor=2)[0] ** 2, (3, 8, 8), 4),
    "batch of convolutions with a ReLU": Problem(
        lambda x: F.relu(F.conv2d(x, _weights(3, 3, 3, 3), padding=1)), (4, 3, 8, 8), 27
    ),
    "every second element": Problem(lambda x: x[3:300:2].sin(), (400,), 1),
}


def row_loop(y: Tensor, x: Tensor) -> Tensor:
    """The truth: one plain backward for each row."""
    seeds = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)  # y[i] would be one more node to pass, for each row
    return torch.stack([torch.autograd.grad(y, x, seed, retain_graph=True)[0].reshape(-1) for seed in seeds])


def at_random(problem: Problem, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(y, x) of one run."""
    x = torch.randn(problem.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x.requires_grad_()
    return problem.f(x), x
