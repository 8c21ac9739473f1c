"""Every kind of graph that PyTorch makes, asked in every way: the row loop is right, nothing changes."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import wrt
from tests._snapshot import unchanged
from tests.torch._rows import agree, row_loop
from wrt import d

DEVICES = ["cpu", pytest.param("cuda", marks=[
    pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")])]


class Cube(torch.autograd.Function):
    """The old way: forward with a context."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * u


class CubeWithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * u


class NumpyCube(torch.autograd.Function):
    """NumPy on the way forth and back: no vmap can enter it, no second backward can differentiate it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.x = x.detach().cpu().numpy()
        return torch.from_numpy(ctx.x**3).to(x.device)

    @staticmethod
    def backward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(3 * ctx.x**2 * u.detach().cpu().numpy()).to(u.device)


class OnceCube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * u


class MyCube(torch.autograd.Function):
    """A backward that is not the derivative: the answer is the gradient you train with."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def backward(ctx: Any, u: torch.Tensor) -> torch.Tensor:
        return 1000 * u


def input_(*shape: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + 7)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device=device, dtype=dtype).requires_grad_()


def layers(*made: nn.Module, device: str = "cpu") -> nn.Module:
    for module in made:
        module.to(device=device, dtype=torch.float64)
    return made[0] if len(made) == 1 else nn.Sequential(*made)


def branches(function: Any) -> Callable[[str], tuple[torch.Tensor, torch.Tensor]]:
    """x goes through the function on one branch and through plain operations on another."""

    def make(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        x = input_(3, device=device)
        both = function.apply(x) + torch.sin(x)
        return torch.stack([both, both.flip(0), both**2]).reshape(9), x

    return make


def attention(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    module = layers(nn.MultiheadAttention(8, 2, batch_first=True), device=device)
    x = input_(1, 4, 8, device=device)
    return module(x, x, x)[0], x


def sdpa(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = input_(1, 2, 4, 4, device=device)
    return nn.functional.scaled_dot_product_attention(x, x * 2, x + 1, is_causal=True), x


def lstm(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = input_(2, 3, 3, device=device)
    return layers(nn.LSTM(3, 4, 2, batch_first=True), device=device)(x)[0], x


def checkpointed(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    module = layers(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 4), device=device)
    x = input_(2, 3, device=device)
    return checkpoint(module, x, use_reentrant=False), x


def weight_norm(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    module = nn.utils.parametrizations.weight_norm(layers(nn.Linear(3, 4), device=device))
    return torch.tanh(module(input_(2, 3, device=device))), module.parametrizations.weight.original1


def compiled(backend: str) -> Callable[[str], tuple[torch.Tensor, torch.Tensor]]:
    def make(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        with suppress(ImportError):  # where tqdm is installed, compiling starts its watchdog, a thread that would stay
            import tqdm

            tqdm.tqdm.monitor_interval = 0
        torch.manual_seed(1)
        module = layers(nn.Linear(3, 4), nn.Tanh(), device=device)
        torch._dynamo.reset()
        x = input_(2, 3, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.compile(module, backend=backend)(x), x

    return make


def embedding(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    module = layers(nn.Embedding(6, 3, sparse=True), device=device)
    return module(torch.tensor([1, 2, 1], device=device)) ** 2, module.weight


def normalized(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    module = layers(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), device=device)
    x = input_(2, 2, 6, 6, device=device)
    return module(x), x


def transposed(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = input_(4, 3, device=device).t()
    return torch.exp(x) @ x.t(), x


def expanded(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = input_(3, 1, device=device).expand(3, 4)
    return x.cumsum(1) ** 2, x


def overlapping(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = input_(6, device=device).unfold(0, 3, 1)
    return torch.sin(x).sum(1), x


def written(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = input_(4, device=device)
    h = x * 2
    h[1:3] = h[:2].clone().sin()
    h.mul_(x)
    return h, x


GRAPHS: dict[str, Callable[[str], tuple[torch.Tensor, torch.Tensor]]] = {
    "custom Function": branches(Cube),
    "custom Function with setup_context": branches(CubeWithSetup),
    "custom Function with NumPy inside": branches(NumpyCube),
    "once_differentiable on one branch": branches(OnceCube),
    "a backward that is not the derivative": branches(MyCube),
    "checkpoint": checkpointed,
    "LSTM": lstm,
    "MultiheadAttention": attention,
    "scaled dot product attention": sdpa,
    "weight_norm": weight_norm,
    "torch.compile eager": compiled("eager"),
    "torch.compile aot_eager": compiled("aot_eager"),
    "sparse embedding": embedding,
    "convolution and batch norm": normalized,
    "non-contiguous": transposed,
    "expanded": expanded,
    "overlapping view": overlapping,
    "written in place": written,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS.keys())
def test_every_way_of_asking_agrees_with_the_row_loop(make: Any, device: str) -> None:
    y, x = make(device)
    expected = row_loop(y, x)
    flat = expected.reshape(y.numel(), x.numel())
    middle = tuple(size // 2 for size in y.shape)
    generator = torch.Generator().manual_seed(3)
    u = torch.randn(y.shape, generator=generator, dtype=y.dtype).to(device)
    v = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(device)
    with unchanged(x, y):
        agree((d(y) / d(x)).value, expected)
        agree((d(y)[middle] / d(x)).value, expected[middle])
        agree((d(y)[middle] / d(x)[..., -1]).value, expected[middle][..., -1])
        agree((d(y) / d(x)[..., 0]).value, expected[..., 0])
        agree(u @ (d(y) / d(x)), (u.reshape(-1) @ flat).reshape(x.shape), ulps=512)
        agree((d(y) / d(x)) @ v, (flat @ v.reshape(-1)).reshape(y.shape), ulps=512)
        np.testing.assert_allclose((d(y) / d(x)).sparse().toarray(), flat.cpu().numpy(), rtol=1e-12, atol=1e-12)
        for way in ("pull", "push"):
            with wrt.options(way=way):
                agree((d(y) / d(x)).value, expected)


def test_a_once_differentiable_branch_is_never_dropped_silently() -> None:
    y, x = branches(OnceCube)("cpu")
    with wrt.options(way="push"):
        J = d(y) / d(x)
        agree(J.value, row_loop(y, x))
    assert any("once_differentiable" in words for words in J.explain().fallbacks)
    assert J.certificate


def test_numpy_in_a_backward_falls_back_to_one_row_at_a_time_and_says_so() -> None:
    y, x = branches(NumpyCube)("cpu")
    with wrt.options(way="pull"):
        J = d(y) / d(x)
        agree(J.value, row_loop(y, x))
    assert {step.method for step in J.explain().steps} == {"one by one"}
    assert [step.passes for step in J.explain().steps] == [9, 1]  # the rows, and the pass that proves them
    assert J.explain().fallbacks[0].startswith("vmap: ")


def test_a_wrong_batching_rule_is_caught_by_the_certificate() -> None:
    """torch's vmap of the backward of cdist is wrong; one row at a time it is right."""
    a, b = input_(3, 4), input_(5, 4)
    y = torch.cdist(a, b)
    with wrt.options(way="pull"):
        J = d(y) / d(a)
        agree(J.value, row_loop(y, a), ulps=1e4)
    assert J.certificate
    settled = "swept alone" in str(J.certificate)
    assert settled or any("independent" in words for words in J.explain().fallbacks)


@pytest.mark.parametrize("way", ["pull", "push"])
def test_a_product_scattered_into_place(way: str) -> None:
    """torch's forward mode of scatter_reduce(prod) is all zeros; rows and double backward are right."""
    x = input_(6)
    y = torch.ones(3, dtype=torch.float64).scatter_reduce(0, torch.tensor([0, 1, 2, 0, 1, 1]), x, "prod")
    with wrt.options(way=way):
        J = d(y) / d(x)
        agree(J.value, row_loop(y, x))
    assert J.certificate


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_stays_half(dtype: torch.dtype, device: str) -> None:
    x = input_(3, 4, dtype=dtype, device=device)
    y = torch.tanh(x * 2).sum(1)
    with unchanged(x, y):
        J = d(y) / d(x)
        agree(J.value, row_loop(y, x), ulps=4)
        assert J.value.dtype == dtype
        assert J.numpy().shape == (3, 3, 4)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_is_neither_needed_nor_disturbed(device: str) -> None:
    torch.manual_seed(1)
    module = nn.Linear(3, 4).to(device)
    x = input_(2, 3, dtype=torch.float32, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = torch.tanh(module(x))
        with unchanged(x, y, module):
            inside = (d(y) / d(x)).value
            assert torch.is_autocast_enabled(device)
    outside = (d(y) / d(x)).value
    expected = row_loop(y, x)
    agree(outside, expected, ulps=2**17)  # bfloat16 has 2**16 times float32's epsilon
    agree(inside, expected, ulps=2**17)


def test_dropout_keeps_the_mask_of_the_run() -> None:
    x = input_(50)
    y = nn.functional.dropout(x, 0.5) ** 2
    agree((d(y) / d(x)).value, torch.diag(2 * y.detach() / x.detach()))


def test_a_real_question_about_an_overlapping_view_taken_afterwards() -> None:
    x = input_(6)
    y = torch.sin(x)
    windows = x.unfold(0, 3, 1)
    expected = torch.diag(x.detach().cos())[:, torch.arange(4)[:, None] + torch.arange(3)]
    agree((d(y) / d(windows)).value, expected)
