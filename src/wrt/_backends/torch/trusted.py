"""Operations whose backward is batched rightly: each is held to a row loop by a test of its own.

A graph made of these alone needs no unbatched pull to prove its batches; the probe travels as one more row. Everything
else is proven plainly, the first time it is met: the batched backward of `torch.cdist`, for one, is wrong.
"""

from __future__ import annotations

from wrt._backends.torch.compat import ACCUMULATE
from wrt._backends.torch.nodes import ByKind
from wrt._core.value import Value

MOST_NODES = 2000

TRUSTED = frozenset(
    """
    AbsBackward0 AccumulateGrad AddBackward0 AddmmBackward0 AddmvBackward0 AmaxBackward0 AtanBackward0
    AvgPool2DBackward0 BaddbmmBackward0 BmmBackward0 CatBackward0 ClampBackward1 CloneBackward0
    ConstantPadNdBackward0 ConvolutionBackward0 CosBackward0 CoshBackward0 CumprodBackward0 CumsumBackward0
    DiagonalBackward0 DivBackward0 DotBackward0 EluBackward0 ErfBackward0 ExpBackward0 ExpandBackward0 Expm1Backward0
    FftC2RBackward0 FftR2CBackward0 FlipBackward0 GatherBackward0 GeluBackward0 HardtanhBackward0 IndexBackward0
    IndexSelectBackward0 LeakyReluBackward0 LinalgInvExBackward0 LinalgSolveExBackward0 LinalgVectorNormBackward0
    Log1PBackward0 LogBackward0 LogSoftmaxBackward0 LogsumexpBackward0 MaskedFillBackward0 MaxBackward0
    MaxPool2DWithIndicesBackward0 MaximumBackward0 MeanBackward0 MeanBackward1 MinimumBackward0 MmBackward0
    MulBackward0 MvBackward0 NativeLayerNormBackward0 NegBackward0 PermuteBackward0 PowBackward0 PowBackward1
    ReciprocalBackward0 ReluBackward0 RepeatBackward0 ReshapeAliasBackward0 RollBackward0 RsqrtBackward0
    RsubBackward1 SelectBackward0
    SigmoidBackward0 SiluBackward0 SinBackward0 SinhBackward0 SliceBackward0 SoftmaxBackward0 SoftplusBackward0
    SplitBackward0 SqrtBackward0 SqueezeBackward0 SqueezeBackward1 SqueezeBackward4 StackBackward0 StdBackward0
    SubBackward0 SumBackward0 SumBackward1 TBackward0 TanBackward0 TanhBackward0 ToCopyBackward0 TransposeBackward0
    TrilBackward0 TriuBackward0 UnbindBackward0 UnsafeSplitBackward0 UnsafeViewBackward0 UnsqueezeBackward0
    UpsampleNearest2DBackward0 VarBackward0 ViewAsRealBackward0 ViewBackward0 WhereBackward0
    """.split()
)

_KINDS = ByKind(dict.fromkeys(TRUSTED, True))


def trusted(y: Value) -> int:
    """How many operations led to y, where all of them are such; 0 where one is not, or where they are too many."""
    start = y.key.edge.node
    if not _KINDS[type(start)]:
        return 0
    seen = {start}
    found = [start]
    for node in found:  # grows while it is walked
        for source, _ in node.next_functions:
            if source is None or source in seen:
                continue
            kind = type(source)
            if kind is ACCUMULATE:
                continue
            if not _KINDS[kind]:
                return 0
            seen.add(source)
            found.append(source)
        if len(found) > MOST_NODES:
            return 0
    return len(found)
