"""Failures that people asked about in PyTorch, and healthy programs that look like them.

One program each, as short as it still fails; where the question stands is said in its first lines.
"""

import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal
from torch.utils.checkpoint import checkpoint

from tests.why._programs import Programs

programs = Programs()
show = programs.show


@show("detach")
def feats_detach():
    """Saliency on a raw waveform: the recipe detaches the features before the encoder.

    speechbrain/speechbrain#1396
    """

    def features(wav):
        return wav.unfold(0, 4, 2).pow(2).mean(-1)

    torch.manual_seed(0)
    enc = nn.Linear(7, 3)
    wav = torch.randn(16, requires_grad=True)
    feats = features(wav)
    h = enc(feats.detach())  # <-
    loss = torch.tanh(h).sum()
    return loss, wav


@show("detach")
def centroid_detach_loss():
    """Memory-bank loss whose only use of the embedding is detached.

    haowang1992/DSN#2
    """

    class MemoryLoss(nn.Module):
        def __init__(self, n, d):
            super().__init__()
            self.register_buffer("bank", torch.linspace(-1, 1, n * d).view(n, d))

        def forward(self, z):
            z = F.normalize(z, dim=1)
            sim = z.detach() @ self.bank.t()  # <-
            return -sim.logsumexp(1).mean()

    torch.manual_seed(1)
    net = nn.Linear(5, 4)
    z = net(torch.randn(2, 5))
    return MemoryLoss(6, 4)(z), net.weight


@show("detached_hidden_state", "detach", "dot_data")
def rnn_state_data():
    """h_state.data between two chunks: the second loss cannot see the first chunk.

    MorvanZhou/PyTorch-Tutorial#57
    """
    torch.manual_seed(0)
    rnn = nn.RNN(2, 3, batch_first=True)
    x1 = torch.randn(1, 4, 2, requires_grad=True)
    x2 = torch.randn(1, 4, 2)
    _, h_state = rnn(x1)
    h_state = h_state.data  # <-
    out, _ = rnn(x2, h_state)
    return out[:, -1].sum(), x1


@show("item")
def item_temperature():
    """A learnable temperature read with .item()."""

    def attention(q, k, temperature):
        t = temperature.item()  # <-
        return torch.softmax(q @ k.t() / t, dim=-1)

    torch.manual_seed(0)
    temperature = nn.Parameter(torch.tensor(0.7))
    q = torch.randn(2, 4, requires_grad=True)
    att = attention(q, torch.randn(3, 4), temperature)
    return att[0, 0], temperature


@show("item")
def float_of_tensor():
    """math.exp(float(log_sigma)) instead of log_sigma.exp()."""
    mu = torch.tensor([0.2, 0.4], requires_grad=True)
    log_sigma = torch.tensor(-1.0, requires_grad=True)
    eps = torch.tensor([0.3, -0.5])
    sigma = math.exp(float(log_sigma))  # <-
    z = mu + sigma * eps
    loss = (z ** 2).sum()
    return loss, log_sigma


@show("numpy_roundtrip", "detach")
def numpy_adjacency():
    """A graph attack computes its edge scores in numpy.

    DSE-MSU/DeepRobust#16
    """
    adj_changes = torch.tensor([0.2, 0.9, 0.4], requires_grad=True)
    s = adj_changes.detach().cpu().numpy()  # <-
    s = np.clip(s, 0.0, 0.8)
    scores = torch.from_numpy(s) * torch.tensor([1.0, 2.0, 3.0])
    bias = torch.zeros(3, requires_grad=True)
    return (scores + bias).sum(), adj_changes


@show("retensor")
def tensor_of_tensor():
    """torch.tensor(x) on something that is already a tensor.

    pytorch/pytorch#10876
    """
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = torch.tensor([0.1, 0.1, 0.1], requires_grad=True)
    h = x * 2
    h = torch.tensor(h)  # <-
    return (h + b).prod(), x


@show("no_grad")
def frozen_backbone_no_grad():
    """A frozen backbone run under no_grad, then the input gradient is wanted.

    huggingface/transformers#43923
    """

    class Cache:
        @torch.no_grad()
        def update(self, old, new):
            return torch.cat([old, new])  # <-

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    keys = Cache().update(torch.empty(0), x * 3)
    head = torch.tensor([0.5, 0.25], requires_grad=True)
    return (keys * head).sum(), x


@show("inference_mode")
def inference_mode_feature():
    """Features extracted in inference_mode, cloned, then trained through.

    facebookresearch/dinov2#472
    """
    torch.manual_seed(0)
    backbone, head = nn.Linear(3, 3), nn.Linear(3, 1)
    x = torch.randn(2, 3)
    with torch.inference_mode():
        f = backbone(x)  # <-
    y = head(f.clone())
    return y.sum(), backbone.weight


@show("argmax")
def argmax_between_modules():
    """argmax of module one feeds module two.

    pytorch/pytorch#1339
    """
    torch.manual_seed(0)
    first = nn.Linear(4, 5)
    second = nn.Embedding(5, 3)
    x = torch.randn(2, 4)
    scores = first(x)
    y_p = torch.max(scores, 1)[1]  # <-
    out = second(y_p)
    return out.pow(2).sum(), first.weight


@show("integer_output")
def searchsorted_bins():
    """Quantile position found with searchsorted.

    pytorch/pytorch#41389
    """
    edges = torch.tensor([0.0, 1.0, 2.0, 3.0])
    value = torch.tensor([0.4, 2.5], requires_grad=True)
    w = torch.tensor([1.0, 1.0], requires_grad=True)
    pos = torch.searchsorted(edges, value)  # <-
    cdf = pos / len(edges)
    return (cdf * w).sum(), value


@show("integer_cast")
def long_pixel_lookup():
    """Reading an image at a learnable position through .long()."""
    img = torch.arange(16.0).view(4, 4).requires_grad_()
    pos = torch.tensor([1.3, 2.7], requires_grad=True)
    ij = pos.long()  # <-
    value = img[ij[0], ij[1]]
    return value * 2, pos


@show("comparison")
def learnable_threshold():
    """A learnable threshold used only in a comparison.

    https://discuss.pytorch.org/t/if-a-parameter-is-trainable-in-the-following-case/149907
    """
    a = torch.tensor([3.0, 4.0, 5.0, 6.0], requires_grad=True)
    thres = torch.tensor(4.0, requires_grad=True)
    keep = a > thres  # <-
    return a[keep].sum(), thres


@show("not_requires_grad")
def input_without_requires_grad():
    """Saliency on an input that never asked for gradients.

    https://discuss.pytorch.org/t/loss-grad-is-constant-1/130964
    """
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    x = torch.randn(1, 3)  # <-
    return model(x).sum(), x


@show("nonleaf_grad")
def intermediate_grad_attr():
    """.grad of an intermediate tensor after backward().

    pytorch/pytorch#2362
    """
    torch.manual_seed(0)
    x = torch.randn(2, 3, requires_grad=True)
    h = torch.relu(x @ torch.randn(3, 4))  # <-
    loss = h.pow(2).sum()
    loss.backward()
    return loss, h


@show("leaf_moved_by_to_device_or_cast")
def leaf_cast_type():
    """w1 = torch.randn(..., requires_grad=True).type(dtype): the leaf is lost.

    hhsecond/HandsOnDeepLearningWithPytorch#2
    """
    torch.manual_seed(0)
    dtype = torch.float64
    w1 = torch.randn(3, 2, requires_grad=True).type(dtype)  # <-
    x = torch.ones(1, 3, dtype=dtype)
    loss = (x @ w1).pow(2).sum()
    loss.backward()
    return loss, w1


@show("dot_data")
def meta_step_data():
    """eps is not part of the graph: the virtual step is written through .data.

    danieltan07/learning-to-reweight-examples#5
    """
    w = torch.tensor([1.0, -1.0], requires_grad=True)
    eps = torch.zeros(2, requires_grad=True)
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    inner = (eps * (x @ w).pow(2)).sum()
    g, = torch.autograd.grad(inner, w, create_graph=True)
    w.data = w.data - 0.1 * g.data  # <-
    val = (x @ w).pow(2).sum()
    return val, eps


@show("parameter_wrap")
def hypernet_parameter_wrap():
    """A hypernetwork's output is wrapped in nn.Parameter.

    NVlabs/tiny-cuda-nn#162
    """
    torch.manual_seed(0)
    hyper = nn.Linear(2, 6)
    layer = nn.Linear(3, 2, bias=False)
    w = hyper(torch.ones(2)).view(2, 3)
    layer.weight = nn.Parameter(w)  # <-
    return layer(torch.ones(1, 3)).sum(), hyper.weight


@show("copied_module")
def maml_deepcopy():
    """MAML inner loop on copy.deepcopy(model).

    vmikulik/maml-pytorch#2
    """
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    x, y = torch.ones(3, 2), torch.zeros(3, 1)
    fast = copy.deepcopy(model)  # <-
    loss = (fast(x) - y).pow(2).mean()
    grads = torch.autograd.grad(loss, list(fast.parameters()), create_graph=True)
    w = fast.weight - 0.1 * grads[0]
    outer = (x @ w.t() - y).pow(2).mean()
    return outer, model.weight


@show("checkpoint_reentrant", "no_grad")
def checkpoint_reentrant():
    """Activation checkpointing with no input that requires grad.

    pytorch/pytorch#7617
    """
    torch.manual_seed(0)
    block, head = nn.Linear(3, 3), nn.Linear(3, 1)
    x = torch.randn(2, 3)
    h = checkpoint(block, x, use_reentrant=True)  # <-
    return head(h).sum(), block.weight


@show("sample_no_reparam", "no_grad")
def sample_not_rsample():
    """Fitting a Gaussian by comparing samples drawn with .sample().

    jeanfeydy/geomloss#31
    """
    torch.manual_seed(0)
    mean = nn.Parameter(torch.zeros(3))
    std = nn.Parameter(torch.ones(3))
    shift = torch.zeros(3, requires_grad=True)
    z = Normal(mean, std).sample((8,))  # <-
    return (z + shift - 1).pow(2).mean(), mean


@show("sort_indices")
def argsort_rank_loss():
    """Rank correlation from argsort().argsort()."""

    def rank(x):
        return x.argsort().argsort().float()  # <-

    pred = torch.tensor([0.3, 0.1, 0.7], requires_grad=True)
    w = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)
    return (w * (rank(pred) - torch.tensor([0.0, 1.0, 2.0])).pow(2)).sum(), pred


@show("round")
def round_quantize():
    """Quantisation-aware loss with torch.round.

    https://discuss.pytorch.org/t/torch-round-gradient/28628
    """

    def quantize(x, step):
        return torch.round(x / step) * step  # <-

    w = torch.tensor([0.12, 0.58, -0.33], requires_grad=True)
    return (quantize(w, 0.1) - 0.2).pow(2).sum(), w


@show("sign")
def sign_binarize():
    """A step activation: torch.sign after a linear layer.

    https://discuss.pytorch.org ('Circumventing an indifferentiability problem', 2019-04-04)
    """
    fc1 = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        fc1.weight.copy_(torch.tensor([[1.0, 3.0], [2.0, 4.0]]))
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    y = fc1(x)
    z = torch.sign(y)  # <-
    return (0 - z.sum()).abs(), x


@show("round")
def floor_division_phase():
    """Phase unwrapping with torch.floor only.

    https://github.com/tensorflow/tensorflow/issues/8625 (same op in torch)
    """
    t = torch.tensor([0.2, 1.7, 3.4], requires_grad=True)
    cycles = torch.floor(t)  # <-
    return (cycles * torch.tensor([1.0, 2.0, 3.0])).sum(), t


@show("clamp")
def clamp_out_of_range():
    """Action clamped to [-1, 1] while the policy is far outside.

    pytorch/pytorch#7002
    """
    log_action = torch.tensor([3.0, -2.5], requires_grad=True)
    action = torch.clamp(log_action, -1.0, 1.0)  # <-
    return (action - 0.3).pow(2).sum(), log_action


@show("dead_relu")
def dead_relu_bias():
    """A large update drove the bias so low that no unit fires."""
    torch.manual_seed(0)
    fc1, fc2 = nn.Linear(3, 4), nn.Linear(4, 1)
    with torch.no_grad():
        fc1.bias.fill_(-50.0)
    x = torch.rand(5, 3)
    h = torch.relu(fc1(x))  # <-
    return fc2(h).pow(2).sum(), fc1.weight


@show("saturated")
def saturated_sigmoid_bce():
    """sigmoid(large logit) then a squared loss: the derivative underflows to zero.

    pytorch/pytorch#195529
    """
    logit = torch.tensor([120.0, -130.0], requires_grad=True)
    p = torch.sigmoid(logit)  # <-
    return (p - torch.tensor([0.0, 1.0])).pow(2).sum(), logit


@show("double_softmax")
def softmax_then_cross_entropy():
    """softmax in the model and again in CrossEntropyLoss."""

    class Net(nn.Module):
        def forward(self, logits):
            return torch.softmax(logits, dim=1)  # <-

    logits = torch.tensor([[18.0, -1.0, 0.5], [-1.0, 22.0, 0.3]], requires_grad=True)
    target = torch.tensor([1, 0])
    return F.cross_entropy(Net()(logits), target), logits


@show("mask")
def padding_mask_zero():
    """The token of interest is masked out."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, requires_grad=True)
    tok = x[1]
    mask = torch.tensor([[1.0], [0.0]])
    h = torch.stack([x[0], tok]) * mask  # <-
    return h.pow(2).sum(), tok


@show("not_indexed", at=3)
def row_not_selected():
    """Only x[0] is used; the gradient at x[3] is zero.

    seed 001 (element 0 of a tensor)
    """
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    element_zero = x[0]  # <-
    y = element_zero * 2
    return y, x


@show("inplace_overwrite", at=0)
def slice_overwritten():
    """x[:, :3] = 0 after the layer: the overwritten half gets no gradient.

    pytorch/xla#1718
    """
    torch.manual_seed(0)
    linear = nn.Linear(4, 6, bias=False)
    batch = torch.rand(2, 4)
    x = linear(batch)
    x[:, :3] = 0  # <-
    return x.sum(), linear.weight


@show("inplace_saved_tensor")
def copy_loop_version():
    """x.copy_(...) in a loop overwrites a tensor saved for backward.

    pytorch/pytorch#15115
    """
    mu = torch.ones(1, requires_grad=True)
    x = torch.zeros(1)
    loss = 0
    for _ in range(3):
        x.detach_()
        x.copy_(torch.exp(mu))  # <-
        loss = loss + (x * x).sum()
    return loss, mu


@show("inplace_saved_tensor")
def residual_alias_iadd():
    """out = x; out += ... corrupts the sigmoid output saved for backward.

    Jee-King/TSAN#3
    """

    def block(inp):
        x = torch.sigmoid(inp)
        out = x
        out += inp  # <-
        return out

    inp = torch.tensor([0.5, -0.5], requires_grad=True)
    return block(inp).sum(), inp


@show("view_inplace")
def chunk_imul():
    """In-place scaling of one output of chunk().

    pytorch/pytorch#46820
    """
    flow = torch.rand(1, 2, 2, requires_grad=True) * 1.0
    u, v = flow.chunk(2, dim=1)
    v *= 3.0  # <-
    return (u + v).sum(), flow


@show("graph_freed")
def second_backward():
    """The loss cell is not rerun before the second backward().

    karpathy/nn-zero-to-hero#31
    """
    W = torch.tensor([[0.1, 0.2], [0.3, 0.4]], requires_grad=True)
    x = torch.tensor([[1.0, 2.0]])
    logits = x @ W
    loss = -torch.log_softmax(logits, 1)[0, 1].exp().log()
    loss.backward()  # <-
    return loss, W


@show("nonscalar_backward")
def vector_backward():
    """backward() on a vector without a gradient argument.

    https://stackoverflow.com/questions/70246575
    """
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    out = a * a
    out.backward()  # <-
    return out, a, a.grad


@show("int_input")
def int_requires_grad():
    """requires_grad on an integer tensor.

    PaddlePaddle/Paddle#50770
    """
    a = torch.tensor([2, 3])
    a.requires_grad = True  # <-
    return torch.log(a).sum(), a


@show("custom_backward_wrong")
def isrlu_ignores_grad_out():
    """A custom activation whose backward forgets the incoming gradient.

    pytorch/pytorch#4355
    """

    class ISRLU(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, alpha):
            neg = torch.clamp(x, max=0)
            nisr = torch.rsqrt(1.0 + alpha * neg ** 2)
            ctx.nisr = nisr
            return x * nisr

        @staticmethod
        def backward(ctx, grad_out):
            return ctx.nisr ** 3, None  # <-

    x = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    y = ISRLU.apply(x, 1.0)
    return (y * torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64)).sum(), x


@show("custom_backward_wrong")
def swish_backward_missing_term():
    """A hand-written swish backward that forgets one product-rule term.

    KeKsBoTer/torch-dwt#2 (backward fails gradcheck)
    """

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * s  # <-

    torch.manual_seed(0)
    lin = nn.Linear(2, 3).double()
    x = torch.tensor([[0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    return Swish.apply(lin(x)).sum(), x


@show("accumulated_grad")
def tripled_gradient():
    """Three backward() calls: x.grad[2] is three times the derivative.

    seed 000 example 3
    """
    torch.manual_seed(0)
    x = torch.randn(5, requires_grad=True)
    weights = torch.randn(5, requires_grad=True)
    target_index = 2
    loss = torch.sum(x * weights).mean()
    loss.backward()
    loss2 = (x[target_index] * weights[target_index]).mean()
    loss2.backward(retain_graph=True)
    loss = torch.sum(x * weights).mean()
    loss.backward()  # <-
    return loss, x


@show("broadcast")
def mse_broadcast():
    """MSE between (N, 1) and (N,) broadcasts to (N, N).

    pytorch/pytorch#19699
    """
    pred = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    target = torch.tensor([1.5, 2.0, 5.0])
    loss = F.mse_loss(pred, target)  # <-
    return loss, pred


@show("objective_sign")
def mse_ascent_sign():
    """Adversarial step: ascending an MSE moves the activation away from its target.

    seed 003 example 3
    """
    torch.manual_seed(0)
    fc1, fc2 = nn.Linear(12, 8), nn.Linear(8, 6)
    x = torch.randn(1, 12, requires_grad=True)
    h = torch.tanh(fc2(torch.tanh(fc1(x))))
    want = torch.zeros_like(h)
    want[0, 3] = 1
    attack_loss = F.mse_loss(h, want)
    attack_loss.backward()
    step = 0.01 * x.grad.sign()  # <-
    return attack_loss, x, step


@show("where_nan_trap")
def where_exp_overflow():
    """torch.where(a <= 0, exp(a), 1 + a) at a = 100.

    pytorch/pytorch#68425
    """
    a = torch.tensor(100.0, requires_grad=True)
    e = torch.exp(a)  # <-
    b = torch.where(a <= 0, e, 1 + a)
    return b, a


@show("where_nan_trap")
def where_sqrt_negative():
    """An inactive sqrt branch poisons the gradient.

    pytorch/pytorch#187297
    """

    def safe_sqrt(x):
        return torch.where(x > 0, torch.sqrt(x), x)  # <-

    xt = torch.tensor([-1.0, 4.0], requires_grad=True)
    return safe_sqrt(xt * 1.0).sum(), xt


@show("sqrt_at_zero")
def euclid_sqrt_zero():
    """pow(2).sum().sqrt() of identical points.

    pytorch/pytorch#2775
    """

    def dist(a, b):
        return (a - b).pow(2).sum(-1).sqrt()  # <-

    a = torch.tensor([[1.0, 2.0], [0.0, 1.0]], requires_grad=True)
    b = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
    return dist(a, b).sum(), a


@show("norm_at_zero", "sqrt_at_zero", "domain_edge")
def normalize_zero_vector():
    """F.normalize of a zero vector: gradient about 1e12.

    pytorch/pytorch#184575
    """
    x = torch.zeros(1, 3, requires_grad=True)
    y = F.normalize(x, dim=1)  # <-
    return y.sum(), x


@show("log_zero", "domain_edge")
def log_of_softmax():
    """log(softmax(x)) with an underflowed probability.

    pytorch/pytorch#1620
    """
    data = torch.tensor([[0.0, 150.0, -50.0]], requires_grad=True)
    p = torch.softmax(data, dim=1)
    logp = torch.log(p)  # <-
    return F.nll_loss(logp, torch.tensor([2])), data


@show("div_zero")
def margin_over_zero():
    """margin + sign(margin) * thresh is 0 at margin = 0.

    https://discuss.pytorch.org ('Incorrect Gradient Computation', 2023-01-05)
    """
    z = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    margin = torch.zeros(1, dtype=torch.float64)
    d = margin + torch.sign(margin) * 1e-10
    q = z / d  # <-
    loss = F.softplus(1.0 - q) * d.abs()
    return loss.sum(), z


@show("domain_edge")
def acos_of_one():
    """Angle between equal directions: acos(1).

    pytorch/pytorch#4605
    """
    angle = torch.zeros(1, requires_grad=True)
    cos = torch.cos(angle)
    a = torch.acos(cos)  # <-
    return a.sum(), angle


@show("degenerate_eig")
def eigh_degenerate():
    """Eigenvectors of a matrix with repeated eigenvalues.

    pytorch/pytorch#47599
    """
    a = torch.eye(3, dtype=torch.float64, requires_grad=True)
    vals, vecs = torch.linalg.eigh(a * 2)  # <-
    return (vecs * torch.arange(9.0, dtype=torch.float64).view(3, 3)).sum(), a


@show("masked_softmax_row")
def fully_masked_row():
    """softmax over a row that is all -inf.

    jadore801120/attention-is-all-you-need-pytorch#5
    """
    scores = torch.tensor([[1.0, 2.0], [0.5, 0.1]], requires_grad=True)
    ninf = float("-inf")
    bias = torch.tensor([[0.0, 0.0], [ninf, ninf]])
    att = torch.softmax(scores + bias, dim=1)  # <-
    return (att * torch.tensor([1.0, 2.0]))[:1].sum(), scores


@show("low_precision")
def bf16_clamp_noop():
    """clamp(max=1 - 1e-6) is a no-op in bfloat16.

    fastino-ai/GLiNER2#155
    """
    logits = torch.tensor([20.0, 0.0], dtype=torch.bfloat16, requires_grad=True)
    p = torch.sigmoid(logits)
    surv = torch.log1p(-p.clamp(max=1.0 - 1e-6))  # <-
    w = torch.tensor([0.0, 1.0], dtype=torch.bfloat16)
    return (w * surv).nan_to_num().sum(), logits


@show("exploding_product")
def rnn_explode():
    """A linear recurrence with spectral radius above one."""
    W = torch.tensor([[1.6, 0.3], [0.2, 1.4]], requires_grad=True)
    h = torch.ones(2)
    for t in range(60):
        h = W @ h  # <-
    return h.sum(), W


@show("vanishing_chain")
def deep_sigmoid_vanish():
    """Twenty sigmoid layers: the first layer's gradient is about 1e-13."""

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(20))

        def forward(self, x):
            for layer in self.layers:
                x = torch.sigmoid(layer(x))  # <-
            return x

    torch.manual_seed(0)
    net = Deep()
    return net(torch.ones(1, 4)).sum(), net.layers[0].weight


@show("invariant_output")
def layernorm_sum():
    """LayerNorm followed by sum(): the gradient is zero by construction.

    pytorch/pytorch#63541
    """
    torch.manual_seed(0)
    ln = nn.LayerNorm(4)
    x = torch.tensor([[1.0, 2.0, 4.0, 8.0]], dtype=torch.float64, requires_grad=True)
    out = ln.double()(x)  # <-
    return out.sum(), x


@show("late_requires_grad")
def late_requires_grad():
    """requires_grad is switched on after the computation."""
    x = torch.tensor([1.0, 2.0])
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    y = (x * w).sum()
    x.requires_grad_(True)  # <-
    return y, x


@show("fresh_leaf_loss", "argmax", "comparison")
def loss_requires_grad_hack():
    """loss.requires_grad = True silences the error and trains nothing.

    Kostis-S-Z/exploring_meta#16
    """

    def accuracy_loss(out, label):
        return (out.argmax(1) != label).float().mean()  # <-

    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    loss = accuracy_loss(model(torch.randn(4, 3)), torch.tensor([0, 1, 0, 1]))
    loss.requires_grad = True
    return loss, model.weight


@show("recomputed_tensor")
def recomputed_activation():
    """Grad-CAM: the activation comes from a second forward pass.

    sicara/tf-explain#102 (same mistake in torch)
    """

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(torch.relu(self.body(x)))

    torch.manual_seed(0)
    net, x = Net(), torch.rand(1, 3)
    score = net(x)[0, 1]
    act = torch.relu(net.body(x))  # <-
    return score, act


@show("unused_input")
def unused_layer():
    """A layer is declared but never called."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)
            self.skip = nn.Linear(3, 2)  # <-

        def forward(self, x):
            return torch.relu(self.fc(x))

    torch.manual_seed(0)
    net = Net()
    return net(torch.ones(1, 3)).sum(), net.skip.weight


@show("optimizer_wrong_params")
def optimizer_old_head():
    """The head was replaced after the optimizer was built: it never moves."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.5)  # <-
    model[1] = nn.Linear(3, 2)
    before = model[1].weight.detach().clone()
    loss = model(torch.ones(2, 3)).pow(2).sum()
    loss.backward()
    opt.step()
    return loss, model[1].weight, model[1].weight.detach() - before


@show("tie_subgradient")
def max_tie():
    """maximum(a, b) at a == b: half a gradient each, while the one-sided slope is one.

    pytorch/pytorch#56734
    """
    a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 0.0], dtype=torch.float64)
    y = torch.maximum(a, b)  # <-
    return y.sum(), a


@show("none")
def index_zero():
    """Control: indexing with x[0] has a correct gradient.

    seed 001 example 1 (x[0] IS differentiable)
    """
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    return x[0] * 2, x


@show("none")
def detach_for_logging():
    """Control: detach() and .item() are used for logging only.

    control
    """
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    h = w * 3
    log = h.detach().mean().item()
    loss = h.pow(2).sum()
    print_me = f"{log:.2f}"
    return loss, w


@show("none")
def argmax_metric():
    """Control: argmax is used for the accuracy only.

    control
    """
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    out = net(torch.ones(4, 3))
    acc = (out.argmax(1) == torch.tensor([0, 1, 0, 1])).float().mean()
    return F.cross_entropy(out, torch.tensor([0, 1, 0, 1])), net.weight


@show("none")
def double_where():
    """Control: the double-where trick, correctly applied.

    control (double where)
    """
    x = torch.tensor([-1.0, 4.0], requires_grad=True)
    safe = torch.where(x > 0, x, torch.ones_like(x))
    return torch.where(x > 0, torch.sqrt(safe), x).sum(), x


@show("none")
def clamp_inside():
    """Control: clamp with every value inside the range.

    control
    """
    x = torch.tensor([0.2, -0.4], requires_grad=True)
    return torch.clamp(x, -1, 1).pow(2).sum(), x


@show("none")
def max_no_tie():
    """Control: max without a tie; some zero entries are right.

    control
    """
    x = torch.tensor([1.0, 5.0, 2.0], requires_grad=True)
    return x.max(dim=0).values * 2, x


@show("none")
def straight_through():
    """Control: round with a deliberate straight-through detach.

    control (straight-through estimator)
    """
    x = torch.tensor([0.2, 1.7], requires_grad=True)
    q = x + (x.round() - x).detach()
    return (q * torch.tensor([1.0, 2.0])).sum(), x
