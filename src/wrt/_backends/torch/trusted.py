"""Operations whose backward is batched rightly: each is held to a row loop by a test of its own.

A graph made of these alone needs no unbatched pull to prove its batches; the probe travels as one more row. Everything
else is proven plainly, the first time it is met: the batched backward of `torch.cdist`, for one, is wrong.
"""

from __future__ import annotations

from wrt._backends.torch import compat
from wrt._core.value import Value

MOST_NODES = 2000

TRUSTED = frozenset(
    """
    torch::autograd::AccumulateGrad
    AbsBackward0 AddBackward0 AddmmBackward0 BmmBackward0 CatBackward0 CloneBackward0 CosBackward0 DivBackward0
    ExpBackward0 ExpandBackward0 GeluBackward0 LogBackward0 LogsumexpBackward0 MeanBackward0 MeanBackward1
    MmBackward0 MulBackward0 MvBackward0 NegBackward0 PermuteBackward0 PowBackward0 ReciprocalBackward0 ReluBackward0
    RollBackward0 RsubBackward1 SelectBackward0 SigmoidBackward0 SinBackward0 SliceBackward0
    SoftmaxBackward0 SoftplusBackward0 SqrtBackward0 SqueezeBackward1 StackBackward0 SubBackward0 SumBackward0
    SumBackward1 TBackward0 TanhBackward0 TransposeBackward0 UnbindBackward0 UnsafeViewBackward0 UnsqueezeBackward0
    ViewBackward0
    """.split()
)


def trusted(y: Value) -> bool:
    """Whether only such operations led to y."""
    for count, node in enumerate(compat.reachable(y.key.edge.node)):
        if count > MOST_NODES or node.name() not in TRUSTED:
            return False
    return True
