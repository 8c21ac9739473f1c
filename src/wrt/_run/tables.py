"""Sums of tables (see `_core.pattern`) as one index, added up where the array that it is for lives."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from wrt._core.ask import Ask
from wrt._core.index import Shape
from wrt._core.pattern import Tables
from wrt._core.protocol import Array
from wrt._core.value import Value

SMALL = 2**16  # numbers up to which a sum of tables travels to a device sooner than its parts


def written_out(ask: Ask, tables: Tables, like: Value) -> Array:
    """The sum of the tables as one flat index."""
    return summed(ask, tables, like, (-1,))


def summed(ask: Ask, tables: Tables, like: Value, shape: Shape | None = None) -> Array:
    """The same in the shape that the tables broadcast to, or in another."""
    arrays = ask.y.record.backend.arrays
    shapes = [table.shape for table in tables]
    whole = np.broadcast_shapes(*shapes)
    if not ask.accelerated or math.prod(whole) <= SMALL:
        return arrays.index(np.asarray(sum(tables)).reshape(whole if shape is None else shape), like)
    sent = arrays.index(np.concatenate([table.reshape(-1) for table in tables]), like)  # all in one transfer
    ends = np.cumsum([0, *map(math.prod, shapes)]).tolist()
    parts = [arrays.reshape(sent[a:b], each) for (a, b), each in zip(pairwise(ends), shapes, strict=True)]
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found if shape is None else arrays.reshape(found, shape)
