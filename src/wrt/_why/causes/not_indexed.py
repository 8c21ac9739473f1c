"""The element was not selected."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "not_indexed",
    family="flat",
    means="the element was not selected",
    remedy="expected: nothing of the result is computed from this element",
    flattens=ops(
        "getitem index select index_select gather take take_along_dim narrow slice embedding GatherV2 "
        "ResourceGather Gather GatherNd StridedSlice Slice dynamic_slice gather_nd masked_select where max min "
        "maximum minimum amax amin topk sort max_pool1d max_pool2d max_pool3d Max Min reduce_max reduce_min "
        "Maximum Minimum SelectV2 Select select_n unbind chunk split tensor_split unfold diagonal tril triu "
        "nll_loss fmax fmin median kthvalue TopKV2 split_with_sizes argmax diag"
    ),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x[1] ** 2

print(wrt.why(y, wrt.d(x)[0])[0])
""",
)
