"""The questions in PyTorch. Every `asked(...)` line is checked by the tests to say what it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import wrt
from wrt import d
from wrt._cli.demo.question import Evidence, Numbers, Shown, asked, slopes
from wrt.errors import NotRecorded

BY_DIFFERENCES = "central differences"
ROUGH = 1e-7  # what central differences can promise


def leaf(*shape: int, seed: int = 0) -> torch.Tensor:
    """A float64 tensor that requires grad, from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def plain(tensor: torch.Tensor) -> Numbers:
    numbers: Numbers = tensor.detach().numpy()
    return numbers


# ------------------------------------------------------------------ 1


def element_used_twice() -> Iterator[Evidence]:
    x = leaf(5)
    y = 2 * x[2] + x.sum()
    expected = slopes(lambda x: 2 * x[2] + x.sum(), plain(x))
    yield asked("d(y) / d(x)[2]", d(y) / d(x)[2], expected[2], BY_DIFFERENCES, tolerance=ROUGH)


class Pick(torch.autograd.Function):
    """One element of a tensor, by a custom Function: the index is an int, so it is kept on ctx itself."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, index: int) -> torch.Tensor:
        ctx.index, ctx.shape = index, x.shape
        return x[index].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        gradient = grads[0].new_zeros(ctx.shape)
        gradient[ctx.index] = grads[0]
        return gradient, None


class Careless(Pick):
    """The same, but with the index where only tensors may be kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, index: int) -> torch.Tensor:
        ctx.save_for_backward(x, index)
        return x[index].clone()


def custom_function() -> Iterator[Evidence]:
    x = leaf(5)
    expected = slopes(lambda x: 3 * x[2] + x.sum(), plain(x))
    y = 3 * x[2] + x.sum()
    yield asked("d(y) / d(x)[2]", d(y) / d(x)[2], expected[2], BY_DIFFERENCES, tolerance=ROUGH)
    y = 3 * Pick.apply(x, 2) + x.sum()
    yield asked("d(y) / d(x)", d(y) / d(x), expected, BY_DIFFERENCES, tolerance=ROUGH)
    try:
        Careless.apply(x, 2)
        yield Shown("save_for_backward took an int", False)
    except TypeError as error:
        yield Shown(f"with the index in save_for_backward, torch says: {error}", True)


def hidden_in_a_sum() -> Iterator[Evidence]:
    x, w = leaf(5), leaf(5, seed=1)
    for part in (slice(None), slice(2, 3), slice(None)):
        (x * w)[part].sum().backward()
    assert x.grad is not None
    before = x.grad.clone()
    y = (x * w).sum()
    yield asked("d(y) / d(x)[2]", d(y) / d(x)[2], plain(w)[2], "w[2], by hand")
    held = x.grad[2].item()
    tripled = bool(np.isclose(held, 3 * w[2].item()))
    yield Shown(f"x.grad[2] holds {held:.6g}, three times that, from the earlier backwards", tripled)
    yield Shown("and is the same after the question as before it", torch.equal(x.grad, before))


def element_of_the_same_tensor() -> Iterator[Evidence]:
    x = leaf(10)
    with wrt.record() as t:
        h = torch.zeros(10, dtype=torch.float64)
        h[0] = x[0]
        for k in range(1, 10):
            h[k] = 0.9 * torch.sin(h[k - 1]) + x[k]
    expected = 1.0
    for k in range(3, 9):
        expected *= 0.9 * np.cos(h[k].item())
    yield asked("d(h)[9] / d(h)[3]", d(h)[9] / d(h)[3], expected, "the chain rule in a plain loop")
    yield asked("d(h)[3] / d(h)[9]", d(h)[3] / d(h)[9], 0.0, "h[3] was there first")
    writes = len(t["h"].writes)
    yield Shown(f"the recording saw {writes} writes into h, and knows which one each element is from", writes == 10)


# ------------------------------------------------------------------ 2


def plain_index() -> Iterator[Evidence]:
    x = leaf(5)
    y = 2 * x[0]
    yield asked("d(y) / d(x)", d(y) / d(x), [2, 0, 0, 0, 0], "by hand")


def gathered() -> Iterator[Evidence]:
    x = leaf(5)
    y = 2 * torch.gather(x, 0, torch.tensor([0]))
    yield asked("d(y)[0] / d(x)", d(y)[0] / d(x), [2, 0, 0, 0, 0], "by hand")


def masked() -> Iterator[Evidence]:
    x = leaf(5)
    mask = torch.tensor([True, False, False, False, False])
    y = 2 * x[mask]
    yield asked("d(y)[0] / d(x)", d(y)[0] / d(x), [2, 0, 0, 0, 0], "by hand")
    copy = torch.masked_select(x, mask)
    y = 2 * copy
    yield asked("d(y)[0] / d(x)", d(y)[0] / d(x), [2, 0, 0, 0, 0], "by hand")
    apart = copy.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    yield Shown("what masked_select gives lies in memory of its own", apart)
    whole = 2 * x
    yield asked("d(whole)[mask] / d(x)", d(whole)[mask] / d(x), [[2, 0, 0, 0, 0]], "by hand")


def does_not_require_grad() -> Iterator[Evidence]:
    x = leaf(5).detach()
    y = 2 * x[0]
    try:
        y.backward()
    except RuntimeError as error:
        yield Shown(f"torch says: {error}", "element 0 of tensors does not require grad" in str(error))
    try:
        d(y) / d(x)
    except NotRecorded as error:
        yield Shown(f"wrt says:\n{error}", "does not require grad" in error.what and "requires_grad_()" in error.write)
    x.requires_grad_()
    y = 2 * x[0]
    yield asked("d(y) / d(x)[0]", d(y) / d(x)[0], 2.0, "by hand, once x requires grad")


# ------------------------------------------------------------------ 3


def element_of_itself() -> Iterator[Evidence]:
    x = leaf(3, 3)
    expected = np.zeros((3, 3))
    expected[1, 2] = 1
    yield asked("d(x)[1, 2] / d(x)", d(x)[1, 2] / d(x), expected, "a one at [1, 2]")
    y = x * 1
    yield asked("d(y)[1, 2] / d(x)", d(y)[1, 2] / d(x), expected, "a one at [1, 2]")


def element_of_a_product() -> Iterator[Evidence]:
    x, w = leaf(2, 3), leaf(3, 2, seed=1)
    z = x @ w
    expected = slopes(lambda x: sum(x[0, k] * plain(w)[k, 0] for k in range(3)), plain(x))
    yield asked("d(z)[0, 0] / d(x)", d(z)[0, 0] / d(x), expected, BY_DIFFERENCES, tolerance=ROUGH)


def total() -> Iterator[Evidence]:
    x = leaf(2, 3)
    s = x.sum()
    yield asked("d(s) / d(x)", d(s) / d(x), np.ones((2, 3)), "ones, by hand")
    yield asked("d(s) / d(x)[1, 0]", d(s) / d(x)[1, 0], 1.0, "one, by hand")


def pixel_to_feature() -> Iterator[Evidence]:
    image, kernel = leaf(1, 3, 8, 8), leaf(4, 3, 3, 3, seed=1)
    m = F.conv2d(image, kernel)
    weight = plain(kernel)[2, 1, 0, 2]  # pixel (4, 7) lies at (0, 2) of the window that starts at (4, 5)
    yield asked("d(m)[0, 2, 4, 5] / d(image)[0, 1, 4, 7]", d(m)[0, 2, 4, 5] / d(image)[0, 1, 4, 7], weight, "weight")
    yield asked("d(m)[0, 2, 4, 5] / d(image)[0, 1, 0, 0]", d(m)[0, 2, 4, 5] / d(image)[0, 1, 0, 0], 0.0, "out of reach")


# ------------------------------------------------------------------ 4


def latent() -> Iterator[Evidence]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder, decoder = nn.Conv2d(3, 16, 3).double(), nn.Linear(16, 10).double()
    image = leaf(1, 3, 12, 12)
    z = encoder(image).mean(dim=[2, 3]) * 2
    loss = decoder(z).sum()
    expected = plain(decoder.weight).sum(axis=0)[None]  # every output counts once
    yield asked("d(loss) / d(z)", d(loss) / d(z), expected, "column sums of the decoder's weight")
    loss.backward(retain_graph=True)
    yield asked("d(loss) / d(z)", d(loss) / d(z), expected, "the same after backward")


class SmallNet(nn.Module):
    """Two convolutions and a linear layer; `tail` is what comes after the feature maps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3), nn.Linear(6 * 6 * 6, 10)

    def tail(self, maps: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.fc(maps.flatten(1))
        return scores

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        maps = F.relu(self.conv2(F.relu(self.conv1(image))))
        return self.tail(maps), maps


def feature_maps() -> Iterator[Evidence]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = SmallNet().double()
    label = torch.tensor([7])
    scores, maps = model(leaf(1, 3, 10, 10))
    loss = F.cross_entropy(scores, label)

    def again(numbers: Numbers) -> float:
        with torch.no_grad():
            return float(F.cross_entropy(model.tail(torch.from_numpy(numbers)), label))

    expected = slopes(again, plain(maps))
    yield asked("d(loss) / d(maps)", d(loss) / d(maps), expected, BY_DIFFERENCES, tolerance=ROUGH)
    yield asked("d(loss) / d(maps)[0, 3]", d(loss) / d(maps)[0, 3], expected[0, 3], "one map of them", tolerance=ROUGH)


class Dense(nn.Module):
    """784 inputs, two hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, 128), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = F.relu(self.fc2(F.relu(self.fc1(x))))
        return hidden


def steer() -> Iterator[Evidence]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = Dense().double()
    x = leaf(1, 784, seed=1)
    hidden = model(x)
    alive = plain(model.fc1(x))[0] > 0
    expected = (plain(model.fc2.weight)[10] * alive) @ plain(model.fc1.weight)  # the chain rule, layer by layer
    yield asked("d(hidden)[0, 10] / d(x)", d(hidden)[0, 10] / d(x), expected[None], "the weights multiplied out")
    step = 0.003
    slope = (d(hidden)[0, 10] / d(x)).value
    before = hidden[0, 10].item()
    after = model(x + step * slope.sign())[0, 10].item()
    moved = f"hidden[0, 10] before {before:.4f}, after a step of {step} along the sign {after:.4f}"
    yield Shown(moved, after > before > 0)
    target = torch.zeros_like(hidden)
    target[0, 10] = 1
    (climb,) = torch.autograd.grad(F.mse_loss(hidden, target), x)
    away = model(x + step * climb.sign())[0, 10].item()
    yield Shown(f"a step that climbs the distance to the target 1 leads to {away:.4f}", abs(1 - away) > abs(1 - before))


# ------------------------------------------------------------------ 5


def itself() -> Iterator[Evidence]:
    y = leaf(2, 2) * 3
    yield asked("d(y) / d(y)", d(y) / d(y), np.eye(4).reshape(2, 2, 2, 2), "the identity")
    total = y.sum()
    yield asked("d(total) / d(y)", d(total) / d(y), np.ones((2, 2)), "ones: the gradient of the sum")


def square() -> Iterator[Evidence]:
    x = leaf(4)
    y = x**2
    yield asked("d(y) / d(x)", d(y) / d(x), np.diag(2 * plain(x)), "diag(2x), by hand")
    yield asked("(d(y) / d(x)).diagonal()", (d(y) / d(x)).diagonal(), 2 * plain(x), "2x, by hand")


def jacobian() -> Iterator[Evidence]:
    x, w = leaf(6), leaf(6, 8, seed=1)
    y = torch.tanh(x @ w) * x[0]
    rows = [torch.autograd.grad(y[i], x, retain_graph=True)[0] for i in range(8)]
    expected = plain(torch.stack(rows))
    yield asked("d(y) / d(x)", d(y) / d(x), expected, "a loop of torch.autograd.grad", tolerance=1e-12)
    yield asked("d(y)[2:4] / d(x)[::2]", d(y)[2:4] / d(x)[::2], expected[2:4, ::2], "a block of that", tolerance=1e-12)
    differences = slopes(lambda x: np.tanh(x @ plain(w)) * x[0], plain(x))
    yield asked("d(y) / d(x)", d(y) / d(x), differences, BY_DIFFERENCES, tolerance=ROUGH)
