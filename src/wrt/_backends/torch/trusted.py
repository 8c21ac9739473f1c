"""Operations whose backward is batched rightly: each is held to a row loop by a test of its own.

A graph made of these alone needs no unbatched pull to prove its batches; the probe travels as one more row. Everything
else is proven plainly, the first time it is met: the batched backward of `torch.cdist`, for one, is wrong.
"""

from __future__ import annotations

import torch

from wrt._backends.torch.compat import ACCUMULATE
from wrt._core.value import Value

MOST_NODES = 2000

TRUSTED = frozenset(
    """
    AccumulateGrad
    AbsBackward0 AddBackward0 AddmmBackward0 BmmBackward0 CatBackward0 CloneBackward0 CosBackward0 DivBackward0
    ExpBackward0 ExpandBackward0 GeluBackward0 LogBackward0 LogsumexpBackward0 MeanBackward0 MeanBackward1
    MmBackward0 MulBackward0 MvBackward0 NegBackward0 PermuteBackward0 PowBackward0 ReciprocalBackward0 ReluBackward0
    RollBackward0 RsubBackward1 SelectBackward0 SigmoidBackward0 SinBackward0 SliceBackward0
    SoftmaxBackward0 SoftplusBackward0 SqrtBackward0 SqueezeBackward1 StackBackward0 SubBackward0 SumBackward0
    SumBackward1 TBackward0 TanhBackward0 TransposeBackward0 UnbindBackward0 UnsafeViewBackward0 UnsqueezeBackward0
    ViewBackward0
    """.split()
)


_KINDS: set[type] = set()
"""Types of nodes that are in the table: asking a node for its name takes longer than all the rest of a walk."""


def trusted(y: Value) -> bool:
    """Whether only such operations led to y."""
    start = y.key.edge.node
    if not _known(type(start)):
        return False
    seen = {start}
    found = [start]
    for node in found:  # grows while it is walked
        for source, _ in node.next_functions:
            if source is None or source in seen:
                continue
            kind = type(source)
            if kind is ACCUMULATE:
                continue
            if kind not in _KINDS and not _known(kind):
                return False
            seen.add(source)
            found.append(source)
        if len(found) > MOST_NODES:
            return False
    return True


def _known(kind: type) -> bool:
    """Whether the table lists this type; nodes of Python Functions are of types of their own, and never in it."""
    if kind.__name__ not in TRUSTED or issubclass(kind, torch._C._FunctionBase):
        return False
    _KINDS.add(kind)
    return True
