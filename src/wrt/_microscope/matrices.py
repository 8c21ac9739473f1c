"""A whole Jacobian in the smallest form a file can carry: dense, sparse, or two thin factors through a narrow place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wrt._core.index import Elements
from wrt._core.protocol import random_signs
from wrt._core.report import Certificate
from wrt._microscope import encode
from wrt._microscope.answer import plan, report
from wrt._microscope.encode import Numbers
from wrt._notation.d import d
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle, Trace
from wrt._study.tensors import handle_of, narrow_places, numbers

TEXT = 4 / 3  # characters of base64 for one byte


def matrix(t: Trace, y: tuple[str, Handle], x: tuple[str, Handle]) -> dict[str, Any]:
    """Rows are the flattened elements of y's selection, columns those of x; raises where there is no path."""
    J = d(y[1]) / d(x[1])
    factors = _narrow(t, y[1], x[1])
    if factors is not None and (proof := _agree(J, *factors)):
        left, right = (encode.array(one) for one in factors)
        return _told(y, x, J, {"kind": "factors", "factors": {"left": left, "right": right}}) | {"certificate": str(proof)}
    rows, columns = math.prod(y[1].shape), math.prod(x[1].shape)
    dense = encode.real(numbers(J)).reshape(rows, columns)
    return _told(y, x, J, _smaller(dense))


def bytes_of(form: dict[str, Any]) -> int:
    """Characters of its arrays."""
    inner = form[form["kind"]]
    return sum(len(one["base64"]) for one in ([inner] if "base64" in inner else inner.values()))


def dense_bytes(y: Handle, x: Handle) -> int:
    """What all of it takes, at most."""
    return int(math.prod(y.shape) * math.prod(x.shape) * 4 * TEXT)


def _smaller(dense: Numbers) -> dict[str, Any]:
    """Sparse where that takes less room; an entry that is not finite counts as one."""
    entries = int(np.count_nonzero(dense))
    size = dense.dtype.itemsize
    if entries * (size + 4) + 4 * (dense.shape[0] + 1) >= dense.size * size:
        return {"kind": "dense", "dense": encode.array(dense)}
    at_row, at_column = np.nonzero(dense)
    starts = np.searchsorted(at_row, np.arange(dense.shape[0] + 1))
    sparse = {
        "indptr": encode.array(starts, "i32"),
        "indices": encode.array(at_column, "i32"),
        "values": encode.array(dense[at_row, at_column]),
    }
    return {"kind": "sparse", "sparse": sparse}


def _narrow(t: Trace, y: Handle, x: Handle) -> tuple[Numbers, Numbers] | None:
    """(m, w) and (w, n) through the narrowest value that everything passes, where that is smaller than m x n."""
    recording: Any = y._recording
    ends = [recording.numbered(one.__wrt_differential__()[0]) for one in (y, x)]
    if None in ends or not _whole(y) or not _whole(x):
        return None
    m, n = math.prod(y.shape), math.prod(x.shape)
    sizes = {k: math.prod(t.graph.tensors[k].shape) for k in narrow_places(t, {ends[1]}, {ends[0]}) if k not in ends}
    for number in sorted(sizes, key=lambda k: sizes[k]):
        if 3 * sizes[number] * (m + n) > m * n:
            return None
        waist = handle_of(t, number)
        if waist is not None and not waist.writes:
            left, right = numbers(d(y) / d(waist)), numbers(d(waist) / d(x))
            return encode.real(left).reshape(m, sizes[number]), encode.real(right).reshape(sizes[number], n)
    return None


def _agree(J: Derivative, left: Numbers, right: Numbers) -> Certificate:
    """A random combination of rows of the product, next to one plain pull of the same combination."""
    u = random_signs(1, left.shape[0], seed=1)
    pulled = numbers(u.reshape(J.rows.shape) @ J).reshape(-1)
    ours = (u @ left @ right).reshape(-1)
    scale = float((np.abs(u) @ np.abs(left) @ np.abs(right)).max()) or 1.0
    precision = float(np.finfo(left.dtype).eps)
    residual = float(np.abs(ours - pulled).max()) / scale
    return Certificate("probe", residual, 1e3 * precision * math.sqrt(max(left.shape)), probe="of the two factors")


def _whole(handle: Handle) -> bool:
    _, elements = handle.__wrt_differential__()
    return elements.everything


def _told(y: tuple[str, Handle], x: tuple[str, Handle], J: Any, form: dict[str, Any]) -> dict[str, Any]:
    value, elements = y[1].__wrt_differential__()
    rows = None if elements.everything else [int(k) for k in elements.positions]
    ran = report(J)
    return {
        "target": {"name": y[0], "shape": list(value.shape)},
        "source": {"name": x[0], "shape": list(x[1].shape)},
        "rows": rows,
        "plan": plan(J),
        "certificate": None if ran is None or ran.certificate is None else str(ran.certificate),
        **form,
    }


def spread(shape: tuple[int, ...], count: int, first: list[int] | None) -> Numbers:
    """About `count` flat positions of a shape, evenly spread, the one to look at first among them."""
    size = math.prod(shape)
    chosen = np.unique(np.linspace(0, size - 1, num=min(count, size)).astype(np.int64))
    if first is not None and len(first) == len(shape):
        chosen = np.union1d(chosen, [int(Elements.all(shape).pick(tuple(first)).first)])
    return chosen
