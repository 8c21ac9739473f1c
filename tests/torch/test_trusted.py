"""Every operation of the table, batched, against a row loop of plain autograd; and that the table lists no other."""

import pytest
import torch

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
}  # fmt: skip


def names(y):
    found, waiting = set(), [y.grad_fn]
    while waiting:
        node = waiting.pop()
        found.add(node.name())
        waiting += [source for source, _ in node.next_functions if source is not None]
    return found


@pytest.mark.parametrize("name", sorted(TRUSTED - {"AccumulateGrad"}))
def test_its_batched_backward_equals_a_row_loop(name):
    shape = (4, 4) if name in ("MmBackward0", "MvBackward0", "UnsafeViewBackward0") else (5, 4)
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
    assert not trusted(BACKEND.lift(torch.cdist(x, x + 1) * 2))
