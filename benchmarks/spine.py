"""What the spine costs next to hand-written code: one element, and dense Jacobians of three shapes.

    python -m benchmarks.spine [--device cuda] [--seconds 3]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.timing import Measured, compare, save
from wrt import d

SHAPES = ((256, 256), (16, 1024), (1024, 16))  # m x n


def network(n: int, m: int, device: str) -> nn.Module:
    """Four linear layers with tanh between them."""
    torch.manual_seed(0)
    wide = 256
    return nn.Sequential(
        nn.Linear(n, wide), nn.Tanh(), nn.Linear(wide, wide), nn.Tanh(), nn.Linear(wide, wide), nn.Tanh(), nn.Linear(wide, m)
    ).to(device)


def image_network(device: str) -> nn.Module:
    """A small convolutional network for 3 x 32 x 32 pictures."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(8 * 16 * 16, 10),
    ).to(device)


def one_element(device: str, **how: Any) -> list[Measured]:
    """d(y)[i] / d(x) against autograd.grad(y[i], x), with and without the forward run."""
    model = image_network(device)
    x = torch.randn(1, 3, 32, 32, device=device, requires_grad=True)
    y = model(x)

    def forward_and_hand() -> Any:
        y = model(x)
        return torch.autograd.grad(y[0, 3], x)[0]

    def forward_and_wrt() -> Any:
        y = model(x)
        return (d(y)[0, 3] / d(x)).value

    assert torch.equal(forward_and_hand(), forward_and_wrt())
    by_hand = {"hand-written grad": lambda: torch.autograd.grad(y[0, 3], x, retain_graph=True)[0]}
    return [
        compare("one element, with the forward run", forward_and_wrt, {"hand-written grad": forward_and_hand}, limit=1.10, **how),
        compare("one element, y given", lambda: (d(y)[0, 3] / d(x)).value, by_hand, limit=1.25, **how),
    ]


def dense(m: int, n: int, device: str, **how: Any) -> Measured:
    """A dense Jacobian, forward run included, against torch's own ways at their best settings."""
    model = network(n, m, device)
    x = torch.randn(n, device=device)

    def ours() -> Any:
        leaf = x.detach().requires_grad_()
        return (d(model(leaf)) / d(leaf)).value

    rivals: dict[str, Callable[[], Any]] = {
        f"jacrev(chunk={size})": lambda size=size: torch.func.jacrev(model, chunk_size=size)(x) for size in (None, 64, 128)
    }
    rivals["jacfwd"] = lambda: torch.func.jacfwd(model)(x)
    rivals["functional.jacobian"] = lambda: torch.autograd.functional.jacobian(model, x, vectorize=True)
    rivals["functional.jacobian, forward"] = lambda: torch.autograd.functional.jacobian(
        model, x, vectorize=True, strategy="forward-mode"
    )
    expected = torch.func.jacrev(model)(x)
    assert (ours() - expected).abs().max() <= 1e-5 * expected.abs().max()
    return compare(f"dense Jacobian {m} x {n}", ours, rivals, limit=1.0, **how)


def main(arguments: list[str]) -> int:
    """Print every ratio, wins and losses alike; 0 unless a limit was missed with --strict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--strict", action="store_true", help="fail where a limit is missed")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    how: dict[str, Any] = {"seconds": chosen.seconds}
    if chosen.device == "cuda":
        how["synchronize"] = torch.cuda.synchronize
    measured = one_element(chosen.device, **how)
    measured += [dense(m, n, chosen.device, **how) for m, n in SHAPES]
    where = torch.cuda.get_device_name() if chosen.device == "cuda" else "CPU, one thread"
    print(f"spine: torch {torch.__version__}, {where}")
    for one in measured:
        print(one)
    print(f"saved {save(f'spine_{chosen.device}', measured, torch=torch.__version__, device=where).name}")
    return 1 if chosen.strict and not all(one.met for one in measured) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
