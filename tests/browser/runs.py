"""Small runs to look at, and what the page has to show of them, from torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import wrt


class Net(nn.Module):
    """Two convolutions and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 5, 3, stride=2, padding=1)
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.conv1(x))
        h = torch.tanh(self.conv2(h))
        return self.head(h.mean((2, 3)))


def picture() -> tuple[Net, torch.Tensor, Any]:
    """A convolutional network on a picture, in double precision: (model, x, recording)."""
    torch.manual_seed(0)
    model, x = Net().double().eval(), torch.rand(1, 3, 12, 10, dtype=torch.float64)
    return model, x, wrt.trace(model, x)


def jacobian(model: Net, x: torch.Tensor) -> torch.Tensor:
    """The whole Jacobian as torch's own functional API has it."""
    return torch.autograd.functional.jacobian(model, x)


def cut() -> Any:
    """A loss that was computed from x, over a line through which no gradient goes."""
    torch.manual_seed(1)
    encoder, head = nn.Linear(4, 6), nn.Linear(6, 2)
    with wrt.record(values=True) as t:
        x = torch.randn(3, 4, requires_grad=True)
        features = encoder(x)
        h = features.detach()
        loss = head(h).square().sum()
    return t


def recurrence(n: int = 8) -> Any:
    """Every element of h is filled in place from the one before."""
    with wrt.record(values=True) as t:
        x = torch.linspace(-1, 1, n, dtype=torch.float64).requires_grad_()
        h = torch.zeros(n, dtype=torch.float64)
        for i in range(n):
            h[i] = torch.tanh(x[i] + (0.5 * h[i - 1] if i else 0.0))
        loss = h.square().sum()
    return t


def slow(passes: int = 400) -> Any:
    """A map that takes a while: every row is a pass through a thousand small steps."""
    torch.manual_seed(2)
    with wrt.record(values=True) as t:
        x = torch.randn(passes, requires_grad=True)
        y = x
        for _ in range(60):
            y = torch.tanh(y.flip(0) + 0.1 * y.cumsum(0) / passes)
        y = y * 1.0
    return t
