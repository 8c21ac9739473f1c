"""Questions whose peak memory is measured: each makes y and x, and says what is asked of J."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Made = tuple[Any, Any]


@dataclass(frozen=True)
class Question:
    """`make(size)` gives y and x; `ask` is what is done with J; `size` is what is measured, `small` warms up."""

    name: str
    make: Callable[[Any, int], Made]
    size: int
    small: int
    framework: str = "torch"
    on_gpu: tuple[int, ...] = ()
    """The sizes on a GPU, answers of 64 MiB to 4 GiB; none leaves the question out there."""
    order: int = 1


def dense_rows(device: Any, n: int) -> Made:
    """As many rows as columns, every entry nonzero: swept by pulls."""
    import torch

    x = torch.randn(n, device=device).requires_grad_()
    return torch.sin(x * torch.tanh(x).sum() + x), x


def tall(device: Any, n: int) -> Made:
    """Sixteen rows for each column: swept by pushes."""
    import torch

    x = torch.randn(n, device=device).requires_grad_()
    scales = torch.linspace(1, 2, 16, device=device)[:, None]
    return torch.sin(x * scales + torch.tanh(x).sum()).reshape(-1), x


def tall_picture(device: Any, n: int) -> Made:
    """Columns of a map whose y and x have several axes."""
    import torch

    x = torch.randn(4, n // 4, device=device).requires_grad_()
    scales = torch.linspace(1, 2, 16, device=device)[:, None]
    return torch.sin(x.reshape(-1) * scales + torch.tanh(x).sum()).reshape(16, n // 2, 2), x


def wide(device: Any, n: int) -> Made:
    import torch

    x = torch.randn(16, n, device=device).requires_grad_()
    return torch.sin(x.sum(0) * torch.tanh(x).sum()), x


def autoencoder(device: Any, n: int) -> Made:
    """Through a waist of 32 numbers: two factors and their product."""
    import torch

    down = torch.randn(32, n, device=device) / n**0.5
    up = torch.randn(n, 32, device=device)
    x = torch.randn(n, device=device).requires_grad_()
    return torch.sin(up @ torch.tanh(down @ x)), x


def stencil(device: Any, n: int) -> Made:
    """Three colors, scattered into a dense answer."""
    import torch

    x = torch.randn(n, device=device).requires_grad_()
    return x**2 - torch.roll(x, 1) * torch.roll(x, -1), x


def batch(device: Any, n: int) -> Made:
    """Samples of 32 numbers that do not mix."""
    import torch

    weights = torch.randn(32, 32, device=device)
    x = torch.randn(n // 32, 32, device=device).requires_grad_()
    return torch.tanh(x @ weights) @ weights, x


def convolutions(device: Any, side: int) -> Made:
    """Hidden tensors many times as large as x and y."""
    import torch

    layers = torch.nn.Sequential(
        torch.nn.Conv2d(1, 24, 3, padding=1), torch.nn.Tanh(), torch.nn.Conv2d(24, 24, 3, padding=1), torch.nn.Tanh(),
        torch.nn.Conv2d(24, 1, 3, padding=1),
    ).to(device)  # fmt: skip
    x = torch.randn(1, 1, side, side, device=device).requires_grad_()
    return layers(x).sum((2,), keepdim=True).tanh() * layers(x), x


def double_precision(device: Any, n: int) -> Made:
    import torch

    x = torch.randn(n, device=device, dtype=torch.float64).requires_grad_()
    return torch.sin(x * torch.tanh(x).sum() + x), x


def loss(device: Any, n: int) -> Made:
    """One number, to be differentiated twice."""
    import torch

    x = torch.randn(n, device=device).requires_grad_()
    return (torch.sin(x) * x.sum() ** 2).sum(), x


def jax_dense(device: Any, n: int) -> Made:
    import jax.numpy as jnp

    import wrt

    t = wrt.trace(lambda x: jnp.sin(x * jnp.tanh(x).sum() + x), jnp.linspace(-1, 1, n))
    return t.output, t.inputs[0]


def tensorflow_dense(device: Any, n: int) -> Made:
    import tensorflow as tf

    import wrt

    t = wrt.trace(lambda x: tf.sin(x * tf.reduce_sum(tf.tanh(x)) + x), tf.linspace(-1.0, 1.0, n))
    return t.output, t.inputs[0]


QUESTIONS = [
    Question("dense, by rows", dense_rows, 8192, 128, on_gpu=(4096, 8192, 16384, 32768)),
    Question("dense, double precision", double_precision, 6000, 128, on_gpu=(4096, 8192, 16384)),
    Question("tall, by columns", tall, 2048, 96, on_gpu=(2048, 4096, 8192)),
    Question("tall, axes to reorder", tall_picture, 2048, 96, on_gpu=(2048, 4096, 8192)),
    Question("wide, by rows", wide, 2048, 96, on_gpu=(2048, 4096, 8192)),
    Question("through a waist", autoencoder, 8192, 160, on_gpu=(4096, 8192, 16384, 32768)),
    Question("a stencil, dense", stencil, 8192, 160, on_gpu=(4096, 8192, 16384, 32768)),
    Question("a batch, dense", batch, 8192, 160, on_gpu=(4096, 8192, 16384, 32768)),
    Question("convolutions", convolutions, 80, 12, on_gpu=(64, 96, 128)),
    Question("a second derivative", loss, 8192, 128, order=2),
    Question("JAX, dense", jax_dense, 8192, 128, framework="jax"),
    Question("TensorFlow, dense", tensorflow_dense, 8192, 128, framework="tensorflow"),
]
