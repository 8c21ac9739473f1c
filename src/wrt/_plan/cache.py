"""Plans that held, for the next question of the same structure: a training loop, a Newton iteration.

A plan is remembered, never trust: whatever it gives is proven again. The only memory that planning has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import Lock

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.plan import Plan
from wrt._core.thresholds import KEPT_ENTRIES

NOTHING = "nothing better than a direct sweep"

_PLANS: OrderedDict[Hashable, Plan | str] = OrderedDict()
_LOCK = Lock()


def key_of(ask: Ask) -> Hashable:
    """What two questions must share to share a plan: the structure of the run, and what of it is asked for."""
    y, x = ask.y, ask.x
    parts = tuple([(part.value.shape, part.value.dtype, _selection(part.elements), part.component) for part in x.parts])
    device = y.record.backend.name, ask.accelerated
    return device, y.shape, y.dtype, _selection(ask.rows), x.shape, parts, y.record.signature(y, x.values)


def _selection(elements: Elements) -> Hashable:
    if elements.listed is None:
        return elements.shape, elements.offset, elements.strides
    return elements.shape, elements.listed.tobytes()


def recall(key: Hashable) -> Plan | str | None:
    """The plan that answered such a question, or NOTHING; None where none was asked yet."""
    with _LOCK:
        found = _PLANS.get(key)
        if found is not None:
            _PLANS.move_to_end(key)
        return found


def holds(plan: Plan) -> bool:
    """Whether this very plan was recalled: then it need not be remembered again."""
    return any(plan is known for known in tuple(_PLANS.values()))


def remember(key: Hashable, plan: Plan | str) -> None:
    with _LOCK:
        _PLANS[key] = plan
        _PLANS.move_to_end(key)
        while len(_PLANS) > KEPT_ENTRIES:
            _PLANS.popitem(last=False)


def forget() -> None:
    """Drop all plans: the next question is planned from the start."""
    with _LOCK:
        _PLANS.clear()


@contextmanager
def set_aside() -> Iterator[None]:
    """Inside, no plan of an earlier question is known: what is computed depends on nothing that was asked before."""
    with _LOCK:
        kept = dict(_PLANS)
        _PLANS.clear()
    try:
        yield
    finally:
        with _LOCK:
            _PLANS.clear()
            _PLANS.update(kept)
