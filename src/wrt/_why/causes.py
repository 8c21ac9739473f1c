"""Everything that can be wrong with a gradient, in one table: the words for it, the operations that show it, a program.

A new cause is an entry here, and a program in `programs.txt`. `docs/make_causes.py` writes its page, the index and the
navigation from them, and `wrt explain-cause` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["stops", "flattens", "breaks"]
PYTHON = frozenset(["__int__", "__float__", "__bool__", "__index__", "__complex__", "__array__"])


@dataclass(frozen=True, slots=True)
class Cause:
    """A slug, what it means, what to write; and which operations of any framework show it.

    `stops` pass the value and not the gradient, `flattens` can have slope zero, `breaks` can have an infinite one: names
    as the frameworks spell them. `raised` are patterns of error messages. `case` is a small program with the mistake,
    which prints what `why` says; its page in the docs shows it.
    """

    slug: str
    means: str
    remedy: str
    stops: str = ""
    flattens: str = ""
    breaks: str = ""
    raised: tuple[str, ...] = ()

    @property
    def case(self) -> str:
        return programs()[self.slug]


class Family:
    """Causes that stand together in the docs, the commonest first."""

    def __init__(self, title: str, means: str, *causes: Cause) -> None:
        self.title, self.means, self.causes = title, means, causes


def ops(names: str) -> frozenset[str]:
    """Operations as frameworks spell them, made comparable.

    >>> sorted(ops("log_softmax LogSoftmax __gt__ round_"))
    ['gt', 'logsoftmax', 'round']
    """
    return frozenset(key(name) for name in names.split())


@cache
def key(op: str) -> str:
    """`__gt__`, `gt_` and `Gt` are one operation; `__int__` leaves the framework and is not the cast `int`."""
    if op in PYTHON:
        return op
    return op.rpartition(".")[2].replace("_", "").lower()


@cache
def programs() -> dict[str, str]:
    """The program of every cause, by its slug: a line `==== slug` begins one."""
    text = Path(__file__).with_name("programs.txt").read_text(encoding="utf-8")
    return {(lines := one.strip().split("\n", 1))[0]: f"{lines[1]}\n" for one in text.split("==== ")[1:]}


@cache
def causes() -> dict[str, Cause]:
    """Every cause by its slug."""
    return {cause.slug: cause for family in FAMILIES for cause in family.causes}


@cache
def by_operation(kind: Kind) -> dict[str, str]:
    """operation -> slug, for `stops`, `flattens` or `breaks`."""
    table: dict[str, str] = {}
    for cause in causes().values():
        names = {"stops": cause.stops, "flattens": cause.flattens, "breaks": cause.breaks}[kind]
        for op in ops(names):
            if table.setdefault(op, cause.slug) != cause.slug:
                raise ValueError(f"{op} {kind} for both {table[op]} and {cause.slug}")
    return table


# ---------------------------------------------------------------- the table


CUT = Family(
    "The path is cut",
    "The value goes on, the gradient is cut by a call that says so.",
    Cause(
        "detach",
        means=".detach() cuts the path",
        remedy="remove .detach(), or ask for the derivative with respect to what it returns",
        stops="detach detach_ detach_copy",
    ),
    Cause(
        "stop_gradient",
        means="stop_gradient cuts the path",
        remedy="remove stop_gradient from the branch you differentiate",
        stops="stop_gradient StopGradient PreventGradient",
    ),
    Cause(
        "dot_data",
        means=".data cuts the path, or hides a write from autograd",
        remedy="use the tensor itself; for an update by hand write it under torch.no_grad() or functionally",
        stops="data data=",
    ),
    Cause(
        "detached_hidden_state",
        means="a recurrent state is cut between steps",
        remedy="keep the state attached across the steps you want to differentiate through",
    ),
    Cause(
        "retensor",
        means="a copy of the numbers, without their history",
        remedy="use the tensor itself, .clone() for a copy, torch.stack for a list of tensors",
        stops="tensor new_tensor as_tensor asarray scalar_tensor constant Const FloatTensor",
    ),
    Cause(
        "parameter_wrap",
        means="wrapping a result as a parameter makes a new leaf",
        remedy="use the tensor itself, for example by torch.func.functional_call(layer, {'weight': w}, x)",
        stops="Parameter",
    ),
    Cause(
        "copied_module",
        means="the gradient belongs to a copy",
        remedy="ask for the copy's parameters, or use torch.func.functional_call with the original's",
        stops="__deepcopy__ Parameterofacopy",
    ),
    Cause(
        "checkpoint_reentrant",
        means="activation checkpointing in its reentrant form hides the graph",
        remedy="write checkpoint(..., use_reentrant=False)",
        raised=("use_reentrant=True",),
    ),
    Cause(
        "fresh_leaf_loss",
        means="the loss was made a new leaf: requires_grad was set on a result that had lost its graph",
        remedy="remove it, and repair the line that cuts the path",
    ),
    Cause(
        "state_assign",
        means="an assignment to a variable is not differentiable",
        remedy="use the value itself instead of reading it back from the variable",
        stops="AssignVariableOp AssignAddVariableOp AssignSubVariableOp ResourceScatterUpdate assign",
    ),
)


OFF = Family(
    "Gradients are off",
    "Gradients were switched off, or never switched on.",
    Cause(
        "no_grad",
        means="computed while gradients were switched off",
        remedy="move the line out of torch.no_grad(); to freeze a model use requires_grad_(False) on its parameters",
        raised=("gradients are switched off here",),
    ),
    Cause(
        "inference_mode",
        means="computed under inference mode",
        remedy="move the line out of torch.inference_mode(); to freeze a model use requires_grad_(False)",
        raised=("Inference tensors cannot be saved for backward", "inference tensor", r"made under torch\.inference_mode"),
    ),
    Cause(
        "not_requires_grad",
        means="the input does not require grad",
        remedy="call {x}.requires_grad_() before it is used",
        raised=("does not require grad and does not have a grad_fn", "does not require grad, so torch kept no"),
    ),
    Cause(
        "late_requires_grad",
        means="the input was followed only after it had been used",
        remedy="move this line before the first use of {x}",
    ),
    Cause(
        "unwatched",
        means="the tape does not watch this tensor",
        remedy="call tape.watch({x}) inside the tape, or make it a tf.Variable",
    ),
    Cause(
        "tape_closed",
        means="computed outside the tape",
        remedy="move the line into the `with tf.GradientTape()` block",
    ),
    Cause(
        "tape_consumed",
        means="a non-persistent tape was used twice",
        remedy="write tf.GradientTape(persistent=True), or ask for all gradients in one call",
        raised=("non-persistent GradientTape can only be used",),
    ),
    Cause(
        "variable_reassigned_to_tensor",
        means="the variable was replaced by a plain tensor",
        remedy="write {x}.assign(...), which keeps it a variable",
    ),
    Cause(
        "sample_no_reparam",
        means="a random sample without reparametrization",
        remedy="use rsample(), or write mean + std * noise",
        stops=(
            "normal bernoulli bernoulli_ multinomial poisson binomial _standard_gamma Multinomial StatelessMultinomial "
            "RandomGamma RandomPoisson random_gamma categorical"
        ),
        flattens="bernoulli poisson normal",
    ),
)


LEAVING = Family(
    "The value leaves the framework",
    "The value leaves the framework and comes back as plain numbers.",
    Cause(
        "item",
        means="the value becomes a Python number",
        remedy="keep it a tensor: a 0-d tensor can be used where the number was",
        stops="item tolist __float__ __int__ __complex__ __index__",
    ),
    Cause(
        "numpy_roundtrip",
        means="the value goes through NumPy and back",
        remedy="stay within the framework: its own functions on the tensor itself",
        stops="numpy __array__ from_numpy __dlpack__",
        raised=(r"Can't call numpy\(\) on Tensor that requires grad",),
    ),
    Cause(
        "serialized",
        means="the value is written out as bytes and read back",
        remedy="use the tensor itself: .clone() copies it and keeps its history, pickle, copy.copy and torch.save do not",
        stops="__reduce_ex__ untyped_storage storage SerializeTensor AsString StringFormat",
    ),
    Cause(
        "host_callback",
        means="the value goes through a Python function that runs outside the framework",
        remedy="use the framework's own operations, or give the callback a custom derivative",
        stops="pure_callback io_callback PyFunc EagerPyFunc PyFuncStateless numpy_function python_callback",
        raised=("Pure callbacks do not support JVP", "IO callbacks do not support JVP"),
    ),
)


STEPS = Family(
    "Steps have no slope",
    "The path goes through something that moves in steps: indices, casts, comparisons, rounding.",
    Cause(
        "argmax",
        means="the path goes through the index of a largest or smallest element",
        remedy="use softmax, Gumbel-softmax or a straight-through estimator",
        stops="argmax argmin ArgMax ArgMin max min cummax cummin",
    ),
    Cause(
        "sort_indices",
        means="only the indices of a sort are used",
        remedy="use the sorted values, or a soft rank",
        stops="argsort sort topk kthvalue msort TopKV2 top_k approx_top_k median mode nanmedian",
    ),
    Cause(
        "comparison",
        means="the value only enters through a comparison",
        remedy="use a soft comparison: torch.sigmoid(k * (a - b))",
        stops=(
            "gt lt ge le eq ne greater less greater_equal less_equal equal not_equal isclose logical_and logical_or "
            "logical_not logical_xor isnan isinf isfinite GreaterEqual LessEqual NotEqual LogicalAnd LogicalOr LogicalNot and "
            "or not xor all any nonzero __bool__ is_nonzero count_nonzero invert signbit is_finite"
        ),
    ),
    Cause(
        "integer_cast",
        means="cast to an integer type",
        remedy="keep floats; interpolate between neighbors instead of picking one",
        stops="long int short char byte bool to type Cast convert_element_type int32 int64 type_as cast",
    ),
    Cause(
        "integer_output",
        means="an operation with an integer result",
        remedy="interpolate between the neighboring bins; the number of a bin has no derivative",
        stops=(
            "searchsorted bucketize histc histogram bincount unique unique_consecutive SearchSorted UpperBound LowerBound "
            "Bucketize Unique UniqueV2 Bincount HistogramFixedWidth one_hot"
        ),
    ),
    Cause(
        "int_input",
        means="an integer input cannot be differentiated",
        remedy="make it floating point: 2.0 instead of 2",
        raised=(
            r"d\(\) of a(?: tensor|n array) of (?:u?int|bool|whole)",
            "is a tensor of (?:u?int|bool)",
            "only Tensors of floating point",
            "grad requires real- or complex-valued inputs",
        ),
    ),
    Cause(
        "round",
        means="rounding has slope zero",
        remedy="use a straight-through estimator: x + (x.round() - x).detach()",
        stops="Floor Ceil Round Rint floor_divide floordiv FloorDiv rfloordiv",
        flattens="round floor ceil trunc fix rint FloorDiv nearbyint fake_quantize div true_divide floor_divide FloorMod",
    ),
    Cause(
        "sign",
        means="sign has slope zero",
        remedy="use tanh(k * x), or a straight-through estimator",
        stops="Sign",
        flattens="sign sgn",
    ),
    Cause(
        "no_derivative",
        means="an operation whose derivative is zero or undefined everywhere",
        remedy="use a smooth operation in its place",
        flattens="heaviside grid_sample nextafter grid_sampler affine_grid",
    ),
)


FLAT = Family(
    "The slope is zero",
    "The slope is zero here: the operation is off, saturated, or does not select the element.",
    Cause(
        "dead_relu",
        means="every relu on the path is off",
        remedy="use LeakyReLU, a smaller learning rate, or a better initial bias",
        flattens="relu Relu threshold relu6 Relu6 rrelu relu_",
    ),
    Cause(
        "clamp",
        means="clamped outside its range",
        remedy="clamp only for display, or use a soft bound such as tanh",
        flattens=(
            "clamp clamp_ clip clamp_min clamp_max hardtanh hardsigmoid hardswish hardshrink softshrink clip_by_value "
            "ClipByValue"
        ),
    ),
    Cause(
        "saturated",
        means="a squashing function is saturated",
        remedy="use logits with a loss that takes them, or scale the input down",
        flattens=(
            "sigmoid tanh softsign erf logsigmoid logistic expit exp exp2 Sigmoid Tanh silu gelu softplus cos_similarity elu "
            "selu celu mish softmax log_softmax Softmax LogSoftmax logsumexp softmin gumbel_softmax"
        ),
    ),
    Cause(
        "mask",
        means="multiplied by zero",
        remedy="expected where the mask is zero: ask for an element it keeps",
        flattens=(
            "mul Mul multiply matmul MatMul mm bmm linear addmm dot mv einsum dot_general BatchMatMulV2 masked_fill conv1d "
            "conv2d conv3d conv_general_dilated dropout feature_dropout"
        ),
    ),
    Cause(
        "not_indexed",
        means="the element was not selected",
        remedy="expected: nothing of the result is computed from this element",
        flattens=(
            "getitem index select index_select gather take take_along_dim narrow slice embedding GatherV2 ResourceGather "
            "Gather GatherNd StridedSlice Slice dynamic_slice gather_nd masked_select where max min maximum minimum amax amin "
            "topk sort max_pool1d max_pool2d max_pool3d Max Min reduce_max reduce_min Maximum Minimum SelectV2 Select "
            "select_n unbind chunk split tensor_split unfold diagonal tril triu nll_loss fmax fmin median kthvalue TopKV2 "
            "split_with_sizes argmax diag"
        ),
    ),
    Cause(
        "inplace_overwrite",
        means="the value was overwritten before it was used",
        remedy="write into a copy, or use the value before this line",
        flattens=(
            "setitem copy_ fill_ zero_ index_put_ index_fill_ scatter_ index_copy_ scatter copy dynamic_update_slice "
            "TensorScatterUpdate index_put select_scatter slice_scatter fill zero alias index_copy index_fill masked_scatter"
        ),
    ),
    Cause(
        "invariant_output",
        means="the output does not change with the input although it uses it",
        remedy="use a loss that does change, for example weighted or squared before the sum",
    ),
    Cause(
        "vanishing_chain",
        means="a long product shrinks",
        remedy="use ReLU or GELU with residual connections, or normalization",
    ),
    Cause(
        "exploding_product",
        means="a long product grows",
        remedy="clip the gradient norm, or constrain the repeated weight (orthogonal initialization)",
    ),
    Cause(
        "unused_input",
        means="the input is not used at all",
        remedy="use it where the output is computed, or remove it",
    ),
    Cause(
        "recomputed_tensor",
        means="another tensor with the same values was asked about",
        remedy="ask for the tensor of the run that made the output: keep it, or take it from a recording",
    ),
)


SINGULAR = Family(
    "Infinite slopes",
    "The derivative is infinite or undefined at this very number.",
    Cause(
        "sqrt_at_zero",
        means="sqrt at zero",
        remedy="write sqrt(s + eps), or norm, whose slope at zero is set to 0",
        flattens="std std_mean reduce_std",
        breaks="sqrt rsqrt std std_mean Sqrt Rsqrt reduce_std",
    ),
    Cause(
        "log_zero",
        means="log of zero",
        remedy="use log_softmax, xlogy or log(p + eps)",
        breaks="log log2 log10 log1p Log Log1p logit xlog1py binary_cross_entropy nll_loss kl_div",
    ),
    Cause(
        "div_zero",
        means="a division by zero",
        remedy="guard the divisor: where(d == 0, eps, d)",
        breaks=(
            "div true_divide divide truediv rtruediv reciprocal remainder fmod RealDiv Div Reciprocal rdiv rem xdivy DivNoNan "
            "inverse inv solve"
        ),
    ),
    Cause(
        "norm_at_zero",
        means="norm of a zero vector",
        remedy="skip zero rows, raise eps, or write sqrt(sum + eps)",
        flattens=(
            "norm vector_norm matrix_norm normalize frobenius_norm cdist pairwise_distance linalg_norm linalg_vector_norm "
            "dist"
        ),
        breaks=(
            "norm vector_norm matrix_norm normalize frobenius_norm cosine_similarity pairwise_distance cdist l2_normalize "
            "dist linalg_norm linalg_vector_norm euclidean_norm EuclideanNorm renorm layer_norm batch_norm group_norm "
            "instance_norm rms_norm"
        ),
    ),
    Cause(
        "domain_edge",
        means="a function at the edge of its domain",
        remedy="keep the argument inside: clamp it by an eps",
        breaks=(
            "acos asin acosh atanh arccos arcsin arccosh arctanh atan2 arctan2 pow float_power __rpow__ Pow Acos Asin Acosh "
            "Atanh Atan2 erfinv erf_inv ndtri igamma lgamma digamma cholesky linalg_cholesky det logdet slogdet tan "
            "integer_pow hypot exp Exp expm1 exp2 cosh sinh"
        ),
    ),
    Cause(
        "degenerate_eig",
        means="eigen or singular vectors at repeated or zero values",
        remedy="differentiate a function of the eigenvalues or of the projector, not single vectors",
        breaks=(
            "eigh linalg_eigh eig linalg_eig svd linalg_svd symeig eigvals linalg_eigvals pca_lowrank SelfAdjointEigV2 Svd qr "
            "linalg_qr eigvalsh matrix_rank pinv linalg_pinv svdvals"
        ),
    ),
    Cause(
        "masked_softmax_row",
        means="a softmax row that is masked entirely",
        remedy="use a large negative finite number as the mask, or zero the rows that are masked entirely",
        breaks=(
            "softmax log_softmax Softmax LogSoftmax logsumexp softmin scaled_dot_product_attention cross_entropy "
            "reduce_logsumexp logaddexp"
        ),
    ),
    Cause(
        "where_nan_trap",
        means="where() discards a branch whose derivative is not finite",
        remedy="clean the input of the branch that is not used with another where(), before the function",
    ),
    Cause(
        "low_precision",
        means="underflow, overflow or a no-op in a narrow type",
        remedy="compute this line in float32, or use an eps that the type can hold",
    ),
    Cause(
        "tie_subgradient",
        means="a tie or a kink: only one of several slopes is given",
        remedy="break the tie, or use a smooth function such as logsumexp",
        flattens="abs absolute",
    ),
)


WRONG = Family(
    "Another gradient than meant",
    "There is a gradient, and it is not the one that was meant.",
    Cause(
        "custom_backward_wrong",
        means="a custom backward disagrees with its forward",
        remedy="correct the backward; wrt.check(f, x) shows element by element where it differs",
        raised=("returned an incorrect number of gradients", "returned an invalid gradient at index"),
    ),
    Cause(
        "custom_backward_none",
        means="a custom backward returns None for this input",
        remedy="return the derivative for this input",
    ),
    Cause(
        "accumulated_grad",
        means=".grad holds the sum of several backward calls",
        remedy="reset it before backward: optimizer.zero_grad() or {x}.grad = None",
    ),
    Cause(
        "broadcast",
        means="two shapes broadcast by accident, so the loss is another one than meant",
        remedy="make the shapes equal: a.squeeze(1) or b.unsqueeze(1)",
    ),
    Cause(
        "double_softmax",
        means="softmax before a loss that applies it again",
        remedy="give the raw logits to the loss",
    ),
    Cause(
        "hook",
        means="a hook changes the gradient",
        remedy="remove the hook, or let it return None",
    ),
    Cause(
        "objective_sign",
        means="the step goes up an objective that is to go down",
        remedy="step against the gradient: x - eps * grad",
    ),
    Cause(
        "optimizer_wrong_params",
        means="the optimizer holds other parameters",
        remedy="build the optimizer after the model has its final parameters",
    ),
    Cause(
        "nonleaf_grad",
        means=".grad of a tensor that is no leaf is not kept",
        remedy="call {x}.retain_grad() before backward, or ask for d({y}) / d({x})",
    ),
    Cause(
        "leaf_moved_by_to_device_or_cast",
        means="a cast or a move made a copy that is no leaf",
        remedy="give dtype= and device= with requires_grad=True in one call, or requires_grad_() after the cast",
    ),
)


REFUSED = Family(
    "The framework refuses",
    "The framework refuses the backward.",
    Cause(
        "inplace_saved_tensor",
        means="a tensor needed by backward was changed in place",
        remedy="write h = h + ... instead of h += ..., or .clone() it before the change",
        raised=("modified by an inplace operation", "a tensor that backward needs was changed in place"),
    ),
    Cause(
        "view_inplace",
        means="a view was written in place where autograd cannot follow",
        remedy="write v = v * 3 instead of v *= 3, or .clone() it first",
        raised=(
            "is a view and is being modified inplace",
            "leaf Variable that requires grad is being used in an in-place",
            "a view of a leaf Variable",
            "leaf variable has been moved into the graph interior",
        ),
    ),
    Cause(
        "graph_freed",
        means="the graph was freed by an earlier backward",
        remedy="compute it again, or pass retain_graph=True to the first backward",
        raised=(
            "backward through the graph a second time",
            "after they have already been freed",
            "the graph of y was freed by an earlier backward",
        ),
    ),
    Cause(
        "nonscalar_backward",
        means="backward of more than one number without a gradient argument",
        remedy="reduce it to one number, for example .sum(), or pass gradient=",
        raised=("grad can be implicitly created only for scalar outputs", "Gradient only defined for scalar-output"),
    ),
    Cause(
        "save_for_backward_nontensor",
        means="save_for_backward was given something that is no tensor",
        remedy="keep numbers and shapes as attributes: ctx.n = n",
        raised=("save_for_backward can only save variables",),
    ),
    Cause(
        "no_reverse_rule",
        means="an operation or control flow without a reverse rule",
        remedy="use lax.scan or fori_loop with fixed bounds, or forward mode",
        stops="while",
        raised=(
            "Reverse-mode differentiation does not work",
            "Differentiation rule for",
            "Transpose rule",
            "derivative for .* is not implemented",
            "No gradient defined for operation",
        ),
    ),
)


FAMILIES = (CUT, OFF, LEAVING, STEPS, FLAT, SINGULAR, WRONG, REFUSED)
