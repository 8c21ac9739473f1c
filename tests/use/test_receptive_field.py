"""Receptive fields equal the closed form: each layer turns a span [a, b] of its output into one of its input."""

from dataclasses import dataclass, replace

import matplotlib
import pytest
import torch
from torch import nn

import wrt
from wrt.testing import Failed, assert_receptive_field

matplotlib.use("Agg")


@dataclass(frozen=True)
class Window:
    """A layer in one dimension, and its closed form."""

    kind: str
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    padding: int = 0

    def layer(self, inputs: int, outputs: int) -> nn.Module:
        k, s, p, r = self.kernel, self.stride, self.padding, self.dilation
        if self.kind == "conv":
            return nn.Conv2d(inputs, outputs, k, s, p, r)
        if self.kind == "depthwise":
            return nn.Conv2d(inputs, inputs, k, s, p, r, groups=inputs)
        if self.kind == "transposed":
            return nn.ConvTranspose2d(inputs, outputs, k, s, p, dilation=r)
        if self.kind == "max":
            return nn.MaxPool2d(k, s, p, r)
        if self.kind == "mean":
            return nn.AvgPool2d(k, s, p)
        return {"relu": nn.ReLU(), "norm": nn.BatchNorm2d(inputs), "up": nn.Upsample(scale_factor=2)}[self.kind]

    def before(self, first: int, last: int) -> tuple[int, int]:
        """Which inputs outputs first to last are made of."""
        if self.kind in ("relu", "norm"):
            return first, last
        if self.kind == "up":
            return first // 2, last // 2
        reach = self.dilation * (self.kernel - 1)
        if self.kind == "transposed":  # input i gives outputs i*s - p + r*[0, k)
            low = -((-(first + self.padding - reach)) // self.stride)  # rounded up
            return low, (last + self.padding) // self.stride
        return first * self.stride - self.padding, last * self.stride - self.padding + reach


R, N = Window("relu"), Window("norm")
STACKS: dict[str, list[Window]] = {
    "three 3x3": [Window("conv", 3), R, Window("conv", 3), R, Window("conv", 3)],
    "strides": [Window("conv", 5, 2), R, Window("conv", 3, 2), R, Window("conv", 3)],
    "dilations": [Window("conv", 3, 1, 1), R, Window("conv", 3, 1, 2), R, Window("conv", 3, 1, 4)],
    "max pools": [Window("conv", 3), R, Window("max", 2, 2), Window("conv", 3), R, Window("max", 3, 2)],
    "mean pools": [Window("conv", 3), Window("mean", 2, 2), Window("conv", 3), Window("mean", 2, 2)],
    "transposed": [Window("conv", 3, 2), R, Window("conv", 3), R, Window("transposed", 4, 2, 1, 1)],
    "padded": [Window("conv", 7, 2, 1, 3), N, R, Window("max", 3, 2, 1, 1), Window("conv", 3, 1, 1, 1)],
    "depthwise": [Window("depthwise", 3, 1, 2), R, Window("conv", 1), R, Window("depthwise", 5, 2)],
    "up and down": [Window("conv", 3, 2, 1, 1), R, Window("up"), Window("conv", 3, 1, 1, 1)],
    "five max pools": [Window("max", 3, 1)] * 5,
    "even kernels": [Window("conv", 4), R, Window("conv", 2, 2), R, Window("conv", 6, 1, 3)],
}


def build(windows: list[Window]) -> nn.Sequential:
    """One channel in, four after the first convolution."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    channels = 1
    for window in windows:
        if window.kind == "depthwise" and channels == 1:
            window = replace(window, kind="conv")
        layers.append(window.layer(channels, 4))
        channels = 4 if window.kind in ("conv", "transposed") else channels
    return nn.Sequential(*layers).eval()


def closed_form(windows: list[Window], at: int, size: int) -> tuple[int, int]:
    first = last = at
    for window in reversed(windows):
        first, last = window.before(first, last)
    return max(0, first), min(size, last + 1)


@pytest.mark.parametrize("name", STACKS)
def test_the_field_of_a_stack_equals_the_closed_form(name: str) -> None:
    model, x = build(STACKS[name]), torch.zeros(1, 1, 48, 48)
    with torch.no_grad():
        center = model(x).shape[-1] // 2
    for at in ((center, center), (center, 0), (1, center)):
        field = wrt.receptive_field(model, x, at)
        assert field.box == tuple(closed_form(STACKS[name], k, 48) for k in at), (name, at)
        assert all(e <= t for e, t in zip(field.effective, field.theoretical))


def test_a_residual_block_sees_the_union_of_its_branches() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow, self.wide = nn.Conv1d(2, 2, 3, padding=1), nn.Conv1d(2, 2, 9, padding=4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.narrow(x)) + self.wide(x)

    model = nn.Sequential(Block(), Block())
    assert wrt.receptive_field(model, torch.zeros(1, 2, 60), at=30).theoretical == (17,)


def test_each_layer_is_told_from_the_output_back() -> None:
    model = build(STACKS["three 3x3"])
    field = wrt.receptive_field(model, torch.zeros(1, 1, 20, 20), (5, 5))
    assert [one.size for one in field.layers if one.name in ("2", "0")] == [(3, 3), (5, 5)]


def test_a_value_inside_can_be_asked_about() -> None:
    model = build(STACKS["three 3x3"])
    assert wrt.receptive_field(model, torch.zeros(1, 1, 20, 20), (5, 5), of="2").theoretical == (5, 5)


def test_the_assertion_names_the_layers() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 1, 3, dilation=2))
    x = torch.zeros(1, 1, 20, 20)
    assert assert_receptive_field(model, x, at=(4, 4), size=7)
    with pytest.raises(Failed, match="can see 7 x 7 of the input, not 5 x 5"):
        assert_receptive_field(model, x, at=(4, 4), size=5)


def test_the_picture_takes_and_returns_axes() -> None:
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    assert wrt.receptive_field(nn.Conv2d(1, 1, 3), torch.zeros(1, 1, 9, 9), (3, 3)).plot(ax=ax) is ax
    pyplot.close("all")
