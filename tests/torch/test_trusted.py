"""Every operation of the table, batched, against a row loop of plain autograd; and that the table lists no other."""

import pytest
import torch
import torch.nn.functional as F

from wrt._backends.torch.backend import BACKEND
from wrt._backends.torch.sweep import VMAP
from wrt._backends.torch.trusted import TRUSTED, trusted

A = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
B = torch.rand(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.5

EXAMPLES = {
    "AbsBackward0": lambda x: x.abs(), "AddBackward0": lambda x: x + x[:1] + 1, "AddmmBackward0": lambda x: torch.addmm(x, x, A),
    "BmmBackward0": lambda x: torch.bmm(x.expand(2, 5, 4) if x.dim() == 2 else x, B.mT.contiguous()),
    "CatBackward0": lambda x: torch.cat([x, 2 * x]), "CloneBackward0": lambda x: x.clone(), "CosBackward0": lambda x: x.cos(),
    "DivBackward0": lambda x: x / (1 + x[:1]),
    "ExpBackward0": lambda x: x.exp(), "ExpandBackward0": lambda x: x[:1].expand(6, x.shape[1]),
    "GeluBackward0": lambda x: torch.nn.functional.gelu(x), "LogBackward0": lambda x: x.log(),
    "LogsumexpBackward0": lambda x: x.logsumexp(0), "MeanBackward0": lambda x: x.mean(), "MeanBackward1": lambda x: x.mean(1),
    "MmBackward0": lambda x: x @ x.T, "MulBackward0": lambda x: x * x[:1], "MvBackward0": lambda x: x @ x[0],
    "NegBackward0": lambda x: -x, "PermuteBackward0": lambda x: x.permute(1, 0), "PowBackward0": lambda x: x**3,
    "ReciprocalBackward0": lambda x: x.reciprocal(), "ReluBackward0": lambda x: (x - 1).relu(),
    "RollBackward0": lambda x: x.roll(1, 0), "RsubBackward1": lambda x: 1 - x,
    "SelectBackward0": lambda x: x[1], "SigmoidBackward0": lambda x: x.sigmoid(), "SinBackward0": lambda x: x.sin(),
    "SliceBackward0": lambda x: x[1:3], "SoftmaxBackward0": lambda x: x.softmax(1),
    "SoftplusBackward0": lambda x: torch.nn.functional.softplus(x), "SqrtBackward0": lambda x: x.sqrt(),
    "SqueezeBackward1": lambda x: x[:1].squeeze(0), "StackBackward0": lambda x: torch.stack([x, x * x]),
    "SubBackward0": lambda x: x - x[:1], "SumBackward0": lambda x: x.sum(), "SumBackward1": lambda x: x.sum(0),
    "TBackward0": lambda x: x.t(), "TanhBackward0": lambda x: x.tanh(), "TransposeBackward0": lambda x: x.transpose(0, 1),
    "UnbindBackward0": lambda x: x.unbind(0)[1], "UnsafeViewBackward0": lambda x: (x[None] @ A[:4])[0],
    "UnsqueezeBackward0": lambda x: x.unsqueeze(1), "ViewBackward0": lambda x: x.view(-1),
    "NativeLayerNormBackward0": lambda x: F.layer_norm(x, (4,)), "DotBackward0": lambda x: torch.dot(x[0], x[1]).expand(3),
    "LinalgVectorNormBackward0": lambda x: x.norm(dim=1), "FftR2CBackward0": lambda x: torch.fft.rfft(x).real,
    "FftC2RBackward0": lambda x: torch.fft.irfft(torch.fft.rfft(x)), "ViewAsRealBackward0": lambda x: torch.fft.rfft(x).real,
    "CumsumBackward0": lambda x: x.cumsum(0), "CumprodBackward0": lambda x: x.cumprod(0),
    "LinalgSolveExBackward0": lambda x: torch.linalg.solve(x + 4 * torch.eye(4, dtype=x.dtype), x[0]),
    "PowBackward1": lambda x: x ** x[:1], "MaximumBackward0": lambda x: torch.maximum(x, x[:1]),
    "MinimumBackward0": lambda x: torch.minimum(x, x[:1] + 0.1), "ClampBackward1": lambda x: x.clamp(0.7, 1.2),
    "WhereBackward0": lambda x: torch.where(x > 1, x, x * x),
    "MaskedFillBackward0": lambda x: x.masked_fill(x > 1, 0.0), "LogSoftmaxBackward0": lambda x: x.log_softmax(1),
    "SiluBackward0": lambda x: F.silu(x), "LeakyReluBackward0": lambda x: F.leaky_relu(x - 1),
    "EluBackward0": lambda x: F.elu(x - 1), "HardtanhBackward0": lambda x: F.hardtanh(x), "ErfBackward0": lambda x: x.erf(),
    "Expm1Backward0": lambda x: x.expm1(), "Log1PBackward0": lambda x: x.log1p(), "RsqrtBackward0": lambda x: x.rsqrt(),
    "TanBackward0": lambda x: x.tan(), "AtanBackward0": lambda x: x.atan(), "SinhBackward0": lambda x: x.sinh(),
    "CoshBackward0": lambda x: x.cosh(), "VarBackward0": lambda x: x.var(1), "StdBackward0": lambda x: x.std(0),
    "MaxBackward0": lambda x: x.max(1).values, "AmaxBackward0": lambda x: x.amax(0),
    "IndexBackward0": lambda x: x[torch.tensor([0, 2, 2])],
    "IndexSelectBackward0": lambda x: x.index_select(1, torch.tensor([3, 1])),
    "GatherBackward0": lambda x: x.gather(1, torch.tensor([[0, 1], [2, 2], [3, 0], [1, 1], [0, 3]])),
    "FlipBackward0": lambda x: x.flip(0), "RepeatBackward0": lambda x: x.repeat(2, 1), "SplitBackward0": lambda x: x.split(2)[1],
    "TrilBackward0": lambda x: x.tril(), "TriuBackward0": lambda x: x.triu(),
    "ConstantPadNdBackward0": lambda x: F.pad(x, (1, 2)),
    "ConvolutionBackward0": lambda x: F.conv2d(x[None, None], B[:, :1, None, :3].expand(2, 1, 2, 3), padding=1),
    "AvgPool2DBackward0": lambda x: F.avg_pool2d(x[None, None], 2), "ToCopyBackward0": lambda x: x.float().double(),
    "MaxPool2DWithIndicesBackward0": lambda x: F.max_pool2d(x[None, None], 2),
    "UpsampleNearest2DBackward0": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "SqueezeBackward0": lambda x: x[:1].squeeze(), "SqueezeBackward4": lambda x: x[0] @ A @ A.T,
    "DiagonalBackward0": lambda x: x.diagonal(),
    "ReshapeAliasBackward0": lambda x: x.chunk(2, dim=1)[1].reshape(5, 2, 1) * x[:, :2, None],
    "BaddbmmBackward0": lambda x: torch.baddbmm(B @ B.mT, B[:, :, :4], x[None, :4, :3].expand(2, 4, 3)),
    "LinalgInvExBackward0": lambda x: torch.linalg.inv(x + 4 * torch.eye(4, dtype=x.dtype)),
    "AddmvBackward0": lambda x: torch.addmv(x[0], x[:4], x[1]), "UnsafeSplitBackward0": lambda x: x.unsafe_split(2)[0],
}  # fmt: skip

SQUARE = ("MmBackward0", "MvBackward0", "UnsafeViewBackward0", "LinalgSolveExBackward0", "LinalgInvExBackward0")


def names(y):
    found, waiting = set(), [y.grad_fn]
    while waiting:
        node = waiting.pop()
        found.add(node.name())
        waiting += [source for source, _ in node.next_functions if source is not None]
    return found


@pytest.mark.parametrize("name", sorted(TRUSTED - {"AccumulateGrad"}))
def test_its_batched_backward_equals_a_row_loop(name):
    shape = (4, 4) if name in SQUARE else (5, 4)
    shape = (3, 4) if name == "AddmmBackward0" else shape
    x = (torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.5).requires_grad_()
    if name == "AddmmBackward0":
        y = torch.addmm(x[:, :3], x, A)
    else:
        y = EXAMPLES[name](x)
    if name not in names(y):
        pytest.skip(f"this version of torch records {sorted(names(y))}")
    Y, X = BACKEND.lift(y), BACKEND.lift(x)
    seeds = torch.randn(7, *y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (batched,) = BACKEND.live.linear(Y, [X]).pull(seeds, VMAP)
    rows = [torch.autograd.grad(y, x, seed, retain_graph=True)[0] for seed in seeds]
    torch.testing.assert_close(batched, torch.stack(rows), rtol=1e-12, atol=1e-12)
    assert trusted(Y)


def test_an_operation_outside_the_table_is_not_trusted():
    x = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
    assert trusted(BACKEND.lift(torch.cdist(x, x + 1) * 2)) == 0
