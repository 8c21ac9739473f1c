"""The end of the demo: a small network that learned to tell shapes apart, on a picture it drew itself, to be clicked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import wrt
from wrt.errors import WrtError

SIDE = 24
SHAPES = ("ring", "cross", "stripes")
NAME = "wrt-demo.html"
LAYERS = ("scores", "parts", "edges")  # all their elements, by the picture


def closing(folder: Path) -> str:
    """Write the page, and say where it is; where it cannot be written, why."""
    try:
        saved = run().save_html(folder / NAME, rows=LAYERS, title="a small network on a ring")
    except (WrtError, OSError) as error:
        return f"no page was written: {error}"
    return (
        f"{NAME} ({saved.bytes / 1e6:.1f} MB): open it in a browser and click an element of what the network gave\n"
        f"  it carries {saved.rows} rows of its Jacobian; t.show() computes any other"
    )


def run() -> wrt.Trace:
    """A recorded run of the trained network on one picture, the same every time; random states stay as they were."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _network()
        _train(model)
        picture = _draw(0, torch)[None, None]
    model = model.double()
    return wrt.trace(lambda x: model(wrt.tap("picture", x)), picture.double(), values=True)


def _network() -> Any:
    from torch import nn

    class Shapes(nn.Module):
        """Two convolutions, a score for each shape."""

        def __init__(self) -> None:
            super().__init__()
            self.edges = nn.Conv2d(1, 6, 3, padding=1)
            self.parts = nn.Conv2d(6, 8, 3, padding=1, stride=2)
            self.scores = nn.Linear(8 * 6 * 6, len(SHAPES))

        def forward(self, picture: Any) -> Any:
            edges = nn.functional.softplus(self.edges(picture), beta=4)
            parts = nn.functional.softplus(self.parts(edges), beta=4)
            pooled = nn.functional.avg_pool2d(parts, 2)
            return self.scores(pooled.flatten(1))

    return Shapes()


def _draw(shape: int, torch: Any, *, shift: float = 0.0, turn: float = 0.0, size: float = 0.55) -> Any:
    """A ring, a cross or stripes, as numbers between 0 and 1."""
    line = torch.linspace(-1, 1, SIDE)
    down, right = torch.meshgrid(line + shift, line - shift, indexing="ij")
    x = right * math.cos(turn) + down * math.sin(turn)
    y = down * math.cos(turn) - right * math.sin(turn)
    if shape == 0:
        far = (x**2 + y**2).sqrt() - size
    elif shape == 1:
        far = torch.minimum(x.abs(), y.abs()) + 0.4 * (torch.maximum(x.abs(), y.abs()) - size - 0.2).clamp(min=0)
    else:
        far = torch.sin(x * 5 / size) * 0.4
    return torch.exp(-(far**2) / 0.02)


def _train(model: Any, steps: int = 120) -> None:
    """Enough to tell the three apart, wherever and however turned they are: a second or two on one core."""
    import torch

    best = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        labels = torch.randint(0, len(SHAPES), (24,))
        moves = torch.randn(24, 3).mul(torch.tensor([0.15, 3.0, 0.08])).tolist()
        drawn = [_draw(int(k), torch, shift=s, turn=t, size=0.55 + z) for k, (s, t, z) in zip(labels, moves)]
        pictures = torch.stack(drawn)[:, None]
        noisy = pictures + 0.15 * torch.randn_like(pictures)
        loss = torch.nn.functional.cross_entropy(model(noisy), labels)
        best.zero_grad()
        loss.backward()
        best.step()
