"""Some rows and some columns of a local map meet in a patch of every layer: only that is computed."""

from __future__ import annotations

from wrt._core.plan import Patches
from wrt._planner import cost

GAIN = 0.5  # of the work of whole passes that patches may take
QUICK = 3e-4  # seconds of whole passes that are left alone


def cone(m: int, n: int, work: float, whole: float) -> Patches | None:
    """The plan, where patches touch clearly less than whole passes; `work` and `whole` are of one pass."""
    if min(m, n) * whole * cost.CPU.product < QUICK or m * work > GAIN * min(m, n) * whole:
        return None
    share = work / whole
    meet = f"the rows and columns meet in {100 * share:.2g} % of what a pass touches"
    return Patches(m, share, f"{meet}; {m} passes through that alone")
