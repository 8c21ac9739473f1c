"""Models with known dependences: healthy ones, and ones with one fault at one known place."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """One head, masked; `reach` 0 is causal, 1 sees one position too far."""

    def __init__(self, width: int = 8, reach: int = 0) -> None:
        super().__init__()
        self.reach = reach
        self.query, self.key, self.values = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.query(x), self.key(x), self.values(x)
        scores = q @ k.mT / x.shape[-1] ** 0.5
        allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(self.reach)
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
        return x + weights @ v


class Language(nn.Module):
    """Token ids to logits, through two blocks; the second may see too far."""

    def __init__(self, reach: int = 0, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.place = nn.Embedding(32, width)
        self.first, self.second = Attention(width), Attention(width, reach)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        h = self.second(self.first(h))
        return self.head(self.norm(h))


class Convolution(nn.Module):
    """A causal convolution pads on the left; `both` pads on both sides, which is wrong."""

    def __init__(self, width: int = 3, both: bool = False) -> None:
        super().__init__()
        self.both = both
        self.convolve = nn.Conv1d(width, width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x.mT, (1, 1) if self.both else (2, 0))
        return self.convolve(padded).mT


def fourier(x: torch.Tensor) -> torch.Tensor:
    """A causal convolution by Fourier transform: dense, and causal only up to roundoff."""
    length = x.shape[1]
    kernel = torch.linspace(1, 2, length, dtype=x.dtype)
    spectrum = torch.fft.rfft(x, 2 * length, dim=1) * torch.fft.rfft(kernel, 2 * length)[None, :, None]
    return torch.fft.irfft(spectrum, 2 * length, dim=1)[:, :length]


def padding_leak(x: torch.Tensor, size: float = 1e-6) -> torch.Tensor:
    """Causal, but position 3 takes a millionth of position 7."""
    y = x.cumsum(1)
    late = F.pad(x[:, 7:8] * size, (0, 0, 3, x.shape[1] - 4))
    return y + late


def sorted_by_data(x: torch.Tensor) -> torch.Tensor:
    """Position t takes the row that comes t-th by size: a gather whose index depends on the data."""
    order = x[:, :, 0].argsort(dim=1)
    return torch.gather(x, 1, order[:, :, None].expand_as(x))


def decided_by_the_last(x: torch.Tensor) -> torch.Tensor:
    """Every position is switched by the sign of the last one: no derivative, and yet a dependence."""
    return x * (1 + (x[:, -1:] > 0).to(x.dtype))


class Normalized(nn.Module):
    """Batch normalization: in train mode every sample depends on every other."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.out = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.norm(self.fc(x))))


def neighbors(x: torch.Tensor) -> torch.Tensor:
    """Sample 2 takes something of sample 5."""
    y = x.clone()
    y[2] = y[2] + 1e-6 * x[5]
    return y
