"""Small maps whose whole Jacobian is known from a plain row loop."""

from collections.abc import Callable

import numpy as np
import torch

from tests.torch._rows import row_loop


def matrix(y: torch.Tensor, x: torch.Tensor) -> np.ndarray:
    """The truth: (m, n) in double precision, by one plain autograd.grad for each row."""
    found: np.ndarray = row_loop(y, x).reshape(y.numel(), x.numel()).double().numpy()
    return found


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(m: int, n: int, *, hidden: int = 40, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A dense network of two layers."""
    g = generator(seed)
    first = torch.randn(hidden, n, dtype=torch.float64, generator=g) / n**0.5
    last = torch.randn(m, hidden, dtype=torch.float64, generator=g)
    x = torch.randn(n, dtype=torch.float64, generator=g).requires_grad_()
    return last @ torch.tanh(first @ x), x


def full_rank(n: int, *, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Square and well conditioned, without structure: the identity and a dense perturbation of it."""
    weights = torch.randn(n, n, dtype=torch.float64, generator=generator(seed)) / n**0.5
    x = torch.randn(n, dtype=torch.float64, generator=generator(seed + 1)).requires_grad_()
    return 2 * x + torch.sin(weights @ x), x


def decaying(m: int, n: int, *, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Singular values that fall off by a tenth each: 1, 0.9, 0.81, ..."""
    left = torch.linalg.qr(torch.randn(m, min(m, n), dtype=torch.float64, generator=generator(seed)))[0]
    right = torch.linalg.qr(torch.randn(n, min(m, n), dtype=torch.float64, generator=generator(seed + 1)))[0]
    middle = left * 0.9 ** torch.arange(min(m, n), dtype=torch.float64) @ right.T
    x = torch.zeros(n, dtype=torch.float64).requires_grad_()
    return middle @ (x + x**3), x  # the slope at zero is one


def batch(samples: int = 6, p: int = 3, q: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    weights = torch.randn(p, q, dtype=torch.float64, generator=generator(5))
    x = torch.randn(samples, q, dtype=torch.float64, generator=generator(6)).requires_grad_()
    return torch.tanh(x @ weights.T) ** 2 + x.sum(1, keepdim=True), x


def stencil(n: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, dtype=torch.float64, generator=generator(7)).requires_grad_()
    return x**2 - torch.roll(x, 1) * torch.roll(x, -1), x


Problem = Callable[[], tuple[torch.Tensor, torch.Tensor]]
SHAPES: dict[str, Problem] = {
    "tall": lambda: network(130, 100),
    "wide": lambda: network(7, 50),
    "square": lambda: full_rank(30),
    "one row": lambda: network(1, 9),
    "one column": lambda: network(9, 1),
    "a batch": batch,
    "a stencil": stencil,
    "through a waist": lambda: network(150, 140, hidden=4),
}
