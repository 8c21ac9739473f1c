"""The path goes through something that moves in steps: indices, casts, comparisons, rounding."""

from wrt._why.cause import Cause, ops

CAUSES = (
    Cause(
        "argmax",
        "the path goes through the index of a largest or smallest element",
        "use softmax, Gumbel-softmax or a straight-through estimator",
        stops=ops("argmax argmin ArgMax ArgMin max min cummax cummin"),
        case="k = x.argmax()\ny = w[k]",
    ),
    Cause(
        "sort_indices",
        "only the indices of a sort are used",
        "use the sorted values, or a soft rank",
        stops=ops("argsort sort topk kthvalue msort TopKV2 top_k approx_top_k median mode nanmedian"),
        case="r = x.argsort().float()\ny = (r * w).sum()",
    ),
    Cause(
        "comparison",
        "the value only enters through a comparison",
        "use a soft comparison: torch.sigmoid(k * (a - b))",
        stops=ops(
            "gt lt ge le eq ne greater less greater_equal less_equal equal not_equal isclose logical_and logical_or "
            "logical_not logical_xor isnan isinf isfinite GreaterEqual LessEqual NotEqual LogicalAnd LogicalOr LogicalNot "
            "and or not xor all any nonzero __bool__ is_nonzero count_nonzero invert signbit is_finite"
        ),
        case="keep = w > x\ny = w[keep].sum()",
    ),
    Cause(
        "integer_cast",
        "cast to an integer type",
        "keep floats; interpolate between neighbors instead of picking one",
        stops=ops("long int short char byte bool to type Cast convert_element_type int32 int64 type_as cast"),
        case="k = (x * 0.5).long()\ny = w[k].sum()",
    ),
    Cause(
        "integer_output",
        "an operation with an integer result",
        "interpolate between the neighboring bins; the number of a bin has no derivative",
        stops=ops("searchsorted bucketize histc histogram bincount unique unique_consecutive SearchSorted "
                  "UpperBound LowerBound Bucketize Unique UniqueV2 Bincount HistogramFixedWidth one_hot"),
    ),
    Cause("int_input", "an integer input cannot be differentiated", "make it floating point: 2.0 instead of 2",
          raised=(
              r"d\(\) of a(?: tensor|n array) of (?:u?int|bool|whole)",
              r"is a tensor of (?:u?int|bool)",
              "only Tensors of floating point",
              "grad requires real- or complex-valued inputs",
          )),
    Cause(
        "round",
        "rounding has slope zero",
        "use a straight-through estimator: x + (x.round() - x).detach()",
        stops=ops("Floor Ceil Round Rint floor_divide floordiv FloorDiv rfloordiv"),
        flattens=ops("round floor ceil trunc fix rint FloorDiv nearbyint fake_quantize div true_divide floor_divide FloorMod"),
        case="y = (torch.round(x * 3) * w).sum()",
    ),
    Cause("sign", "sign has slope zero", "use tanh(k * x), or a straight-through estimator",
          flattens=ops("sign sgn"), stops=ops("Sign"), case="y = (torch.sign(x) * w).sum()"),
    Cause(
        "no_derivative",
        "an operation whose derivative is zero or undefined everywhere",
        "use a smooth operation in its place",
        flattens=ops("heaviside grid_sample nextafter grid_sampler affine_grid"),
    ),
)  # fmt: skip
