"""Programs in which nothing is wrong, however much it looks like it."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.why._programs import Programs

programs = Programs()


@programs.show("none")
def partly_detached_is_fine():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    return (x * x.detach()).sum(), x


@programs.show("none")
def layer_norm_weights():
    torch.manual_seed(0)
    ln = nn.LayerNorm(4)
    return (ln(torch.randn(3, 4)) * torch.randn(3, 4)).sum(), ln.weight


@programs.show("none")
def batch_norm_input():
    torch.manual_seed(0)
    x = torch.randn(8, 3, requires_grad=True)
    return (F.batch_norm(x, None, None, training=True) * torch.randn(8, 3)).sum(), x


@programs.show("none")
def bias_before_norm_asked():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    return net(torch.randn(8, 3)).mean(), net[0].weight


@programs.show("none")
def tied_max_of_constants():
    torch.manual_seed(0)
    x = torch.randn(5, requires_grad=True)
    return F.relu(x).max() + F.max_pool1d(x[None, None], 2).sum(), x


@programs.show("none")
def abs_loss_away_from_zero():
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    return x.abs().sum(), x


@programs.show("none")
def cross_entropy_confident():
    x = torch.tensor([[8.0, 0.0]], requires_grad=True)
    return F.cross_entropy(x, torch.tensor([0])), x


@programs.show("none")
def small_learning_gradients():
    x = torch.full((3,), 1e-4, requires_grad=True)
    return (x**2).mean() * 1e-2, x


@programs.show("none")
def dataloader_like():
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    opt = torch.optim.Adam(net.parameters())
    data = [
        (torch.from_numpy(np.random.default_rng(k).normal(size=(3, 4)).astype("float32")), torch.tensor([0, 1, 1]))
        for k in range(3)
    ]
    for x, y in data:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss, net.weight


@programs.show("none")
def lstm_states_reset():
    torch.manual_seed(0)
    net = nn.LSTM(2, 3, batch_first=True)
    state = None
    for _ in range(2):
        out, state = net(torch.randn(1, 4, 2), state)
        state = tuple(s.detach() for s in state)
        loss = out.pow(2).mean()
    return loss, net.weight_ih_l0


@programs.show("none")
def ema_and_weight_decay_by_hand():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    ema = net.weight.detach().clone()
    loss = net(torch.randn(4, 3)).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(0.99).add_(p.grad, alpha=-0.1)
        ema.lerp_(net.weight, 0.1)
    return loss, net.weight


@programs.show("none")
def quantization_aware():
    class Fake(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.round(x * 8) / 8

        @staticmethod
        def backward(ctx, g):
            return g

    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    return F.linear(torch.randn(4, 3), Fake.apply(net.weight), net.bias).pow(2).mean(), net.weight


@programs.show("none")
def gradient_reversal():
    class Rev(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -0.5 * g

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    return (Rev.apply(x) ** 2).sum(), x


@programs.show("none")
def a_right_custom_function_in_float32():
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * (s + x * s * (1 - s))

    torch.manual_seed(0)
    x = torch.randn(40, 30, requires_grad=True)
    return Swish.apply(x).pow(2).sum(), x


@programs.show("none")
def masked_loss_mean():
    torch.manual_seed(0)
    x = torch.randn(4, 3, requires_grad=True)
    mask = torch.tensor([[1.0, 1, 0]] * 4)
    return ((x - 1) ** 2 * mask).sum() / mask.sum(), x


@programs.show("none")
def teacher_forcing():
    torch.manual_seed(0)
    cell, out = nn.GRUCell(3, 4), nn.Linear(4, 3)
    h, token, loss = torch.zeros(2, 4), torch.zeros(2, 3), 0.0
    for t in range(4):
        h = cell(token, h)
        logits = out(h)
        loss = loss + F.cross_entropy(logits, torch.randint(0, 3, (2,)))
        token = F.one_hot(logits.argmax(-1), 3).float()
    return loss, cell.weight_ih


@programs.show("none")
def reinforce():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    d = torch.distributions.Categorical(logits=net(torch.randn(5, 3)))
    a = d.sample()
    return -(d.log_prob(a) * torch.randn(5)).mean(), net.weight


@programs.show("none")
def sac_actor():
    torch.manual_seed(0)
    net, q = nn.Linear(3, 2), nn.Linear(4, 1)
    s = torch.randn(6, 3)
    mu, log_std = net(s).chunk(2, -1)
    d = torch.distributions.Normal(mu, log_std.clamp(-5, 2).exp())
    u = d.rsample()
    a = torch.tanh(u)
    logp = d.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)
    return (0.2 * logp - q(torch.cat([s, a], -1))).mean(), net.weight


@programs.show("none")
def sinkhorn():
    torch.manual_seed(0)
    c = torch.rand(4, 4, requires_grad=True)
    k = torch.exp(-c / 0.5)
    u = torch.ones(4) / 4
    for _ in range(20):
        v = 0.25 / (k.T @ u)
        u = 0.25 / (k @ v)
    return (u[:, None] * k * v[None] * c).sum(), c


@programs.show("none")
def ode_euler():
    y0 = torch.tensor([1.0, 0.0], requires_grad=True)
    y = y0
    for _ in range(50):
        y = y + 0.1 * torch.stack([y[1], -y[0]])
    return y.pow(2).sum(), y0


@programs.show("none")
def power_iteration():
    torch.manual_seed(0)
    a = torch.randn(4, 4, requires_grad=True)
    v = torch.ones(4)
    for _ in range(15):
        v = a @ v
        v = v / v.norm()
    return v @ a @ v, a
