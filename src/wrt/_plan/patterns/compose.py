"""From what each operation says of its own elements to the pattern of the whole map: products of boolean matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from wrt._core.index import Positions
from wrt._core.local_maps import LocalMap, LocalMaps

DENSE = 0.25  # a share of entries beyond which nobody gains anything


def compose(local: LocalMaps, rows: Positions, columns: Positions, *, most: float = DENSE) -> Any | None:
    """The (rows, columns) pattern as a boolean csr array; None where more than a share of `most` is filled.

    Where everything passes one tensor the product is begun anew, and the pieces are multiplied at the end: a graph
    convolution spreads to all edges and back, and is a matrix of nodes by nodes when seen as one piece.
    """
    from scipy.sparse import eye_array

    maps: dict[int, list[LocalMap]] = {}
    for one in local.maps:
        maps.setdefault(one.later, []).append(one)
    pieces: list[Any] = []
    waiting: dict[int, Any] = {0: eye_array(local.sizes[0], dtype=bool, format="csr")[rows]}
    end = len(local.sizes) - 1
    for tensor in range(end):
        reached = waiting.pop(tensor, None)
        if reached is None:
            continue
        if not waiting and tensor:
            pieces.append(reached)
            reached = eye_array(local.sizes[tensor], dtype=bool, format="csr")
        for one in maps.get(tensor, []):
            step = reached if one.pairs is None else reached @ _matrix(one, local)
            before = waiting.get(one.earlier)
            waiting[one.earlier] = step if before is None else before + step
    if end not in waiting:
        return None
    pieces.append(waiting[end])
    return _multiplied(pieces, columns, most)


def met(local: LocalMaps, row: int) -> Positions:
    """The elements of x that one element of y meets: its row of the pattern, without the others."""
    maps: dict[int, list[LocalMap]] = {}
    for one in local.maps:
        maps.setdefault(one.later, []).append(one)
    reached = [np.zeros(0, dtype=bool) for _ in local.sizes]
    reached[0] = np.zeros(local.sizes[0], dtype=bool)
    reached[0][row] = True
    for tensor in range(len(local.sizes) - 1):
        for one in maps.get(tensor, []) if len(reached[tensor]) else ():
            if not len(reached[one.earlier]):
                reached[one.earlier] = np.zeros(local.sizes[one.earlier], dtype=bool)
            if one.pairs is None:
                reached[one.earlier] |= reached[tensor]
            else:
                reached[one.earlier][one.pairs[1][reached[tensor][one.pairs[0]]]] = True
    return np.flatnonzero(reached[-1])


def _matrix(one: LocalMap, local: LocalMaps) -> Any:
    from scipy.sparse import csr_array

    assert one.pairs is not None
    ones = np.ones(len(one.pairs[0]), dtype=bool)
    return csr_array((ones, one.pairs), shape=(local.sizes[one.later], local.sizes[one.earlier]))


def _multiplied(pieces: list[Any], columns: Positions, most: float) -> Any | None:
    found = pieces[0]
    for piece in pieces[1:]:
        found = found @ piece
        if found.nnz > most * found.shape[0] * found.shape[1]:
            return None
    if len(columns) < found.shape[1] or np.any(np.diff(columns) != 1):
        found = found[:, columns]
    found = found.tocsr()
    found.sum_duplicates()
    return None if found.nnz > most * found.shape[0] * found.shape[1] else found
