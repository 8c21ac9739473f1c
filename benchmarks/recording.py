"""What a recording costs next to the forward run it records, side by side with TorchLens and nnsight.

    python -m benchmarks.recording [--seconds 3]
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import wrt
from benchmarks.timing import Measured, compare, save


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(h)) + x)


class ResNetLike(nn.Module):
    """17 convolutions."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(8)))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.blocks(torch.relu(self.stem(x)))
        return self.head(h.mean((2, 3)))


class HandRNN(nn.Module):
    """100 steps, written out."""

    def __init__(self, inputs: int = 64, hidden: int = 128) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(inputs, hidden) / 8)
        self.u = nn.Parameter(torch.randn(hidden, hidden) / 12)

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(xs.shape[1], self.u.shape[0])
        for x in xs:
            h = torch.tanh(x @ self.w + h @ self.u)
        return h


class FortyOperations(nn.Module):
    """20 matrix products and 20 activations."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(width, width) / 11 for _ in range(20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x
        for w in self.weights:
            h = torch.relu(h @ w)
        return h


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], float]] = {
    "ResNet-like, 17 convolutions, 4 x 3 x 32 x 32": (ResNetLike, lambda: torch.randn(4, 3, 32, 32), 1.3),
    "hand-written RNN, 100 steps": (HandRNN, lambda: torch.randn(100, 32, 64), 2.5),
    "MLP of 40 operations": (FortyOperations, lambda: torch.randn(64, 128), 2.5),
}


WHY_LIMIT = 5.0


def training_step(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    """Forward, loss, backward and an optimizer's step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()

    return step


def measure_why(seconds: float) -> list[Measured]:
    """A training step that is recorded and examined by `t.why()`, next to the plain step."""
    measured = []
    for name, (build, data, _) in CASES.items():
        step = training_step(build(), data())

        def examined(step: Callable[[], None] = step) -> Any:
            with wrt.record() as t:
                step()
            return t.why()

        row = f"why: {name.split(',')[0]}"
        measured.append(compare(row, examined, {"step": step}, limit=WHY_LIMIT, seconds=seconds))
        print(measured[-1], flush=True)
    return measured


def rivals(model: nn.Module, x: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """The same recorded by others, with their default settings, where they are installed."""
    found: dict[str, Callable[[], Any]] = {}
    try:
        import torchlens

        found["TorchLens"] = lambda: torchlens.trace(model, x)
    except ImportError:
        print("TorchLens is not installed: left out")
    try:
        from nnsight import NNsight

        wrapped = NNsight(model)

        def trace() -> Any:
            with wrapped.trace(x):
                kept = wrapped.output.save()
            return kept

        found["nnsight"] = trace
    except ImportError:
        print("nnsight is not installed: left out")
    return found


def measure(seconds: float) -> list[Measured]:
    """wrt on every model first: TorchLens replaces torch's functions for good once it has been used."""
    measured = []
    built = {name: (build(), data(), limit) for name, (build, data, limit) in CASES.items()}
    for name, (model, x, limit) in built.items():

        def recorded(model: nn.Module = model, x: torch.Tensor = x) -> Any:
            with wrt.record() as t:
                model(x)
            return t

        measured.append(compare(name, recorded, {"forward": lambda model=model, x=x: model(x)}, limit=limit, seconds=seconds))
        print(measured[-1], flush=True)
    for name, (model, x, _) in built.items():
        for rival, run in rivals(model, x).items():
            measured += _rival(f"{rival}: {name.split(',')[0]}", rival, run, model, x, min(seconds, 2.0))
    return measured


def _rival(
    name: str, rival: str, run: Callable[[], Any], model: nn.Module, x: torch.Tensor, seconds: float
) -> list[Measured]:
    try:
        against = compare(name, run, {"forward": lambda: model(x)}, seconds=seconds)
    except Exception as error:
        print(f"{name} failed: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return []
    against.seconds[rival] = against.seconds.pop("wrt")
    print(against, flush=True)
    return [against]


def memory() -> tuple[float, float]:
    """Megabytes of tensors that stay after one forward run: what autograd saves, and what a recording keeps alive."""
    model, x = ResNetLike(), torch.randn(4, 3, 32, 32)
    saved: dict[int, int] = {}

    def weigh(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
        y = model(x)
    plain = sum(saved.values())
    del y
    gc.collect()
    before = _alive()
    with wrt.record() as t:
        y = model(x)
    gc.collect()
    weights = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers(), x)}
    after = {memory: size for memory, size in _alive().items() if memory not in before or memory in weights}
    del t, y  # both were what is weighed
    return plain / 2**20, sum(after.values()) / 2**20


def _alive() -> dict[int, int]:
    """Every piece of tensor memory that Python can see, by address."""
    found: dict[int, int] = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, nn.Parameter) and thing.layout == torch.strided:
            found[thing.untyped_storage()._cdata] = thing.untyped_storage().nbytes()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    measured = measure_why(asked.seconds) + measure(asked.seconds)
    plain, recorded = memory()
    kept = f"autograd {plain:.1f} MB, recorded {recorded:.1f} MB, {recorded / plain:.2f}x (limit 1.20)"
    print(f"tensors that stay after a forward run: {kept}")
    print("saved", save("recording", measured, memory={"autograd": plain, "recorded": recorded}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
