"""Saliency next to Captum: the same numbers, in the same time or less, on three models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.timing import compare

LIMIT = 1.00  # not slower means not slower; a few percent either way may be the machine


def cases() -> dict[str, tuple[Any, Any]]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    maps = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten()]
    deep = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.GELU())]
    return {
        "mlp": (nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)), torch.randn(4, 12)),
        "convolutional": (nn.Sequential(*maps, nn.Linear(288, 5)), torch.randn(2, 3, 16, 16)),
        "deep": (nn.Sequential(*deep, nn.Linear(64, 5)), torch.randn(8, 64)),
    }


def questions(name: str, model: Any, x: Any) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """What is asked -> (by wrt, by Captum)."""
    import torch
    from captum import attr

    from wrt import saliency

    of, followed, zero = (slice(None), 3), x.clone().requires_grad_(), torch.zeros_like(x)
    plain, times, ways = attr.Saliency(model), attr.InputXGradient(model), attr.IntegratedGradients(model)
    noisy = attr.NoiseTunnel(plain)
    told: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "gradient": (lambda: saliency.gradient(model, x, of), lambda: plain.attribute(followed, 3, abs=False)),
        "gradient x input": (lambda: saliency.gradient_times_input(model, x, of), lambda: times.attribute(followed, 3)),
        "integrated gradients": (
            lambda: saliency.integrated_gradients(model, x, of),
            lambda: ways.attribute(x, zero, 3, n_steps=50),
        ),
        "SmoothGrad": (
            lambda: saliency.smooth_grad(model, x, of, samples=25),
            lambda: noisy.attribute(
                followed, nt_type="smoothgrad", nt_samples=25, stdevs=0.15, target=3, abs=False
            ),
        ),
    }
    if name == "convolutional":
        cam = attr.LayerGradCam(model, model[3])
        told["Grad-CAM"] = (
            lambda: saliency.grad_cam(model, x, of, layer="3"),
            lambda: cam.attribute(x, 3, relu_attributions=True),
        )
    return told


def main(arguments: list[str]) -> int:
    missed = 0
    for name, (model, x) in cases().items():
        for asked, (ours, theirs) in questions(name, model, x).items():
            measured = compare(f"{name}: {asked}", ours, {"captum": theirs}, limit=LIMIT, seconds=1.0)
            print(measured, flush=True)
            missed += not measured.met
    print(f"{missed} slower than Captum" if missed else "none slower than Captum")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
