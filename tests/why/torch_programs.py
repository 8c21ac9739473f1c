"""Mistakes in torch, and healthy programs that look like them."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Bernoulli, Categorical, Gamma

from tests.why._programs import Programs

programs = Programs()
show = programs.show


def leaf(*shape: int) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(*shape, requires_grad=True)


# ---------------------------------------------------------------- cut


@show("detach")
def detached_in_a_helper():
    def target(h):
        return h.detach().mean()  # <-

    x = leaf(4)
    w = leaf(4)
    return (target(torch.tanh(x)) * w).sum(), x


@show("detach")
def detached_first_and_compared_later():
    x, w = leaf(4), leaf(4)
    gate = (x > 0).float()
    h = x.detach() * 2  # <-
    return (h * gate * w).sum(), x


@show("detached_hidden_state", "detach")
def hand_written_cell():
    w = leaf(3, 3)
    h = x = leaf(3)
    for _ in range(3):
        h = torch.tanh(h @ w)
        h = h.detach()  # <-
    return torch.tanh(h @ w).sum(), x


@show("dot_data")
def data_of_a_feature():
    x, w = leaf(4), leaf(4)
    h = torch.sigmoid(x).data  # <-
    return (h * w).sum(), x


@show("item")
def tolist_and_back():
    x, w = leaf(3), leaf(3)
    numbers = (x * 2).tolist()  # <-
    return (torch.tensor(numbers) * w).sum(), x


@show("item")
def python_float_scale():
    x, w = leaf(3), leaf(3)
    scale = float(x.norm())  # <-
    return (w / scale).sum(), x


@show("item")
def math_of_a_tensor():
    x, w = leaf(()), leaf(3)
    s = math.tanh(x)  # <-
    return (w * s).sum(), x


@show("numpy_roundtrip", "detach")
def numpy_between():
    x, w = leaf(4), leaf(4)
    h = torch.tanh(x)
    a = h.detach().numpy()  # <-
    return (torch.from_numpy(np.sort(a)) * w).sum(), x


@show("retensor")
def tensor_of_a_list_of_tensors():
    x, w = leaf(3), leaf(2)
    parts = [x.sum(), x.prod()]
    h = torch.tensor(parts)  # <-
    return (h * w).sum(), x


@show("retensor", "detach")
def new_tensor():
    x, w = leaf(3), leaf(3)
    h = x * 2
    h = h.new_tensor(h)  # <-
    return (h * w).sum(), x


@show("no_grad")
def switched_off_in_a_function():
    def off():
        torch.set_grad_enabled(False)

    x, w = leaf(3), leaf(3)
    try:
        off()
        h = x * 2  # <-
    finally:
        torch.set_grad_enabled(True)
    return (h * w).sum(), x


@show("no_grad")
def a_block_without_gradients():
    x, w = leaf(3), leaf(3)
    with torch.no_grad():
        h = torch.relu(x) + 1  # <-
    return (h * w).sum(), x


@show("inference_mode")
def features_under_inference_mode():
    net = nn.Linear(3, 3)
    x, w = leaf(3), leaf(3)

    @torch.inference_mode()
    def features(v):
        return net(v)  # <-

    h = features(x).clone()
    return (h * w).sum(), x


@show("argmax")
def index_of_the_best():
    x, table = leaf(5), leaf(5, 2)
    best = torch.argmax(torch.tanh(x))  # <-
    return table[best].sum(), x


@show("sort_indices")
def topk_indices():
    x, table = leaf(5), leaf(5)
    values, indices = torch.topk(x, 2)  # <-
    return table[indices].sum(), x


@show("sort_indices")
def ranks():
    x, w = leaf(5), leaf(5)
    order = torch.argsort(x)  # <-
    return (order.float() * w).sum(), x


@show("comparison")
def accuracy_as_a_loss():
    x, w = leaf(4), leaf(4)
    hit = torch.eq(x.round(), torch.ones(4))  # <-
    return (hit.float() * w).mean(), x


@show("comparison")
def where_with_constants():
    x, w = leaf(4), leaf(4)
    gate = torch.where(x > 0.1, 1.0, 0.0)  # <-
    return (gate * w).sum(), x


@show("integer_cast")
def to_int():
    x, w = leaf(4), leaf(9)
    k = (x.abs() * 2).to(torch.int64)  # <-
    return w[k].sum(), x


@show("integer_output")
def bucketized():
    x, w = leaf(4), leaf(9)
    k = torch.bucketize(x, torch.linspace(-1, 1, 5))  # <-
    return w[k].sum(), x


@show("int_input")
def an_integer_source():
    x = torch.tensor([1, 2, 3])  # <-
    w = leaf(3)
    return (x * w).sum(), x


@show("not_requires_grad")
def saliency_without_asking():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    image = torch.rand(2, 3)  # <-
    return net(image).sum(), image


@show("not_requires_grad")
def a_frozen_layer():
    net = nn.Linear(3, 3)
    for p in net.parameters():
        p.requires_grad_(False)  # <-
    x = leaf(3)
    return net(x).sum(), net.weight


@show("late_requires_grad")
def flag_set_afterwards():
    x, w = torch.ones(3), leaf(3)
    y = (x * w).sum()
    x.requires_grad = True  # <-
    return y, x


@show("parameter_wrap")
def parameter_of_a_result():
    x = leaf(3)
    p = nn.Parameter(torch.tanh(x))  # <-
    return (p * 2).sum(), x


@show("copied_module")
def a_copy_of_the_model():
    net = nn.Linear(3, 1)
    twin = copy.deepcopy(net)  # <-
    return twin(torch.ones(3)).sum(), net.weight


@show("copied_module")
def loaded_state():
    net, twin = nn.Linear(3, 1), nn.Linear(3, 1)
    twin.load_state_dict(net.state_dict())  # <-
    return twin(torch.ones(3)).sum(), net.weight


@show("sample_no_reparam", "no_grad")
def gamma_sample():
    a = torch.tensor([2.0, 3.0], requires_grad=True)
    w = leaf(2)
    z = Gamma(a, torch.ones(2)).sample()  # <-
    return (z * w).sum(), a


@show("sample_no_reparam", "no_grad", "integer_output")
def categorical_sample():
    logits, table = leaf(4), leaf(4)
    k = Categorical(logits=logits).sample()  # <-
    return table[k] * 2, logits


@show("sample_no_reparam", "no_grad")
def bernoulli_sample():
    p, w = leaf(4), leaf(4)
    z = Bernoulli(torch.sigmoid(p)).sample()  # <-
    return (z * w).sum(), p


@show("fresh_leaf_loss", "detach")
def requires_grad_on_the_loss():
    x = leaf(3)
    loss = (x.detach() ** 2).sum()  # <-
    loss.requires_grad_()
    return loss, x


@show("unused_input")
def a_parameter_nobody_uses():
    net = nn.ModuleDict({"used": nn.Linear(2, 1)})
    net["spare"] = nn.Linear(2, 1)  # <-
    return net["used"](torch.ones(2)).sum(), net["spare"].weight


@show("unused_input")
def a_result_that_is_dropped():
    x, w = leaf(3), leaf(3)
    h = w * 2
    h + x  # <-
    return h.sum(), x


@show("recomputed_tensor")
def the_feature_of_another_pass():
    net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 1))
    v = torch.ones(3)
    score = net(v).sum()
    feature = net[1](net[0](v))  # <-
    return score, feature


# ---------------------------------------------------------------- zero


@show("round")
def ceil_of_a_length():
    x = leaf(3)
    return (torch.ceil(x * 3) * 2).sum(), x  # <-


@show("sign")
def binarized_weights():
    w = leaf(3)
    b = w.sign()  # <-
    return (b * torch.arange(3.0)).sum(), w


@show("clamp")
def hardtanh_outside():
    x = torch.tensor([5.0, -7.0], requires_grad=True)
    h = F.hardtanh(x)  # <-
    return (h * torch.tensor([1.0, 2.0])).sum(), x


@show("dead_relu")
def a_dead_layer_inside_a_model():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        net[0].bias.fill_(-100)
    return net(torch.ones(3)).sum(), net[0].weight  # <-


@show("saturated")
def tanh_far_out():
    x = torch.tensor([50.0, -60.0], requires_grad=True)
    h = torch.tanh(x)  # <-
    return (h**2).sum(), x


@show("saturated")
def softmax_of_large_logits():
    x = torch.tensor([500.0, 0.0, 3.0], requires_grad=True)
    p = torch.softmax(x, 0)  # <-
    return p[0] * 3, x


@show("mask")
def masked_loss():
    x = leaf(2, 3)
    mask = torch.zeros(2, 3)
    loss = (torch.tanh(x) * mask).sum()  # <-
    return loss, x


@show("mask", "not_indexed", "inplace_overwrite", at=0)
def masked_fill():
    x = leaf(4)
    h = x.masked_fill(torch.tensor([True, False, False, False]), 0.0)  # <-
    return h.pow(2).sum(), x


@show("not_indexed", at=2)
def other_rows_are_embedded():
    table = leaf(4, 2)
    rows = F.embedding(torch.tensor([0, 1]), table)  # <-
    return rows.pow(2).sum(), table


@show("not_indexed", at=0)
def not_the_largest():
    x = torch.tensor([1.0, 5.0, 2.0], requires_grad=True)
    top = x.max()  # <-
    return top * 3, x


@show("inplace_overwrite")
def zeroed_before_use():
    x = leaf(3)
    h = x * 2
    h.zero_()  # <-
    return (h + 1).sum(), x


@show("inplace_overwrite")
def overwritten_in_a_buffer():
    x, w = leaf(3), leaf(3)
    buffer = torch.zeros(3)
    buffer[:] = x * 2
    buffer[:] = w  # <-
    return buffer.sum(), x


@show("invariant_output")
def sum_of_a_softmax():
    x = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    p = torch.softmax(x, 0)  # <-
    return p.sum(), x


@show("invariant_output")
def minus_itself():
    x = leaf(3)
    y = x - x  # <-
    return y.sum(), x


# ---------------------------------------------------------------- not finite


@show("sqrt_at_zero")
def standard_deviation_of_one_value():
    x = torch.full((4,), 2.0, requires_grad=True)
    s = x.std()  # <-
    return s * 2, x


@show("log_zero")
def entropy_of_a_certainty():
    p = torch.tensor([0.0, 1.0], requires_grad=True)
    h = -(p * p.log()).sum()  # <-
    return h, p


@show("div_zero")
def mean_of_nothing():
    x = leaf(3)
    mask = torch.zeros(3)
    mean = (x * mask).sum() / mask.sum()  # <-
    return mean, x


@show("sqrt_at_zero", "div_zero", "norm_at_zero")
def cosine_of_zero():
    x = torch.zeros(3, requires_grad=True)
    n = x / x.pow(2).sum().sqrt()  # <-
    return n.sum(), x


@show("domain_edge")
def asin_at_the_edge():
    x = torch.tensor([1.0], requires_grad=True)
    a = torch.asin(x)  # <-
    return a.sum(), x


@show("domain_edge")
def a_root_by_power():
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    r = x**0.5  # <-
    return r.sum(), x


@show("where_nan_trap")
def where_over_a_log():
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    safe = torch.where(x > 1, torch.log(x), x)  # <-
    return safe.sum(), x


@show("where_nan_trap")
def where_over_a_division():
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    inverse = 1 / x  # <-
    return torch.where(x == 0, torch.zeros_like(x), inverse).sum(), x


@show("degenerate_eig")
def svd_of_the_identity():
    a = torch.eye(3, requires_grad=True)
    u, s, v = torch.linalg.svd(a)  # <-
    return (u * torch.arange(9.0).view(3, 3)).sum(), a


@show("masked_softmax_row")
def a_row_of_padding():
    scores = leaf(2, 3)
    hidden = torch.tensor([[False, False, False], [True, True, True]])
    p = (scores + torch.zeros(2, 3).masked_fill(hidden, float("-inf"))).softmax(-1)  # <-
    return p[0].pow(2).sum(), scores


@show("exploding_product")
def a_growing_recurrence():
    w = torch.tensor(3.0, requires_grad=True)
    h = torch.tensor(1.0)
    for _ in range(40):
        h = h * w  # <-
    return h, w


# ---------------------------------------------------------------- refused


@show("inplace_saved_tensor")
def relu_in_place_after_sigmoid():
    x = leaf(3)
    h = torch.exp(x)
    torch.relu_(h)  # <-
    return h.sum(), x


@show("inplace_saved_tensor")
def a_weight_updated_too_early():
    w = leaf(3)
    x = leaf(3)
    h = w * x
    with torch.no_grad():
        w -= 0.1  # <-
    return (h * h).sum(), x


@show("view_inplace")
def a_leaf_in_place():
    x = leaf(3)
    x += 1  # <-
    return x.sum(), x


@show("view_inplace")
def a_view_of_a_leaf():
    x = leaf(3)
    x[0] = 5.0  # <-
    return x.sum(), x


@show("nonscalar_backward")
def a_loss_per_sample():
    x = leaf(3)
    loss = x**2
    loss.backward()  # <-
    return loss, x


@show("graph_freed")
def twice_without_retaining():
    x = leaf(3)
    loss = (x**2).sum()
    loss.backward()  # <-
    loss.backward()
    return loss, x


@show("save_for_backward_nontensor")
def a_number_saved():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v, k):
            ctx.save_for_backward(v, k)  # <-
            return v * k

        @staticmethod
        def backward(ctx, g):
            return g, None

    x = leaf(3)
    y = Scale.apply(x, 3)
    return y.sum(), x


# ---------------------------------------------------------------- wrong


@show("custom_backward_wrong")
def a_wrong_factor():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return v**3

        @staticmethod
        def backward(ctx, g):
            (v,) = ctx.saved_tensors
            return g * 2 * v**2  # <-

    x = leaf(3)
    return Cube.apply(torch.tanh(x)).sum(), x


@show("custom_backward_none")
def no_gradient_for_the_second():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b, None  # <-

    a, b = leaf(3), leaf(3)
    return Product.apply(a, b).sum(), b


@show("accumulated_grad")
def not_reset_between_steps():
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], lr=0.1)
    for _ in range(2):
        loss = (w**2).sum()
        loss.backward()  # <-
        opt.step()
    return loss, w


@show("broadcast")
def a_column_and_a_row():
    net = nn.Linear(2, 1)
    x, target = torch.rand(5, 2), torch.rand(5)
    loss = nn.MSELoss()(net(x), target)  # <-
    return loss, net.weight


@show("broadcast")
def a_difference_by_hand():
    net = nn.Linear(2, 1)
    x, target = torch.rand(5, 2), torch.rand(5)
    loss = ((net(x) - target) ** 2).mean()  # <-
    return loss, net.weight


@show("double_softmax")
def softmax_layer_and_cross_entropy():
    net = nn.Sequential(nn.Linear(2, 3), nn.Softmax(dim=1))
    p = net(torch.rand(4, 2))  # <-
    return nn.CrossEntropyLoss()(p, torch.tensor([0, 1, 2, 0])), net[0].weight


@show("hook")
def a_hook_that_zeroes():
    x = leaf(3)
    h = x * 2
    h.register_hook(lambda g: g * 0)  # <-
    return h.pow(2).sum(), x


@show("tie_subgradient")
def two_largest():
    x = torch.tensor([2.0, 2.0, 1.0], requires_grad=True)
    top = x.max()  # <-
    return top * 3, x


@show("optimizer_wrong_params")
def a_head_replaced_too_late():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    opt = torch.optim.Adam(net.parameters())  # <-
    net[1] = nn.Linear(2, 3)
    loss = net(torch.ones(2)).sum()
    loss.backward()
    opt.step()
    return loss, net[1].weight


@show("nonleaf_grad")
def grad_of_a_feature():
    x = leaf(3)
    h = torch.tanh(x)  # <-
    loss = h.sum()
    loss.backward()
    print(h.grad)
    return loss, h


@show("leaf_moved_by_to_device_or_cast", "nonleaf_grad")
def a_leaf_made_double():
    x = torch.ones(3, requires_grad=True).double()  # <-
    loss = (x**2).sum()
    loss.backward()
    return loss, x


# ---------------------------------------------------------------- healthy


@show("none")
def item_for_a_log():
    x = leaf(3)
    loss = x.pow(2).sum()
    log = {"loss": loss.item(), "norm": float(x.norm())}
    return loss, x


@show("none")
def a_training_step():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(3):
        opt.zero_grad()
        loss = F.mse_loss(net(torch.rand(5, 3)), torch.rand(5, 1))
        loss.backward()
        opt.step()
    return loss, net[0].weight


@show("none")
def gradient_accumulation():
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=1e-2)
    opt.zero_grad()
    for _ in range(4):
        loss = net(torch.rand(5, 3)).pow(2).mean() / 4
        loss.backward()
    opt.step()
    return loss, net.weight


@show("none")
def straight_through_function():
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v.round()

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(3)
    return (Rounded.apply(x * 3) * 2).sum(), x


@show("none")
def gradient_reversal():
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v.view_as(v)

        @staticmethod
        def backward(ctx, g):
            return -0.5 * g

    x = leaf(3)
    return (Reverse.apply(x) * 2).sum(), x


@show("none")
def a_target_network():
    net = nn.Linear(3, 2)
    twin = copy.deepcopy(net)
    s, s2 = torch.rand(4, 3), torch.rand(4, 3)
    with torch.no_grad():
        target = 1 + 0.9 * twin(s2).max(1).values
    q = net(s).gather(1, torch.tensor([[0], [1], [0], [1]])).squeeze(1)
    return F.smooth_l1_loss(q, target), net.weight


@show("none")
def outer_difference():
    x = leaf(4)
    pairs = x[:, None] - x[None, :]
    return pairs.pow(2).sum(), x


@show("none")
def attention_with_a_mask():
    q = leaf(3, 4)
    mask = torch.ones(3, 3).tril() == 0
    p = (q @ q.T).masked_fill(mask, float("-inf")).softmax(-1)
    return (p @ q).pow(2).sum(), q


@show("none")
def sigmoid_and_bce():
    x = leaf(4)
    p = torch.sigmoid(x)
    return F.binary_cross_entropy(p, torch.tensor([0.0, 1.0, 1.0, 0.0])), x


@show("none")
def dropout_and_batch_norm():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    return net(torch.rand(6, 3)).pow(2).mean(), net[0].weight


@show("none")
def clipped_gradients_by_a_hook():
    x = leaf(3)
    h = x * 3
    h.register_hook(lambda g: g.clamp(-1, 1))
    return h.pow(2).sum(), x


@show("none")
def teacher_probabilities():
    student, teacher = leaf(2, 3), leaf(2, 3)
    return F.cross_entropy(student, teacher.softmax(1).detach()), student


@show("none")
def a_buffer_filled_by_steps():
    x = leaf(3)
    h = torch.zeros(4, 3)
    h[0] = x
    for k in range(1, 4):
        h[k] = torch.tanh(h[k - 1])
    return h[3].sum(), x


@show("none")
def a_small_weight_of_many():
    x = leaf(1000)
    return (x * 1e-4).mean(), x


# ---------------------------------------------------------------- less common


@show("round")
def division_that_rounds():
    x = leaf(3)
    cell = torch.div(x, 0.5, rounding_mode="floor")  # <-
    return (cell * torch.arange(3.0)).sum(), x


@show("round")
def floor_division():
    x, w = leaf(3), leaf(3)
    cell = x // 0.5  # <-
    return (cell * w).sum(), x


@show("no_derivative")
def nearest_sampling():
    grid = (torch.rand(1, 2, 2, 2) * 1.6 - 0.8).requires_grad_()
    picked = F.grid_sample(torch.rand(1, 1, 4, 4), grid, mode="nearest", align_corners=False)  # <-
    return picked.pow(2).sum(), grid


@show("norm_at_zero")
def norm_of_nothing():
    x = torch.zeros(3, requires_grad=True)
    n = torch.linalg.norm(x)  # <-
    return n * 2, x


@show("low_precision")
def half_precision_overflow():
    x = torch.tensor([300.0, 2.0], dtype=torch.float16, requires_grad=True)
    y = x * x * x  # <-
    return torch.log(y).sum(), x


@show("dot_data")
def a_write_that_autograd_does_not_see():
    x = leaf(3)
    h = x * 2
    y = h * h
    h.data.mul_(5)  # <-
    return y.sum(), x


@show("custom_backward_wrong")
def too_few_gradients():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v, k):
            ctx.k = k
            return v * k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k  # <-

    x = leaf(3)
    return Scale.apply(x, 3).sum(), x


@show("hook")
def a_hook_on_the_weight():
    w = leaf(3)
    w.register_hook(lambda g: torch.zeros_like(g))  # <-
    return (w**2).sum(), w


@show("accumulated_grad")
def the_same_loss_twice():
    w = leaf(3)
    loss = (w**2).sum()
    loss.backward(retain_graph=True)
    loss.backward()  # <-
    return loss, w


@show("optimizer_wrong_params")
def layers_in_a_plain_list():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2)]
            self.out = nn.Linear(2, 1)

        def forward(self, x):
            return self.out(torch.tanh(self.layers[0](x)))

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # <-
    loss = net(torch.ones(2)).sum()
    loss.backward()
    optimizer.step()
    return loss, net.layers[0].weight


@show("where_nan_trap")
def a_direction_of_length_zero():
    x = torch.zeros(2, requires_grad=True)
    r = x.pow(2).sum().sqrt()  # <-
    return torch.where(r > 0, x / r, torch.zeros_like(x)).sum(), x


@show("vanishing_chain")
def many_squashings():
    w = torch.tensor(0.3, requires_grad=True)
    h = x = torch.tensor(1.0, requires_grad=True)
    for _ in range(40):
        h = torch.tanh(h) * w  # <-
    return h, x


@show("none")
def truncated_backpropagation():
    w, h = leaf(3), torch.zeros(3)
    for _ in range(3):
        h = torch.tanh(h.detach() + w)
    return h.sum(), w


@show("none")
def a_gradient_reset_by_hand():
    x = leaf(3)
    (x**2).sum().backward()
    x.grad.zero_()
    y = (x**3).sum()
    y.backward()
    return y, x


@show("none")
def pooling_after_relu():
    x = leaf(2, 8)
    return F.max_pool1d(F.relu(x[None]), 2).sum(), x


@show("none")
def a_kink_that_nobody_minds():
    x = torch.tensor([0.0, 1.0, -1.0], requires_grad=True)
    return F.relu(x).sum() + x.abs().sum(), x


@show("none")
def a_clone_written_in_place():
    x = leaf(4)
    h = x.clone()
    h[1] = 3.0
    return h.pow(2).sum(), x


# ---------------------------------------------------------------- further shapes


@show("retensor")
def tensors_in_lists_of_lists():
    a = torch.tensor(2.0, requires_grad=True)
    b = a * 3
    return torch.linalg.det(torch.tensor([[b, 1.0], [0.0, b]])), a  # <-


@show("sample_no_reparam")
def a_sample_with_a_backward_of_zeros():
    logits = torch.zeros(4, requires_grad=True)
    kept = torch.bernoulli(logits.sigmoid())  # <-
    return (kept * torch.arange(4.0)).sum(), logits


@show("masked_softmax_row")
def a_masked_row_whose_gradient_is_finite():
    scores, keep = leaf(3, 3), torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]]).bool()
    hidden = scores.masked_fill(~keep, float("-inf"))
    return torch.softmax(hidden, -1).sum(), scores  # <-


@show("exploding_product")
def growth_beyond_the_type():
    w = torch.eye(4) * 12.0
    h = x = torch.ones(4, requires_grad=True)
    for _ in range(40):
        h = w @ h  # <-
    return h.sum(), x


@show("optimizer_wrong_params")
def an_optimizer_of_half_the_model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.Adam(net[0].parameters())  # <-
    for _ in range(2):
        optimizer.zero_grad()
        loss = net(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
    return loss, net[1].weight
