"""The problems of the planner's table: networks, stencils, convolutions, attention, a recurrent network, a mesh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

Tensor = torch.Tensor


@dataclass(frozen=True)
class Problem:
    """f and an x; `cold`, `warm` and `sparse` are how many times faster than the best rival wrt has to be."""

    name: str
    f: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    cold: float | None = None
    warm: float | None = None
    sparse: float | None = None
    expert: Callable[[Tensor], Tensor] | None = None


def network(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def burgers(u: Tensor) -> Tensor:
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return torch.cat([u[:1], inner, u[-1:]])


def brusselator(z: Tensor) -> Tensor:
    u, v = z[0], z[1]

    def laplace(a: Tensor) -> Tensor:
        return a.roll(1, 0) + a.roll(-1, 0) + a.roll(1, 1) + a.roll(-1, 1) - 4 * a

    return torch.stack([1 + u * u * v - 4 * u + 0.1 * laplace(u), 3 * u - u * u * v + 0.1 * laplace(v)])


class Convolutions(nn.Module):
    """3x3 convolutions with tanh between them, on one picture."""

    def __init__(self, count: int, channels: int, hidden: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        widths = [channels, *([hidden] * (count - 1)), channels]
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        x = x[None]
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x[0]


class Block(nn.Module):
    """A causal attention block: attention, then a network for each token, both with residuals."""

    def __init__(self, d: int, heads: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads = heads
        self.mix, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norms = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
        self.each = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        t, d = x.shape
        q, k, v = (
            part.reshape(t, self.heads, -1).transpose(0, 1) for part in self.mix(self.norms[0](x)).chunk(3, dim=-1)
        )
        scores = (q @ k.transpose(1, 2)) / (d // self.heads) ** 0.5
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(0, 1).reshape(t, d))
        return x + self.each(self.norms[1](x))


class Recurrent(nn.Module):
    """The last state of a plain recurrent network, with respect to the first."""

    def __init__(self, h: int, steps: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.Linear(h, h)
        self.inputs = nn.Parameter(torch.randn(steps, h))

    def forward(self, h: Tensor) -> Tensor:
        for one in self.inputs:
            h = torch.tanh(self.cell(h) + one)
        return h


class UNet(nn.Module):
    """Down twice by strided convolutions, up twice, with skips."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down = nn.ModuleList([nn.Conv2d(1, 4, 3, 2, 1), nn.Conv2d(4, 8, 3, 2, 1)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(8, 4, 2, 2), nn.ConvTranspose2d(4, 1, 2, 2)])

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.down[0](x[None]))
        b = F.relu(self.down[1](a))
        return (self.up[1](F.relu(self.up[0](b)) + a))[0] + x


class Mesh(nn.Module):
    """Graph convolutions on a random planar mesh, one feature for each node."""

    def __init__(self, nodes: int, layers: int) -> None:
        super().__init__()
        from scipy.spatial import Delaunay

        points = torch.rand(nodes, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
        triangles = torch.from_numpy(Delaunay(points).simplices.astype("int64"))
        edges = torch.cat([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
        self.count = layers
        self.register_buffer("edges", torch.unique(torch.cat([edges, edges.flip(1)]), dim=0))
        self.register_buffer("degree", torch.bincount(self.edges[:, 0], minlength=nodes).clamp(min=1))

    def forward(self, x: Tensor) -> Tensor:
        for k in range(self.count):
            gathered = torch.zeros_like(x).index_add(0, self.edges[:, 0], x[self.edges[:, 1]]) / self.degree
            x = torch.tanh((1.0 + 0.1 * k) * x + 0.5 * gathered)
        return x


def problems() -> list[Problem]:
    """The table of what has to be shown."""
    samples = network(32, 64, 32)
    return [
        Problem("dense network 256^4", network(256, 256, 256, 256), (256,), 1.3, 1.3),
        Problem("network 16 to 1024", network(16, 256, 256, 1024), (16,), 1.8),
        Problem("network 1024 to 16", network(1024, 256, 256, 16), (1024,), 1.0),
        Problem("autoencoder 784-128-16-128-784", network(784, 128, 16, 128, 784), (784,), 2.0, 4.0),
        Problem("autoencoder 4096-512-64-512-4096", network(4096, 512, 64, 512, 4096), (4096,), None, 8.0),
        Problem("64 samples x 32", samples, (64, 32), 6.0, None, None, torch.func.vmap(torch.func.jacrev(samples))),
        Problem("Burgers, n = 2000", burgers, (2000,), 10.0, None, 60.0),
        Problem("Brusselator 2 x 32 x 32", brusselator, (2, 32, 32), 5.0, None, 40.0),
        Problem("three 3x3 convolutions, 3 x 24 x 24", Convolutions(3, 3, 8), (3, 24, 24), 6.0, 9.0),
        Problem("causal attention block, T = 32, d = 32", Block(32), (32, 32), 1.0),
        Problem("recurrent network, 50 steps, h = 64", Recurrent(64, 50), (64,), 1.3),
        Problem("strided U-Net, 1 x 32 x 32", UNet(), (1, 32, 32), 1 / 1.05),
        Problem("4 graph convolutions, 2000 nodes", Mesh(2000, 4), (2000,), 1 / 1.05),
        Problem("Brusselator, flattened", lambda z: brusselator(z).flatten(), (2, 32, 32), 1 / 1.05),
        Problem("Brusselator, transposed", lambda z: brusselator(z).permute(2, 0, 1), (2, 32, 32), 1 / 1.05),
    ]


def large_problems() -> list[Problem]:
    """The same at the size of a GPU."""
    samples = network(64, 128, 64)
    return [
        Problem("dense network 2048^4", network(2048, 2048, 2048, 2048), (2048,), 1.3),
        Problem("network 64 to 8192", network(64, 1024, 8192), (64,), 1.8),
        Problem("autoencoder 8192-1024-64-1024-8192", network(8192, 1024, 64, 1024, 8192), (8192,), 2.0),
        Problem("512 samples x 64", samples, (512, 64), 6.0),
        Problem("Burgers, n = 20000", burgers, (20000,), 5.0),
        Problem("Brusselator 2 x 96 x 96", brusselator, (2, 96, 96), 3.0),
        Problem("three 3x3 convolutions, 3 x 64 x 64", Convolutions(3, 3, 8), (3, 64, 64), 6.0),
    ]
