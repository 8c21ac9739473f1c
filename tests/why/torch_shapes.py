"""Failures in the shapes in which programs have them: classes, loops, helpers, decorators, red herrings."""

import copy
import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.why._programs import Programs

programs = Programs()


class Encoder(nn.Module):
    def __init__(self, detach=False):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.cut = detach

    def forward(self, x):
        h = torch.tanh(self.lin(x))
        if self.cut:
            h = h.detach()  # <-
        return h


@programs.show("detach")
def in_a_class_with_a_flag():
    torch.manual_seed(0)
    enc, head = Encoder(detach=True), nn.Linear(4, 1)
    x = torch.randn(3, 4)
    loss = head(enc(x)).pow(2).mean()
    log = loss.detach().item()  # red herring
    assert log >= 0
    return loss, enc.lin.weight


@programs.show("detach")
def teacher_and_student_swapped():
    torch.manual_seed(0)
    student, teacher = nn.Linear(4, 4), nn.Linear(4, 4)
    x = torch.randn(3, 4)
    s, t = student(x), teacher(x)
    loss = F.mse_loss(s.detach(), t)  # <-
    return loss, student.weight


def no_gradients(f):
    @functools.wraps(f)
    def inner(*args):
        with torch.no_grad():
            return f(*args)

    return inner


@no_gradients
def embed(x, w):
    return x @ w


@programs.show("no_grad")
def behind_a_decorator():
    torch.manual_seed(0)
    w = torch.randn(4, 4, requires_grad=True)
    v = torch.randn(4, requires_grad=True)
    h = embed(torch.ones(2, 4), w)
    return (h @ v).sum(), w


@programs.show("no_grad")
def set_grad_enabled_false_left_on():
    torch.manual_seed(0)
    w = torch.randn(3, requires_grad=True)
    b = torch.randn(3, requires_grad=True)
    torch.set_grad_enabled(False)
    try:
        h = w * 2  # <-
    finally:
        torch.set_grad_enabled(True)
    return (h * b).sum(), w


@programs.show("no_grad")
def an_evaluation_function_used_for_training():
    torch.manual_seed(0)

    @torch.no_grad()
    def predict(net, x):
        h = net[0](x)  # <-
        return torch.relu(h)

    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    return net[1](predict(net, torch.ones(2, 3))).sum(), net[0].weight


@programs.show("item")
def a_running_scale():
    torch.manual_seed(0)
    log_scale = torch.zeros(1, requires_grad=True)
    x = torch.randn(5, requires_grad=True)
    scale = math.exp(log_scale.item())  # <-
    return (x * scale).pow(2).sum(), log_scale


@programs.show("item")
def tolist_then_tensor():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.ones(3, requires_grad=True)
    values = [v * 2 for v in x.tolist()]  # <-
    return (torch.tensor(values) * w).sum(), x


@programs.show("numpy_roundtrip")
def a_scipy_like_filter():
    x = torch.linspace(0, 1, 6, requires_grad=True)
    w = torch.ones(6, requires_grad=True)
    smooth = np.convolve(x.detach().cpu().numpy(), np.ones(3) / 3, mode="same")  # <-
    return (torch.as_tensor(smooth, dtype=torch.float32) * w).sum(), x


@programs.show("retensor")
def losses_in_a_list():
    w = torch.ones(3, requires_grad=True)
    v = torch.ones(1, requires_grad=True)
    losses = []
    for k in range(3):
        losses.append((w[k] - k) ** 2)
    total = torch.tensor(losses).mean()  # <-
    return total * v.sum(), w


@programs.show("retensor", "numpy_roundtrip")
def a_float_tensor_of_a_tensor():
    x = torch.ones(3, requires_grad=True)
    w = torch.ones(3, requires_grad=True)
    h = (x * 2).clone()
    out = w.new_tensor(h)  # <-
    return (out * w).sum(), x


@programs.show("argmax")
def hard_attention():
    torch.manual_seed(0)
    q, k = torch.randn(4, requires_grad=True), torch.randn(5, 4)
    v = torch.randn(5, 4, requires_grad=True)
    scores = k @ q
    best = scores.max(0).indices  # <-
    return v[best].sum(), q


@programs.show("argmax")
def one_hot_of_argmax():
    torch.manual_seed(0)
    logits = torch.randn(2, 4, requires_grad=True)
    table = torch.randn(4, 3, requires_grad=True)
    picked = torch.argmax(logits, dim=-1)  # <-
    hard = F.one_hot(picked, 4).float()
    return (hard @ table).sum(), logits


@programs.show("sort_indices")
def topk_gate():
    torch.manual_seed(0)
    gate = torch.randn(6, requires_grad=True)
    experts = torch.randn(6, 3, requires_grad=True)
    chosen = torch.topk(gate, 2).indices  # <-
    return experts[chosen].sum(), gate


@programs.show("comparison")
def accuracy_as_loss():
    torch.manual_seed(0)
    w = torch.randn(3, requires_grad=True)
    b = torch.zeros(1, requires_grad=True)
    x, y = torch.randn(8, 3), torch.randint(0, 2, (8,)).bool()
    hit = (torch.sigmoid(x @ w) > 0.5) == y  # <-
    return -hit.float().mean() + b.sum(), w


@programs.show("integer_cast")
def bins_by_hand():
    x = torch.tensor([0.2, 1.7, 2.5], requires_grad=True)
    table = torch.randn(4, requires_grad=True)
    k = (x + 0.5).to(torch.int64)  # <-
    return table[k].sum(), x


@programs.show("round")
def quantized_weights():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    scale = 8.0
    q = torch.floor(net.weight * scale) / scale  # <-
    return F.linear(torch.ones(1, 3), q, net.bias).sum(), net.weight


@programs.show("sign")
def a_hinge_by_sign():
    x = torch.tensor([0.5, -2.0], requires_grad=True)
    return (x.sign() * torch.tensor([1.0, 2.0])).sum(), x  # <-


@programs.show("clamp")
def relu6_saturated_above():
    x = torch.tensor([9.0, 12.0], requires_grad=True)
    h = F.relu6(x)  # <-
    return (h * torch.tensor([1.0, 2.0])).sum(), x


@programs.show("dead_relu")
def relu6_saturated_below():
    x = torch.tensor([-9.0, -12.0], requires_grad=True)
    h = F.relu6(x)  # <-
    return (h * torch.tensor([1.0, 2.0])).sum(), x


@programs.show("clamp")
def log_std_clamped():
    log_std = torch.full((3,), 5.0, requires_grad=True)
    mu = torch.zeros(3, requires_grad=True)
    bounded = log_std.clamp(-20, 2)  # <-
    noise = torch.tensor([0.1, -0.2, 0.3])
    return (mu + bounded.exp() * noise).pow(2).sum(), log_std


@programs.show("clamp")
def minimum_as_clamp():
    x = torch.tensor([5.0, 7.0], requires_grad=True)
    h = torch.clamp_max(x, 1.0)  # <-
    return (h * torch.tensor([1.0, 2.0])).sum(), x


@programs.show("dead_relu")
def a_mlp_that_died():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        net[0].bias.fill_(-50)
    x = torch.randn(5, 3)
    y = net(x)  # <-
    return y.pow(2).mean() + 0 * y.sum(), net[0].weight


@programs.show("saturated")
def tanh_of_raw_pixels():
    x = torch.tensor([200.0, 255.0, 128.0], requires_grad=True)
    h = torch.tanh(x)  # <-
    return (h * torch.tensor([1.0, 2.0, 3.0])).sum(), x


@programs.show("saturated")
def softmax_with_a_tiny_temperature():
    logits = torch.tensor([1.0, 5.0, 9.0], requires_grad=True)
    p = torch.softmax(logits / 1e-3, 0)  # <-
    return (p * torch.tensor([1.0, 2.0, 4.0])).sum(), logits


@programs.show("mask")
def an_attention_mask_of_zeros():
    torch.manual_seed(0)
    x = torch.randn(2, 4, requires_grad=True)
    mask = torch.zeros(2, 4)
    h = torch.tanh(x) * 3
    kept = h * mask  # <-
    return kept.sum() + torch.ones(1, requires_grad=True).sum(), x


@programs.show("mask")
def dropout_of_everything():
    torch.manual_seed(0)
    x = torch.randn(4, requires_grad=True)
    h = F.dropout(x * 2, p=1.0, training=True)  # <-
    return (h + torch.ones(4, requires_grad=True)).sum(), x


@programs.show("mask")
def a_loss_weight_of_zero():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    main, other = net(x), nn.Linear(3, 1)(x)
    weight = 0.0
    return other.pow(2).mean() + weight * main.pow(2).mean(), net.weight  # <-


@programs.show("not_indexed", at=2)
def the_last_token_only():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    h = x * 2
    last = h[-1]  # <-
    return last**2, x


@programs.show("inplace_overwrite", at=1)
def a_buffer_filled_twice():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    out = torch.zeros(3)
    out[0] = x[0] * 2
    out[1] = x[1] * 3
    out[1] = 5.0  # <-
    return (out**2).sum(), x


@programs.show("inplace_overwrite")
def zero_the_hidden_state():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    h = x * 3
    h.zero_()  # <-
    return (h * torch.tensor([1.0, 2.0])).sum(), x


@programs.show("invariant_output")
def mean_of_a_normalized_batch():
    torch.manual_seed(0)
    x = torch.randn(8, 3, requires_grad=True)
    normed = F.batch_norm(x, None, None, training=True)  # <-
    return normed.mean(), x


@programs.show("detached_hidden_state")
def lstm_cell_by_hand():
    torch.manual_seed(0)
    cell = nn.LSTMCell(2, 3)
    x = torch.randn(4, 2, requires_grad=True)
    h, c = torch.zeros(1, 3), torch.zeros(1, 3)
    for t in range(4):
        h, c = cell(x[t : t + 1], (h, c))
        h, c = h.detach(), c.detach()  # <-
    h, c = cell(torch.zeros(1, 2), (h, c))
    return h.sum(), x


@programs.show("dot_data")
def soft_update_by_data():
    torch.manual_seed(0)
    online, target = nn.Linear(2, 2), nn.Linear(2, 2)
    mixed = 0.9 * target.weight + 0.1 * online.weight.data  # <-
    return F.linear(torch.ones(1, 2), mixed).sum(), online.weight


@programs.show("parameter_wrap")
def weights_generated_and_wrapped():
    torch.manual_seed(0)
    hyper, base = nn.Linear(2, 6), nn.Linear(2, 3, bias=False)
    z = torch.randn(1, 2)
    w = hyper(z).view(3, 2)
    del base.weight
    base.weight = nn.Parameter(w)  # <-
    return base(torch.ones(1, 2)).sum(), hyper.weight


@programs.show("copied_module")
def an_ema_copy_was_called():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    ema = copy.deepcopy(net)  # <-
    return ema(torch.ones(2, 3)).sum(), net.weight


@programs.show("sample_no_reparam")
def a_vae_that_samples():
    torch.manual_seed(0)
    enc, dec = nn.Linear(4, 2), nn.Linear(2, 4)
    x = torch.randn(3, 4)
    q = torch.distributions.Normal(enc(x), 1.0)
    z = q.sample()  # <-
    return F.mse_loss(dec(z), x), enc.weight


@programs.show("sample_no_reparam")
def a_bernoulli_gate():
    torch.manual_seed(0)
    logit = torch.zeros(4, requires_grad=True)
    x = torch.randn(4, requires_grad=True)
    gate = torch.bernoulli(torch.sigmoid(logit))  # <-
    return (gate * x).sum(), logit


@programs.show("not_requires_grad")
def an_image_to_attack():
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    image = torch.rand(1, 4)  # <-
    loss = F.cross_entropy(net(image), torch.tensor([1]))
    loss.backward()
    return loss, image


@programs.show("not_requires_grad")
def a_frozen_layer_that_should_train():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    for p in net.parameters():
        p.requires_grad_(False)  # <-
    net[1].weight.requires_grad_(True)
    return net(torch.ones(1, 3)).sum(), net[0].weight


@programs.show("late_requires_grad")
def asked_after_the_forward():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    x = torch.ones(2, 3)
    y = net(x).sum()
    x.requires_grad = True  # <-
    return y, x


@programs.show("nonleaf_grad")
def grad_of_a_hidden_layer():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    x = torch.ones(1, 3)
    h = net(x)  # <-
    loss = h.pow(2).sum()
    loss.backward()
    assert h.grad is None
    return loss, h


@programs.show("leaf_moved_by_to_device_or_cast", "nonleaf_grad")
def a_half_leaf():
    x = torch.ones(3, requires_grad=True).double()  # <-
    loss = (x * 2).sum()
    loss.backward()
    assert x.grad is None
    return loss, x


@programs.show("accumulated_grad")
def two_epochs_without_reset():
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(4, 2)
    for _ in range(2):
        loss = net(x).pow(2).mean()
        loss.backward()  # <-
        opt.step()
    return loss, net.weight


@programs.show("optimizer_wrong_params")
def only_the_head_is_optimized():
    torch.manual_seed(0)
    body, head = nn.Linear(2, 2), nn.Linear(2, 1)
    opt = torch.optim.Adam(head.parameters(), lr=0.1)  # <-
    opt.zero_grad()
    loss = head(torch.tanh(body(torch.ones(3, 2)))).pow(2).mean()
    loss.backward()
    opt.step()
    return loss, body.weight


@programs.show("inplace_saved_tensor")
def iadd_after_exp():
    x = torch.ones(3, requires_grad=True)
    e = x.exp()
    e += 1  # <-
    loss = e.sum()
    loss.backward()
    return loss, x


@programs.show("view_inplace")
def a_leaf_updated_by_hand():
    w = torch.ones(3, requires_grad=True)
    w -= 0.1  # <-
    return (w * 2).sum(), w


@programs.show("graph_freed")
def generator_and_discriminator_share():
    torch.manual_seed(0)
    g, d = nn.Linear(2, 2), nn.Linear(2, 1)
    fake = torch.sigmoid(g(torch.ones(1, 2)))
    d_loss = d(fake).pow(2).sum()
    d_loss.backward()  # <-
    g_loss = -d(fake).sum() + fake.pow(2).sum()
    g_loss.backward()
    return g_loss, g.weight


@programs.show("nonscalar_backward")
def a_loss_without_reduction():
    torch.manual_seed(0)
    net = nn.Linear(2, 2)
    loss = F.mse_loss(net(torch.ones(3, 2)), torch.zeros(3, 2), reduction="none")
    loss.backward()  # <-
    return loss, net.weight


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x**2 * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g, None


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x)
        return x * w

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g, None


@programs.show("custom_backward_wrong")
def a_factor_forgotten():
    x = torch.tensor([1.0, 2.0], requires_grad=True, dtype=torch.float64)
    return Square.apply(x, 3.0).sum(), x


@programs.show("custom_backward_none")
def none_for_the_weight():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    return NoGradient.apply(x, w).sum(), w


@programs.show("double_softmax")
def nll_of_softmax_logits():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Softmax(dim=-1))
    x = torch.randn(5, 3)
    p = net(x)  # <-
    loss = nn.CrossEntropyLoss()(p, torch.randint(0, 4, (5,)))
    return loss, net[0].weight


@programs.show("double_softmax")
def sigmoid_before_logits_loss():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    p = torch.sigmoid(net(torch.randn(5, 3)))  # <-
    return F.binary_cross_entropy_with_logits(p, torch.ones(5, 1)), net.weight


@programs.show("broadcast")
def column_against_row_in_a_module_loss():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    criterion = nn.MSELoss()
    loss = criterion(net(torch.randn(5, 3)), torch.randn(5))  # <-
    return loss, net.weight


@programs.show("hook")
def a_hook_that_zeroes():
    x = torch.ones(3, requires_grad=True)
    h = x * 2
    h.register_hook(lambda g: g * 0)  # <-
    return (h * 3).sum(), x


@programs.show("hook")
def a_hook_that_flips():
    x = torch.ones(3, requires_grad=True)
    h = x * 2
    h.register_hook(lambda g: -g)  # <-
    return (h * 3).sum(), x


@programs.show("log_zero")
def log_of_a_masked_probability():
    p = torch.tensor([0.0, 0.5, 0.5], requires_grad=True)
    return -(p * torch.log(p)).sum(), p  # <-


@programs.show("sqrt_at_zero")
def distance_to_itself():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    diff = x[:, None] - x[None]
    dist = (diff**2).sum(-1).sqrt()  # <-
    return dist.sum(), x


@programs.show("div_zero")
def cosine_by_hand():
    x = torch.zeros(3, requires_grad=True)
    y = torch.ones(3)
    s = (x * y).sum()
    return s / (x * x).sum(), x  # <-


@programs.show("norm_at_zero", "div_zero")
def unit_vectors():
    x = torch.zeros(2, 3, requires_grad=True)
    n = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    u = x / n  # <-
    return u.sum(), x


@programs.show("domain_edge")
def angle_between_equal_vectors():
    a = torch.tensor([1.0, 0.0], requires_grad=True)
    b = torch.tensor([1.0, 0.0])
    c = (a * b).sum()
    return torch.acos(c), a  # <-


@programs.show("where_nan_trap")
def safe_log():
    x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    y = torch.where(x > 0, torch.log(x), torch.zeros_like(x))  # <-
    return y.sum(), x


@programs.show("masked_softmax_row")
def attention_with_an_empty_row():
    torch.manual_seed(0)
    q = torch.randn(2, 3, requires_grad=True)
    scores = q @ torch.randn(3, 4)
    mask = torch.tensor([[True] * 4, [False] * 4])
    scores = scores.masked_fill(~mask, float("-inf"))
    a = torch.softmax(scores, -1)  # <-
    return (a * torch.randn(2, 4)).sum(), q


@programs.show("degenerate_eig")
def eigenvectors_of_the_identity():
    a = torch.eye(3, requires_grad=True)
    values, vectors = torch.linalg.eigh(a)  # <-
    return vectors.abs().pow(3).sum(), a


@programs.show("fresh_leaf_loss")
def requires_grad_to_silence_the_error():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    out = net(torch.ones(1, 3))
    loss = (out.argmax(1).float() - 1).pow(2).mean()
    loss.requires_grad_()
    loss.backward()
    return loss, net.weight


@programs.show("unused_input")
def a_branch_not_taken():
    torch.manual_seed(0)
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    x = torch.ones(1, 2)
    use_b = False
    y = b(x) if use_b else a(x)
    return y.sum(), b.weight


@programs.show("recomputed_tensor")
def the_embedding_called_again():
    torch.manual_seed(0)
    emb = nn.Embedding(5, 3)
    ids = torch.tensor([1, 2])
    loss = emb(ids).pow(2).sum()
    e = emb(ids)  # <-
    return loss, e


@programs.show("int_input")
def integers_from_a_list():
    x = torch.tensor([1, 2, 3], requires_grad=True)  # <-
    return (x * 2).sum(), x


@programs.show("save_for_backward_nontensor")
def a_float_was_saved():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x, k)  # <-
            return x * k

        @staticmethod
        def backward(ctx, g):
            x, k = ctx.saved_tensors
            return g * k, None

    x = torch.ones(2, requires_grad=True)
    return Scale.apply(x, 3.0).sum(), x


@programs.show("low_precision")
def half_underflow():
    x = torch.tensor([1e-5, 2e-5], dtype=torch.float16, requires_grad=True)
    h = x * x * x
    return (h.float() * 3).sum(), x


@programs.show("vanishing_chain")
def sixty_sigmoid_layers():
    torch.manual_seed(0)
    x = torch.randn(4, requires_grad=True)
    h = x
    w = torch.randn(4, 4) * 0.5
    for _ in range(30):
        h = torch.sigmoid(h @ w)  # <-
    return h.sum(), x


@programs.show("exploding_product")
def a_recurrent_product():
    torch.manual_seed(0)
    x = torch.randn(4, requires_grad=True)
    w = torch.eye(4) * 4
    h = x
    for _ in range(40):
        h = h @ w  # <-
    return h.sum(), x


@programs.show("no_derivative")
def nearest_resampling():
    img = torch.rand(1, 1, 4, 4)
    theta = torch.eye(2, 3)[None].requires_grad_()
    grid = F.affine_grid(theta, (1, 1, 4, 4), align_corners=False)
    out = F.grid_sample(img, grid, mode="nearest", align_corners=False)  # <-
    return (out * torch.arange(16.0).view(1, 1, 4, 4)).sum(), theta


@programs.show("tie_subgradient")
def max_pool_of_a_flat_image():
    x = torch.ones(1, 1, 2, 2, requires_grad=True)
    m = x.amax((2, 3))  # <-
    n = torch.maximum(m, torch.ones(1, 1))
    return n.sum(), x


# ---------------------------------------------------------------- healthy


@programs.show("none")
def a_gan_step():
    torch.manual_seed(0)
    g, d = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
    real, z = torch.randn(8, 2), torch.randn(8, 2)
    od.zero_grad()
    loss_d = F.softplus(-d(real)).mean() + F.softplus(d(g(z).detach())).mean()
    loss_d.backward()
    od.step()
    og.zero_grad()
    loss_g = F.softplus(-d(g(z))).mean()
    loss_g.backward()
    og.step()
    return loss_g, g.weight


@programs.show("none")
def target_network_and_replay():
    torch.manual_seed(0)
    q, target = nn.Linear(3, 2), nn.Linear(3, 2)
    target.load_state_dict(q.state_dict())
    s, a, r = torch.randn(6, 3), torch.randint(0, 2, (6, 1)), torch.randn(6)
    with torch.no_grad():
        goal = r + 0.9 * target(s).max(1).values
    loss = F.smooth_l1_loss(q(s).gather(1, a).squeeze(1), goal)
    return loss, q.weight


@programs.show("none")
def gradient_accumulation_on_purpose():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    opt.zero_grad()
    for _ in range(3):
        loss = net(torch.randn(4, 3)).pow(2).mean() / 3
        loss.backward()
    opt.step()
    return loss, net.weight


@programs.show("none")
def attention_with_padding():
    torch.manual_seed(0)
    mha = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 5, 8)
    pad = torch.tensor([[False] * 5, [False, False, False, True, True]])
    out, _ = mha(x, x, x, key_padding_mask=pad)
    loss = out[~pad].pow(2).mean()
    return loss, mha.in_proj_weight


@programs.show("none")
def straight_through_rounding():
    x = torch.tensor([0.3, 1.2], requires_grad=True)
    q = x + (torch.round(x) - x).detach()
    return (q * torch.tensor([1.0, 2.0])).sum(), x


@programs.show("none")
def dropout_and_batch_norm():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    loss = F.cross_entropy(net(torch.randn(16, 4)), torch.randint(0, 3, (16,)))
    return loss, net[0].weight


@programs.show("none")
def clipping_that_does_nothing():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    loss = net(torch.randn(4, 3)).clamp(-100, 100).pow(2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    return loss, net.weight


@programs.show("none")
def a_stable_norm():
    x = torch.tensor([0.0, 0.0, 3.0], requires_grad=True)
    return torch.sqrt((x * x).sum() + 1e-12), x


@programs.show("none")
def second_order():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return (g**2).sum(), x


@programs.show("none")
def a_logged_histogram():
    torch.manual_seed(0)
    net = nn.Linear(3, 4)
    x = torch.randn(9, 3)
    logits = net(x)
    counts = torch.bincount(logits.argmax(1), minlength=4)
    hist = np.histogram(logits.detach().numpy(), bins=3)
    loss = F.cross_entropy(logits, torch.randint(0, 4, (9,)))
    assert counts.sum() == 9
    assert hist[0].sum() == 36
    return loss, net.weight


@programs.show("none")
def truncated_backprop():
    torch.manual_seed(0)
    cell = nn.RNNCell(2, 3)
    h = torch.zeros(1, 3)
    for start in range(0, 6, 3):
        h = h.detach()
        for t in range(3):
            h = cell(torch.full((1, 2), float(start + t)), h)
        loss = h.pow(2).sum()
    return loss, cell.weight_hh


@programs.show("none")
def masked_mean_with_where():
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    safe = torch.where(x > 0, x, torch.ones_like(x))
    return torch.where(x > 0, safe.log(), torch.zeros_like(x)).sum(), x
