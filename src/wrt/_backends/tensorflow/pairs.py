"""Which elements meet in each operation between y and x: from tables and rules, or read off the operation's own gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.log import Log, Payload, Payloads
from wrt._core import partners
from wrt._core.flow import LocalMap, LocalMaps
from wrt._core.index import Shape
from wrt._core.partners import Pairs
from wrt._core.thresholds import MANY_NUMBERS, MOST_OPERATIONS, MOST_PAIRS

ELEMENTWISE = frozenset(
    "Abs Acos Acosh Add AddV2 Asin Asinh Atan Atan2 Atanh Cast Ceil Cos Cosh Digamma Div DivNoNan Elu Erf Erfc Exp "
    "Expm1 Floor Identity LeakyRelu Lgamma Log Log1p Maximum Minimum Mul MulNoNan Neg Pow RealDiv Reciprocal Relu Relu6 "
    "Rint Round Rsqrt SelectV2 Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square SquaredDifference Sub Tan Tanh "
    "Xdivy Xlogy ZerosLike".split()
)
"""Each element of the result comes from the elements at its place, or from those that are repeated to stand there."""

MOVES = frozenset(
    "BiasAdd BroadcastTo ConcatV2 DiagPart ExpandDims GatherNd GatherV2 MatrixDiag MatrixDiagPartV3 MatrixDiagV3 Mean MirrorPad "
    "Pack Pad PadV2 Reshape ReverseV2 Roll ScatterNd SegmentSum Slice Split SplitV Squeeze StridedSlice Sum "
    "TensorScatterAdd TensorScatterSub TensorScatterUpdate Tile Transpose Unpack UnsortedSegmentSum".split()
)
"""Whose gradient is the same whatever the numbers are: an element that is not met is met nowhere."""

NORMALIZERS = frozenset({"Softmax", "LogSoftmax"})


def local_maps(log: Log, y: int, x: int, *, certain: bool = False) -> LocalMaps | None:
    """None where an operation between y and x is not simple: a convolution, a decomposition, a compiled function.

    A slope that is zero only here leaves a pair out; `certain` maps are those that leave out none.
    """
    path = log.between(x, y)
    if not path or len(path) > MOST_OPERATIONS or any(map(log.is_opaque, path)):
        return None
    reached = {x}.union(*(log.operations[index].outputs for index in path))
    order = [number for index in reversed(path) for number in log.operations[index].outputs if log.carries(number)]
    order = [y, *(number for number in order if number not in (x, y)), x]
    places = {number: k for k, number in enumerate(order)}
    payloads, maps = Payloads(log), []
    for index in reversed(path):
        payload = payloads.of(index)
        if payload is None:
            return None
        if log.gradient(index) != "yes":
            continue  # nothing flows back here
        operation = log.operations[index]
        for output, after in enumerate(operation.outputs):
            for k, before in enumerate(operation.inputs):
                if before in reached and after in places and before in places:
                    found = _pairs(operation.op, payload, output, k, certain=certain)
                    if found is None:
                        return None
                    maps.append(LocalMap(places[after], places[before], found if found else None))
    sizes = tuple(int(np.prod(log.tensors[number][0], dtype=np.int64)) for number in order)
    return LocalMaps(sizes, tuple(maps))


def _pairs(op: str, payload: Payload, output: int, k: int, *, certain: bool) -> Pairs | tuple[()] | None:
    """Pairs of elements that meet; () for each with its own."""
    after, before = compat.shape(payload.outputs[output]), compat.shape(payload.inputs[k])
    if op in ELEMENTWISE:
        return () if after == before else partners.broadcast(after, before)
    if certain and op not in MOVES:
        return None
    ruled = _by_rule(op, payload, k, after, before)
    if ruled is not None:
        return ruled
    if max(np.prod(after), np.prod(before)) > MANY_NUMBERS:
        return None
    try:
        with compat.sweeping():
            return _read_off(op, payload, output, k, after, before)
    except (LookupError, ValueError, TypeError, NotImplementedError, tf.errors.OpError):
        return None


def _by_rule(op: str, payload: Payload, k: int, after: Shape, before: Shape) -> Pairs | None:
    """Matrix products, and what mixes the last axis: every index of one axis meets every index of another."""
    said = dict(zip(payload.attributes[::2], payload.attributes[1::2], strict=True))
    turned = any(said.get(word) for word in ("transpose_a", "transpose_b", "adj_x", "adj_y", "adjoint_a", "adjoint_b"))
    if op in NORMALIZERS and before:
        return partners.neighbors(int(np.prod(before)), before[-1])
    if turned:
        return None
    if op == "MatMul":
        return partners.product((), after, before, left=k == 0)
    if op in ("BatchMatMul", "BatchMatMulV2") and after[:-2] == before[:-2]:
        return partners.product(after[:-2], after[-2:], before[-2:], left=k == 0)
    if op == "SparseTensorDenseMatMul":
        return _sparse_product(payload.inputs[0].numpy(), after, before, values=k == 1)
    return None


def _sparse_product(indices: Any, after: Shape, before: Shape, *, values: bool) -> Pairs | None:
    """out[i, :] of each entry (i, j) of a sparse matrix, or of row j of what it is multiplied with."""
    width = after[1]
    if len(indices) * width > MOST_PAIRS:
        return None
    column = np.arange(width)
    rows = indices[:, :1] * width + column
    met = np.arange(len(indices))[:, None] + 0 * column if values else indices[:, 1:] * width + column
    return rows.reshape(-1), met.reshape(-1)


def _read_off(op: str, payload: Payload, output: int, k: int, after: Shape, before: Shape) -> Pairs | tuple[()] | None:
    made, given = payload.outputs[output], payload.inputs[k]
    if made.dtype.is_complex or given.dtype.is_complex:
        return None

    def pulled(seed: Any) -> Any:
        seeds = [seed if number == output else None for number in range(len(payload.outputs))]
        found = compat.local_pull(op, payload.inputs, payload.attributes, payload.outputs, seeds)[k]
        return None if found is None else tf.convert_to_tensor(found)

    def flat(found: Any) -> Any:
        return tf.reshape(tf.cast(found, tf.float64), (-1,)).numpy()

    def seeds_like(tensor: Any, shape: Shape) -> list[Any]:
        return [tf.reshape(tf.constant(vector, tensor.dtype), shape) for vector in partners.vectors(int(np.prod(shape)))]

    rows = [pulled(seed) for seed in seeds_like(made, after)]
    if any(row is None for row in rows):
        return None
    met = partners.one_each([flat(row) for row in rows], int(np.prod(after)))
    if met is not None:
        return partners.told((met[1], met[0]), after, before)
    seed = tf.zeros(after, made.dtype)
    with compat.second_tape(seed) as second:
        out = pulled(seed)
    columns = [compat.pull(second, [out], [seed], [vector])[0] for vector in seeds_like(given, before)]
    if any(column is None for column in columns):
        return None
    met = partners.one_each([flat(tf.convert_to_tensor(column)) for column in columns], int(np.prod(before)))
    return None if met is None else partners.told(met, after, before)
