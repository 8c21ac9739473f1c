"""Models that a worker can import, and their Jacobians by a plain loop of the engine."""

import time
from itertools import pairwise

import numpy as np
import torch

import wrt
from wrt import d

BUILT: list[str] = []


def weights(*sizes: int, seed: int = 0) -> list[torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    made = (torch.randn(a, b, generator=chance, dtype=torch.float64) / a**0.5 for a, b in pairwise(sizes))
    return list(made)


def mlp(state: list[torch.Tensor]):
    BUILT.append("mlp")

    def f(x: torch.Tensor) -> torch.Tensor:
        h = x
        for weight in state[:-1]:
            h = torch.tanh(h @ weight)
        return h @ state[-1]

    return f


def stencil():
    def f(x: torch.Tensor) -> torch.Tensor:
        return x**2 + torch.roll(x, 1) * 3 - torch.roll(x, -1)

    return f


class Slow(torch.autograd.Function):
    """A backward of 30 ms, so that something can happen in the middle."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        time.sleep(0.03)
        return g


def slow(state: list[torch.Tensor]):
    return lambda x: Slow.apply(mlp(state)(x))


def fails_at_row_seven(state: torch.Tensor):
    class Poisoned(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            if bool((g[7] != 0).any()):
                raise ValueError("row 7 is poisoned")
            return g

    return lambda x: Poisoned.apply(torch.tanh(x @ state))


def model(*sizes: int, seed: int = 0) -> wrt.Model:
    state = weights(*sizes, seed=seed)
    return wrt.Model(mlp, state, torch.linspace(-1, 1, sizes[0], dtype=torch.float64))


def jacobian(of: wrt.Model):
    run = of.trace()
    return d(run.output) / d(run.inputs[0])


def by_loop(f, x: torch.Tensor) -> np.ndarray:
    """Row by row with the engine alone."""
    x = x.detach().clone().requires_grad_()
    y = f(x)
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0].reshape(-1) for one in y.reshape(-1)]
    return torch.stack(rows).numpy().reshape(*y.shape, *x.shape)


def truth(*sizes: int, seed: int = 0) -> np.ndarray:
    return by_loop(mlp(weights(*sizes, seed=seed)), torch.linspace(-1, 1, sizes[0], dtype=torch.float64))
