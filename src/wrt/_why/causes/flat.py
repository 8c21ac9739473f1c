"""The slope is zero here: the operation is off, saturated, or does not select the element."""

from wrt._why.cause import Cause, ops

SOFTMAX = "softmax log_softmax Softmax LogSoftmax logsumexp softmin gumbel_softmax"

CAUSES = (
    Cause(
        "dead_relu",
        "every relu on the path is off",
        "use LeakyReLU, a smaller learning rate, or a better initial bias",
        flattens=ops("relu Relu threshold relu6 Relu6 rrelu relu_"),
        case="h = torch.relu(x - 100)\ny = (h * w).sum()",
    ),
    Cause(
        "clamp",
        "clamped outside its range",
        "clamp only for display, or use a soft bound such as tanh",
        flattens=ops("clamp clamp_ clip clamp_min clamp_max hardtanh hardsigmoid hardswish hardshrink softshrink "
                     "clip_by_value ClipByValue"),
        case="y = (torch.clamp(x + 100, -1, 1) * w).sum()",
    ),
    Cause(
        "saturated",
        "a squashing function is saturated",
        "use logits with a loss that takes them, or scale the input down",
        flattens=ops("sigmoid tanh softsign erf logsigmoid logistic expit exp exp2 Sigmoid Tanh silu gelu softplus "
                     "cos_similarity elu selu celu mish " + SOFTMAX),
        case="y = (torch.sigmoid(x + 500) * w).sum()",
    ),
    Cause(
        "mask",
        "multiplied by zero",
        "expected where the mask is zero: ask for an element it keeps",
        flattens=ops("mul Mul multiply matmul MatMul mm bmm linear addmm dot mv einsum dot_general BatchMatMulV2 "
                     "masked_fill conv1d conv2d conv3d conv_general_dilated dropout feature_dropout"),
        case="y = (x * torch.zeros(3) * w).sum()",
    ),
    Cause(
        "not_indexed",
        "the element was not selected",
        "expected: nothing of the result is computed from this element",
        flattens=ops("getitem index select index_select gather take take_along_dim narrow slice embedding GatherV2 "
                     "ResourceGather Gather GatherNd StridedSlice Slice dynamic_slice gather_nd masked_select where "
                     "max min maximum minimum amax amin topk sort max_pool1d max_pool2d max_pool3d Max Min reduce_max "
                     "reduce_min Maximum Minimum SelectV2 Select select_n unbind chunk split tensor_split unfold diagonal "
                     "tril triu nll_loss fmax fmin median kthvalue TopKV2 split_with_sizes argmax diag"),
    ),
    Cause(
        "inplace_overwrite",
        "the value was overwritten before it was used",
        "write into a copy, or use the value before this line",
        flattens=ops("setitem copy_ fill_ zero_ index_put_ index_fill_ scatter_ index_copy_ scatter copy "
                     "dynamic_update_slice TensorScatterUpdate index_put select_scatter slice_scatter fill zero alias "
                     "index_copy index_fill masked_scatter"),
        case="h = x * 2\nh[:] = 0\ny = (h * w).sum()",
    ),
    Cause(
        "invariant_output",
        "the output does not change with the input although it uses it",
        "use a loss that does change, for example weighted or squared before the sum",
        case="y = torch.softmax(x, 0).sum()",
    ),
    Cause("vanishing_chain", "a long product shrinks",
          "use ReLU or GELU with residual connections, or normalization"),
    Cause("exploding_product", "a long product grows",
          "clip the gradient norm, or constrain the repeated weight (orthogonal initialization)"),
    Cause("unused_input", "the input is not used at all", "use it where the output is computed, or remove it"),
    Cause("recomputed_tensor", "another tensor with the same values was asked about",
          "ask for the tensor of the run that made the output: keep it, or take it from a recording"),
)  # fmt: skip
