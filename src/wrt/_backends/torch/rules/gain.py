"""Where rules gain more than it takes to look them up, next to `vmap`: measured kind by kind, at several sizes.

All rows of a Jacobian are pulled by rules, where there are such: the walk that finds them also tells that the batch
is trusted. A few rows that share passes gain nothing while they are small: starting an operation takes `vmap` about as long
as a rule. Large ones do, by what rules write in place: from about 2^16 numbers on. Some kinds are swept by `vmap` in several
operations, or once for each number where once for each column is enough: these gain from 2^14 numbers on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wrt._core.value import Value

MANY, SOME = 2**16, 2**14
LOOKED_AT_CLOSELY = 32  # rows from which on somebody looks how wide the tensors on the way are
FEW_ROWS = 12  # on a device, which waits for operations to be started; measured on stencils of 20 to 40 nodes

TAKEN_APART = frozenset(
    """
    BaddbmmBackward0 BmmBackward0 EluBackward0 GeluBackward0 IndexBackward0 LogSoftmaxBackward0 SiluBackward0 SoftplusBackward0
    """.split()
)


def come_first(y: Value) -> bool:
    """Whether the rules of all rows are looked for before anything else: on a device a few rows are left to `vmap`."""
    return y.key.device.type == "cpu" or y.size > FEW_ROWS


def gains(y: Value, xs: Sequence[Value], rows: int) -> bool:
    """Whether to look for the rules of so many rows, where their batch is trusted without them."""
    record: Any = y.record
    moment = y.key
    if moment.device.type != "cpu":
        return rows > FEW_ROWS
    least = SOME if moment.apart else MANY
    if rows * max(y.size, *[x.size for x in xs]) >= least:
        return True
    return rows >= LOOKED_AT_CLOSELY and rows * int(record.widest(y)) >= least
