"""Questions people ask about gradients of elements, in PyTorch: run `python examples/in_pytorch.py`."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import wrt
from wrt import d
from wrt.errors import NotRecorded

torch.manual_seed(0)


def check(question: str, answer: object, expected: object, tolerance: float = 1e-9) -> None:
    """Print an answer, and stop where it is not what was found another way."""
    np.testing.assert_allclose(np.asarray(answer), np.asarray(expected), rtol=tolerance, atol=tolerance)
    print(f"{question:55}", np.array2string(np.asarray(answer), precision=4, threshold=8, edgeitems=1).replace("\n", ""))


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


# ---- one element of a tensor, used to compute something else ----

x = leaf(5)
y = 2 * x[2] + x.sum()
check("y = 2 x[2] + sum(x):  d(y) / d(x)[2]", d(y) / d(x)[2], 3.0)


class Pick(torch.autograd.Function):
    """One element by a custom Function, which nobody needs for this. The index is an int: it is kept on ctx itself."""

    @staticmethod
    def forward(ctx, x, index):
        ctx.index, ctx.shape = index, x.shape
        return x[index].clone()

    @staticmethod
    def backward(ctx, gradient):
        whole = gradient.new_zeros(ctx.shape)
        whole[ctx.index] = gradient
        return whole, None


class Careless(Pick):
    """The Function that is usually shown, with the index where only tensors may be kept."""

    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(x, index)
        return x[index].clone()


y = 3 * Pick.apply(x, 2) + x.sum()
check("by a custom Function:  d(y) / d(x)", d(y) / d(x), [1, 1, 4, 1, 1])
try:
    Careless.apply(x, 2)
except TypeError as error:
    print("  with the index in save_for_backward torch says:", error)

# Every backward adds to .grad; a question to wrt neither reads nor writes it.
w = leaf(5)
for part in (slice(None), slice(2, 3), slice(None)):
    (x * w)[part].sum().backward()
before = x.grad.clone()
y = (x * w).sum()
check("a slope hidden in a vectorized sum:  d(y) / d(x)[2]", d(y) / d(x)[2], w[2].detach())
check("  x.grad[2] holds three times that, after three backwards", x.grad[2], 3 * w[2].detach())
assert torch.equal(x.grad, before)

# An element that another element of the same tensor was computed from.
x = leaf(10)
with wrt.record() as t:
    h = torch.zeros(10, dtype=torch.float64)
    h[0] = x[0]
    for k in range(1, 10):
        h[k] = 0.9 * torch.sin(h[k - 1]) + x[k]
chain = np.prod([0.9 * np.cos(h[k].item()) for k in range(3, 9)])
check("h filled in place:  d(h)[9] / d(h)[3]", d(h)[9] / d(h)[3], chain)
check("  h[3] was there first:  d(h)[3] / d(h)[9]", d(h)[3] / d(h)[9], 0.0)
print(f"  the recording saw {len(t['h'].writes)} writes into h, and knows which one each element is from")

# ---- a gradient for element 0: every way of selecting says the same ----

x = leaf(5)
mask = torch.tensor([True, False, False, False, False])
first = [2, 0, 0, 0, 0]
y = 2 * x[0]
check("by an index:  d(y) / d(x)", d(y) / d(x), first)
y = 2 * torch.gather(x, 0, torch.tensor([0]))
check("by gather:  d(y)[0] / d(x)", d(y)[0] / d(x), first)
y = 2 * torch.masked_select(x, mask)  # a copy, not a view: the gradient flows through it
check("by a mask:  d(y)[0] / d(x)", d(y)[0] / d(x), first)
y = 2 * x
check("by a mask in the question:  d(y)[mask] / d(x)", d(y)[mask] / d(x), [first])

# "element 0 of tensors does not require grad": element 0 is the first tensor given to backward, not x[0].
x = x.detach()
y = 2 * x[0]
try:
    d(y) / d(x)
except NotRecorded as error:
    print(f"  an x that does not require grad: {error}".replace("\n", "\n  "))

# ---- elements of products and feature maps ----

x, w = leaf(2, 3), leaf(3, 2)
z = x @ w
expected = np.zeros((2, 3))
expected[0] = w[:, 0].detach()
check("z = x @ w:  d(z)[0, 0] / d(x)", d(z)[0, 0] / d(x), expected)

image, kernel = leaf(1, 3, 8, 8), leaf(4, 3, 3, 3)
m = F.conv2d(image, kernel)  # pixel (4, 7) lies at (0, 2) of the window that starts at (4, 5)
check("one feature by one pixel", d(m)[0, 2, 4, 5] / d(image)[0, 1, 4, 7], kernel[2, 1, 0, 2].detach())
check("  by a pixel out of its reach", d(m)[0, 2, 4, 5] / d(image)[0, 1, 0, 0], 0.0)

# ---- the gradient of something in between: no retain_grad, before or after backward ----

encoder, decoder = nn.Conv2d(3, 16, 3).double(), nn.Linear(16, 10).double()
z = 2 * encoder(leaf(1, 3, 12, 12)).mean(dim=[2, 3])
loss = decoder(z).sum()
sums = decoder.weight.detach().sum(0)[None]
check("a latent:  d(loss) / d(z)", d(loss) / d(z), sums)
loss.backward(retain_graph=True)
check("  the same after backward", d(loss) / d(z), sums)

conv1, conv2, fc = nn.Conv2d(3, 4, 3).double(), nn.Conv2d(4, 6, 3).double(), nn.Linear(216, 10).double()
maps = F.relu(conv2(F.relu(conv1(leaf(1, 3, 10, 10)))))
loss = F.cross_entropy(fc(maps.flatten(1)), torch.tensor([7]))
error = fc(maps.flatten(1)).softmax(1) - F.one_hot(torch.tensor([7]), 10)
check("feature maps:  d(loss) / d(maps)", d(loss) / d(maps), (error @ fc.weight).reshape(maps.shape).detach())

# ---- steer hidden unit 10 upward ----

model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()).double()
x = leaf(1, 784)
steered = wrt.steer(model, x.detach(), toward=lambda t: t.output[0, 10], eps=0.003)
print(f"  {steered}")
assert steered
assert model(steered.input)[0, 10] > model(x)[0, 10]

# To climb the squared distance to a target, as is usually shown, moves the unit away from that target.
hidden = model(x)
(climb,) = torch.autograd.grad((hidden[0, 10] - 1) ** 2, x)
away = model(x + 0.003 * climb.sign())[0, 10]
print(f"  a step that climbs the distance to 1 leads from {hidden[0, 10].item():.4f} to {away.item():.4f}")
assert abs(1 - away) > abs(1 - hidden[0, 10])

# ---- a tensor with respect to itself, and whole Jacobians ----

y = 3 * leaf(2, 2)
total = y.sum()
check("the identity:  d(y) / d(y)", d(y) / d(y), np.eye(4).reshape(2, 2, 2, 2))
check("  ones are another question:  d(total) / d(y)", d(total) / d(y), np.ones((2, 2)))

x = leaf(4)
y = x**2
J = d(y) / d(x)
check("x squared:  d(y) / d(x)", J, np.diag(2 * x.detach()))
check("  its diagonal", J.diagonal(), 2 * x.detach())

x, w = leaf(6), leaf(6, 8)
y = torch.tanh(x @ w) * x[0]
rows = torch.stack([torch.autograd.grad(y[i], x, retain_graph=True)[0] for i in range(8)])
J = d(y) / d(x)
check("a Jacobian without a loop of backwards", J, rows)
check("  a block of it:  d(y)[2:4] / d(x)[::2]", d(y)[2:4] / d(x)[::2], rows[2:4, ::2])
print(J.explain())
