"""Merged axes: shapes that a flattened or reshaped tensor may have had before."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import prod

from wrt._core.index import Shape

MOST = 24


def splits(y: Shape, x: Shape) -> Iterator[tuple[Shape, Shape]]:
    """Both shapes with one axis split the way the other side suggests.

    >>> next(splits((2048,), (2, 32, 32)))
    ((2, 32, 32), (2, 32, 32))
    """
    for axis, length in enumerate(y):
        for factors in _factors(length, x):
            yield y[:axis] + factors + y[axis + 1 :], x
    for axis, length in enumerate(x):
        for factors in _factors(length, y):
            yield y, x[:axis] + factors + x[axis + 1 :]


def _factors(length: int, others: Shape) -> Iterator[Shape]:
    """Ways to write a length as a product of the other side's lengths, with one factor left over at most."""
    lengths = [n for n in others if n > 1 and n < length and length % n == 0]
    seen: set[Shape] = set()
    for count in range(min(len(lengths), 4), 0, -1):
        for chosen in permutations(lengths, count):
            rest, remainder = divmod(length, prod(chosen))
            if remainder:
                continue
            for factors in (chosen,) if rest == 1 else ((rest, *chosen), (*chosen, rest)):
                if len(factors) > 1 and factors not in seen:
                    seen.add(factors)
                    yield factors
                if len(seen) >= MOST:
                    return
