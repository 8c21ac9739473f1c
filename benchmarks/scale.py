"""The model of docs/scale.md next to measured runs: fitted to one small transformer, it foretells the others.

    python -m benchmarks scale

What is measured is CPU time of the rows of one token's hidden state, one thread; then blocks of work by real processes that are
killed. The page's own functions are used, read from the page: a change there is checked here.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.scale_workers import really
from wrt import d

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
SIZES = [(128, 2, 64), (128, 4, 64), (192, 2, 96), (256, 2, 64), (256, 4, 32)]  # width, layers, tokens
FITTED = 1  # the size that sets the rate
LIMIT = 1.5
ROUNDS = 5


def model_of_the_page() -> dict[str, Any]:
    """All that the page defines; what it prints is not shown."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(compile(block, str(PAGE), "exec"), names)
    return names


class Layers(nn.Module):
    """Causal transformer layers without dropout, as those of the large model but for the gated inner matrix."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList(
            nn.ModuleDict({"q": _map(width, width), "k": _map(width, width), "v": _map(width, width),
                           "o": _map(width, width), "up": _map(width, 4 * width), "down": _map(4 * width, width)})
            for _ in range(layers)
        )  # fmt: skip

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        tokens, width = h.shape
        mask = torch.full((tokens, tokens), -1e9).triu(1)
        for part in self.parts:
            q, k, v = (part[name](h) for name in "qkv")
            h = h + part["o"](torch.softmax(q @ k.T / width**0.5 + mask, -1) @ v)
            h = h + part["down"](torch.tanh(part["up"](h)))
        return h


def _map(a: int, b: int) -> nn.Linear:
    return nn.Linear(a, b, bias=False)


def measured(width: int, layers: int, tokens: int) -> float:
    """Seconds of CPU for all rows of the last token's state, the quickest of several rounds."""
    model = Layers(width, layers)
    x = torch.randn(tokens, width).requires_grad_()
    y = model(x)
    found = []
    for _ in range(ROUNDS):
        started = time.process_time()
        answer = (d(y)[-1] / d(x)).value
        found.append(time.process_time() - started)
        del answer
    return min(found)


def main() -> int:
    """Every size, foretold and measured."""
    torch.set_num_threads(1)
    page = model_of_the_page()
    pull_flops = page["pull_flops"]
    flops = [w * pull_flops(12 * w * w * layers, layers, w, tokens) for w, layers, tokens in SIZES]
    took = [measured(*size) for size in SIZES]
    rate = flops[FITTED] / took[FITTED]
    print(f"fitted to one size: {rate / 1e9:.1f} GFLOP/s")
    print(f"{'width':>6} {'layers':>7} {'tokens':>7} {'foretold':>10} {'measured':>10} {'ratio':>6}")
    worst = 1.0
    for (width, layers, tokens), operations, seconds in zip(SIZES, flops, took, strict=True):
        ratio = operations / rate / seconds
        worst = max(worst, ratio, 1 / ratio)
        print(f"{width:6} {layers:7} {tokens:7} {operations / rate:9.3f}s {seconds:9.3f}s {ratio:6.2f}")
    print(f"furthest from the truth: {worst:.2f}x (limit {LIMIT}x)")
    workers(page["simulate"])
    return 0


def workers(simulate: Any) -> None:
    """Blocks of a twentieth of a second, lives of three seconds: real processes, and what the page's simulation says."""
    for count in (1, 2, 4):
        case = {"blocks": 80 * count, "seconds": 0.05, "workers": count, "mean_life": 3.0, "back_after": 0.4}
        said = [simulate(**case, seed=seed) for seed in range(200)]
        hours, lost = (sorted(column) for column in zip(*said, strict=True))
        real = [really(**case, seed=seed) for seed in range(3)]
        mean = sum(took for took, _ in real) / len(real)
        deaths = sum(died for _, died in real) / len(real)
        told = f"{sum(hours) / len(hours):.1f} s ({hours[5]:.1f} to {hours[-6]:.1f}), {sum(lost) / len(lost):.1f} lost"
        print(f"{count} workers: simulated {told}; real processes {mean:.1f} s, {deaths:.1f} lost")


if __name__ == "__main__":
    sys.exit(main())
