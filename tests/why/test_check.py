"""`wrt.check` names the one wrong backward among many operations, and is silent on right ones."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import wrt  # noqa: E402

KINDS = ["sign", "missing term", "factor", "broadcast", "ignored", "transposed", "stale", "mutated"]


def mixing(kind: str):
    """x @ w * b with a backward that is right, or wrong in one way."""
    kept = {}

    class Mix(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b):
            ctx.save_for_backward(x, w, b)
            kept["x"] = x
            return torch.sin(x) @ w * b

        @staticmethod
        def backward(ctx, g):
            x, w, b = ctx.saved_tensors
            if kind == "stale":
                x = kept["x"]
            if kind == "ignored":
                g = torch.ones_like(g)
            out = torch.sin(x) @ w
            to_x = (g * b) @ w.T * torch.cos(x)
            to_w = torch.sin(x).T @ (g * b)
            to_b = (g * out).sum(0)
            if kind == "sign":
                to_x = -to_x
            if kind == "missing term":
                to_x = (g * b) @ w.T
            if kind == "factor":
                to_w = 2 * to_w
            if kind == "broadcast":
                to_b = (g * out)[0]
            if kind == "transposed":
                to_w = to_w.T
            if kind == "mutated":
                g.mul_(2)
            return to_x, to_w, to_b

    return Mix


def network(function, seed: int, dtype):
    """Some thirty operations around two calls of the function."""
    torch.manual_seed(seed)
    weights = [(0.5 * torch.randn(4, 4)).to(dtype) for _ in range(6)]
    bias = torch.rand(4).to(dtype) + 0.5

    def run(x):
        h = x
        for w in weights[:3]:
            h = torch.tanh(h @ w) + 0.1 * h
        h = function.apply(h, weights[3], bias) + h.mean()
        for w in weights[4:]:
            h = torch.nn.functional.softplus(h @ w) * torch.sigmoid(h)
        return (function.apply(h, weights[3], bias) ** 2).sum().log1p()

    return run


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_backward_is_named(kind, seed):
    dtype = torch.float64 if seed % 2 else torch.float32
    found = wrt.check(network(mixing(kind), seed, dtype), torch.randn(3, 4).to(dtype))
    assert found
    assert all("Mix" in finding.sentence for finding in found), str(found)
    assert found[0].certain
    assert found[0].file == __file__


@pytest.mark.parametrize("seed", range(40))
def test_a_right_backward_is_left_alone(seed):
    dtype = torch.float64 if seed % 2 else torch.float32
    found = wrt.check(network(mixing("right"), seed, dtype), torch.randn(3, 4).to(dtype))
    assert not found, str(found)


def test_the_mean_output_of_layer_norm_is_found():
    def f(x):
        normed, mean, _ = torch.native_layer_norm(x, (3,), None, None, 1e-5)
        return normed.pow(2).sum() + mean.sum()

    found = wrt.check(f, torch.randn(2, 3))
    assert len(found) == 1
    assert "native_layer_norm" in found[0].sentence


def test_common_layers_pass():
    nn = torch.nn
    torch.manual_seed(0)
    conv = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )
    loss = nn.CrossEntropyLoss()
    assert not wrt.check(lambda x: loss(conv(x), torch.tensor([0, 1])), torch.randn(2, 3, 8, 8))
    assert not wrt.check(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8))
    lstm = nn.LSTM(4, 5, batch_first=True)
    assert not wrt.check(lambda x: lstm(x)[0].pow(2).sum(), torch.randn(2, 3, 4))


def test_forward_mode_that_says_zero_is_found():
    def f(x):
        index = torch.tensor([0, 1, 0, 1, 2])
        return torch.zeros(3, dtype=x.dtype).scatter_reduce(0, index, torch.tanh(x), "prod", include_self=False).sum()

    x = torch.linspace(0.3, 1.2, 5, dtype=torch.float64)
    found = wrt.check(f, x)
    assert [finding.certain for finding in found] == [True]
    assert found[0].sentence.startswith("the forward mode of scatter_reduce disagrees with its forward")
    assert "its forward mode returns 0" in found[0].evidence
    assert not wrt.check(lambda x: torch.zeros(3).double().scatter_reduce(0, torch.tensor([0, 1, 0, 1, 2]), x, "sum").sum(), x)


RIGHT = {
    "complex results": lambda x: torch.fft.fft(x).abs().sum() + torch.polar(x, x).real.sum(),
    "a steep place": lambda x: torch.special.polygamma(1, x * 1e-3).sum(),
    "large and small numbers": lambda x: torch.logsumexp(torch.cat([x, 900 * x]), 0) + torch.logcumsumexp(x, 0).sum(),
    "a padding row": lambda x: torch.nn.functional.embedding(torch.tensor([0, 1]), x.reshape(3, 2), padding_idx=1).sum(),
    "a result of the layout": lambda x: (torch.as_strided(x * 1, (2, 2), (1, 2)) ** 2).sum(),
    "running statistics": lambda x: torch.batch_norm(
        x.reshape(3, 2), None, None, torch.zeros(2).double(), torch.ones(2).double(), False, 0.1, 1e-5, False
    ).sum(),
    "a target": lambda x: torch.nn.functional.soft_margin_loss(x, torch.sign(x - 1)),
    "a deficient matrix": lambda x: torch.linalg.pinv(torch.outer(x, x)).sum(),
}


@pytest.mark.parametrize("name", RIGHT)
def test_operations_of_the_framework_that_are_right_stay_unnamed(name):
    x = torch.linspace(0.3, 1.7, 6, dtype=torch.float64)
    assert not wrt.check(RIGHT[name], x)


def test_sparse_inputs_are_left_alone():
    x = torch.eye(3, dtype=torch.float64).to_sparse_csr().requires_grad_()
    assert not wrt.check(lambda x: torch.sparse.mm(x, torch.ones(3, 3, dtype=torch.float64)).sum(), x)
