"""Failures as habits make them: trainers, caches, hooks, samples, states that are kept; and habits that are fine."""

import copy
import io

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.why import _elsewhere
from tests.why._programs import Programs

programs = Programs()


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.extra = [nn.Linear(2, 2)]
        self.net = nn.Linear(2, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self, x):
        self.opt.zero_grad()
        self.loss = self.net(torch.tanh(self.extra[0](x))).pow(2).mean()
        self.loss.backward()
        self.opt.step()


@programs.show("optimizer_wrong_params")
def layers_in_a_plain_list():
    t = Trainer()
    t.step(torch.ones(3, 2))
    return t.loss, t.extra[0].weight


@programs.show("detach")
def cut_in_another_file():
    x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    w = torch.ones(3, requires_grad=True)
    return (_elsewhere.normalize(x) * w).sum(), x


@programs.show("detach", "argmax")
def two_cuts_in_a_row():
    x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    w = torch.ones(3, requires_grad=True)
    h = (x * 2).detach()  # <-
    k = h.argmax()
    return w[k] * 3, x


@programs.show("no_grad")
def cached_features():
    torch.manual_seed(0)
    net, head = nn.Linear(2, 2), nn.Linear(2, 1)
    cache = {}
    with torch.no_grad():
        for k in range(2):
            cache[k] = net(torch.full((1, 2), float(k)))  # <-
    loss = sum(head(cache[k]).pow(2).sum() for k in cache)
    return loss, net.weight


@programs.show("item")
def floats_in_a_list():
    w = torch.ones(2, requires_grad=True)
    v = torch.ones(1, requires_grad=True)
    losses = [float((w * k).sum()) for k in range(3)]  # <-
    return torch.tensor(losses).sum() * v.sum(), w


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 2))

    def forward(self, x):
        self.weight[0] = 0.0
        return x @ self.weight.T


@programs.show("view_inplace")
def a_parameter_written_in_forward():
    m = Masked()
    return m(torch.ones(1, 2)).sum(), m.weight


@programs.show("dot_data")
def data_in_the_loss():
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    pred = net(torch.ones(3, 2))
    b = torch.ones(1, requires_grad=True)
    loss = F.mse_loss(pred.data, torch.zeros(3, 1)) * b  # <-
    return loss.sum(), net.weight


@programs.show("graph_freed")
def the_state_is_kept_across_batches():
    torch.manual_seed(0)
    cell = nn.RNNCell(2, 3)
    h = torch.zeros(1, 3)
    for k in range(2):
        h = cell(torch.ones(1, 2), h)
        loss = h.pow(2).sum()
        loss.backward()  # <-
    return loss, cell.weight_ih


@programs.show("item")
def a_learned_scale_as_a_number():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.s = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return x * self.s.item()  # <-

    m = Scale()
    return m(torch.ones(3, requires_grad=True)).sum(), m.s


@programs.show("comparison")
def a_learned_threshold():
    th = torch.tensor(0.5, requires_grad=True)
    x = torch.tensor([0.2, 0.8], requires_grad=True)
    keep = x > th  # <-
    return torch.where(keep, x, torch.zeros(2)).sum(), th


@programs.show("argmax")
def index_of_max_by_item():
    x = torch.tensor([0.2, 0.8], requires_grad=True)
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    _, k = torch.max(x, 0)  # <-
    return w[k], x


@programs.show("log_zero")
def log_of_a_sharp_softmax():
    x = torch.tensor([0.0, 200.0], requires_grad=True)
    p = torch.softmax(x, 0)
    return -torch.log(p)[0], x  # <-


@programs.show("sqrt_at_zero")
def std_of_a_constant():
    x = torch.full((4,), 2.0, requires_grad=True)
    s = x.std()  # <-
    return s * 3, x


@programs.show("div_zero")
def one_over():
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    return (1.0 / x).sum(), x  # <-


@programs.show("domain_edge")
def a_root_of_zero():
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    return (x**0.5).sum(), x  # <-


@programs.show("domain_edge")
def atanh_of_one():
    x = torch.tensor([1.0, 0.5], requires_grad=True)
    return torch.atanh(x).sum(), x  # <-


@programs.show("norm_at_zero")
def norm_of_a_zero_difference():
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    b = torch.tensor([1.0, 2.0])
    return torch.norm(a - b) * 2, a  # <-


@programs.show("low_precision", "domain_edge")
def half_overflow():
    x = torch.tensor([12.0, 1.0], dtype=torch.float16, requires_grad=True)
    e = torch.exp(x)  # <-
    return (e / e.sum()).float()[0], x


@programs.show("clamp")
def hardsigmoid_far():
    x = torch.tensor([9.0, 12.0], requires_grad=True)
    return (F.hardsigmoid(x) * torch.tensor([1.0, 2.0])).sum(), x  # <-


@programs.show("saturated")
def gelu_far_below():
    x = torch.tensor([-90.0, -80.0], requires_grad=True)
    return (F.gelu(x) * torch.tensor([1.0, 2.0])).sum(), x  # <-


@programs.show("hook")
def a_module_hook():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    net[1].register_full_backward_hook(lambda m, gi, go: (torch.zeros_like(gi[0]),))  # <-
    return net(torch.ones(1, 2)).sum(), net[0].weight


@programs.show("hook")
def a_hook_on_the_parameter():
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    net.weight.register_hook(lambda g: torch.zeros_like(g))  # <-
    return net(torch.ones(1, 2)).sum(), net.weight


class Ignores(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return torch.full_like(g, 3.0)


@programs.show("custom_backward_wrong")
def grad_output_ignored():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    return (Ignores.apply(x) * torch.tensor([2.0, 5.0])).sum(), x


class WrongShape(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum(0)

    @staticmethod
    def backward(ctx, g):
        return g


@programs.show("custom_backward_wrong")
def a_gradient_of_another_shape():
    x = torch.ones(3, 2, requires_grad=True)
    y = WrongShape.apply(x).sum()
    y.backward()
    return y, x


@programs.show("sample_no_reparam")
def torch_normal():
    torch.manual_seed(0)
    mu = torch.zeros(3, requires_grad=True)
    w = torch.ones(3, requires_grad=True)
    z = torch.normal(mu, torch.ones(3))  # <-
    return (z * w).sum(), mu


@programs.show("sample_no_reparam")
def policy_action():
    torch.manual_seed(0)
    logits = torch.zeros(3, requires_grad=True)
    q = torch.randn(3, requires_grad=True)
    a = torch.multinomial(torch.softmax(logits, 0), 1)  # <-
    return q[a].sum(), logits


@programs.show("no_grad")
def a_forward_without_gradients():
    torch.manual_seed(0)

    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        @torch.no_grad()
        def forward(self, x):
            return self.lin(x)  # <-

    f, head = Frozen(), nn.Linear(2, 1)
    return head(f(torch.ones(1, 2))).sum(), f.lin.weight


@programs.show("inference_mode")
def features_for_later():
    torch.manual_seed(0)
    net, head = nn.Linear(2, 2), nn.Linear(2, 1)
    with torch.inference_mode():
        h = net(torch.ones(1, 2))  # <-
    return head(h.clone()).sum(), net.weight


@programs.show("broadcast")
def squared_error_by_hand():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    pred, y = net(torch.randn(5, 3)), torch.randn(5)
    loss = ((pred - y) ** 2).mean()  # <-
    return loss, net.weight


@programs.show("accumulated_grad")
def zero_grad_of_the_wrong_optimizer():
    torch.manual_seed(0)
    a, b = nn.Linear(2, 2), nn.Linear(2, 1)
    oa, ob = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
    for _ in range(2):
        oa.zero_grad()
        loss = b(torch.tanh(a(torch.ones(3, 2)))).pow(2).mean()
        loss.backward()  # <-
        oa.step()
        ob.step()
    return loss, b.weight


@programs.show("retensor")
def a_matrix_of_entries():
    th = torch.tensor(0.3, requires_grad=True)
    v = torch.ones(2, requires_grad=True)
    rot = torch.tensor([[torch.cos(th), -torch.sin(th)], [torch.sin(th), torch.cos(th)]])  # <-
    return (rot @ v).sum(), th


@programs.show("numpy_roundtrip")
def np_of_a_tensor():
    x = torch.ones(3, requires_grad=True)
    y = np.sin(x)  # <-
    return torch.as_tensor(y).sum(), x


@programs.show("serialized")
def cached_to_memory_and_back():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    h = x * 2
    memory = io.BytesIO()
    torch.save({"h": h}, memory)  # <-
    memory.seek(0)
    return (torch.load(memory)["h"].detach() * w).sum(), x


@programs.show("serialized")
def shallow_copy():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    h = copy.copy(x * 2)  # <-
    return (h.detach() * w).sum(), x


@programs.show("unused_input")
def conditioning_dropped():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.c = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x, cond):
            h = torch.relu(self.a(x))
            self.c(cond)  # <-
            return h.sum()

    n = Net()
    return n(torch.ones(1, 2), torch.ones(1, 2)) + 0, n.c.weight


@programs.show("inplace_saved_tensor")
def relu_in_place_on_a_square():
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    h = x * 1
    y = h**2
    F.relu(h, inplace=True)  # <-
    loss = y.sum()
    loss.backward()
    return loss, x


@programs.show("integer_cast")
def rounded_to_int_then_back():
    x = torch.tensor([1.2, 2.7], requires_grad=True)
    w = torch.ones(2, requires_grad=True)
    n = x.int()  # <-
    return (n.float() * w).sum(), x


@programs.show("copied_module")
def state_dict_loaded_into_the_student():
    torch.manual_seed(0)
    src, dst = nn.Linear(2, 1), nn.Linear(2, 1)
    dst.load_state_dict(src.state_dict())  # <-
    return dst(torch.ones(1, 2)).sum(), src.weight


# healthy
@programs.show("none")
def log_softmax_then_cross_entropy():
    torch.manual_seed(0)
    net = nn.Linear(3, 4)
    return F.cross_entropy(F.log_softmax(net(torch.randn(5, 3)), -1), torch.randint(0, 4, (5,))), net.weight


@programs.show("none")
def softmax_then_nll_of_log():
    torch.manual_seed(0)
    net = nn.Linear(3, 4)
    return F.nll_loss(torch.log(torch.softmax(net(torch.randn(5, 3)), -1)), torch.randint(0, 4, (5,))), net.weight


@programs.show("none")
def attention_softmax_then_ce():
    torch.manual_seed(0)
    q = nn.Linear(4, 4)
    x = torch.randn(2, 3, 4)
    a = torch.softmax(q(x) @ x.transpose(1, 2), -1)
    return F.cross_entropy((a @ x).reshape(-1, 4), torch.randint(0, 4, (6,))), q.weight


@programs.show("none")
def outer_sum_on_purpose():
    a = torch.randn(4, 1, requires_grad=True)
    b = torch.randn(4)
    return ((a - b) ** 2).sum().sqrt(), a


@programs.show("none")
def pairwise_kernel():
    torch.manual_seed(0)
    x = torch.randn(5, 2, requires_grad=True)
    k = torch.exp(-((x[:, None] - x[None]) ** 2).sum(-1))
    return k.mean(), x


@programs.show("none")
def clipping_hook():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = x * 3
    h.register_hook(lambda g: g.clamp(-10, 10))
    return (h**2).sum(), x


@programs.show("none")
def gradient_penalty():
    torch.manual_seed(0)
    d = nn.Sequential(nn.Linear(2, 4), nn.Softplus(), nn.Linear(4, 1))
    x = torch.randn(6, 2, requires_grad=True)
    (g,) = torch.autograd.grad(d(x).sum(), x, create_graph=True)
    return ((g.norm(dim=1) - 1) ** 2).mean(), d[0].weight


@programs.show("none")
def relu_half_off():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
    return net(torch.randn(8, 3)).mean(), net[0].weight


@programs.show("none")
def in_place_relu_and_residual():
    torch.manual_seed(0)
    c = nn.Conv2d(1, 2, 3, padding=1)
    h = F.relu(c(torch.randn(1, 1, 4, 4)), inplace=True)
    h = h + 1
    h += 0.5
    return h.pow(2).mean(), c.weight


@programs.show("none")
def metric_with_item_and_numpy():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    out = net(torch.randn(4, 3))
    acc = (out.argmax(1) == 1).float().mean().item()
    hist = out.detach().cpu().numpy().tolist()
    lr = 0.1 if acc > 0.5 else 0.2
    return out.pow(2).mean() * lr + 0 * len(hist), net.weight


@programs.show("hook")
def a_module_hook_that_flips():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    net[1].register_full_backward_hook(lambda m, gi, go: (-gi[0],))  # <-
    return net(torch.ones(1, 2)).sum(), net[0].weight


@programs.show("none")
def a_module_hook_that_looks():
    torch.manual_seed(0)
    seen = []
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    net[1].register_full_backward_hook(lambda m, gi, go: seen.append(gi[0].norm()))
    return net(torch.ones(1, 2)).sum(), net[0].weight
