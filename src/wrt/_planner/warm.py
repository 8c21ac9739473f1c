"""Plans that worked, for the next question of the same form: a training loop, a Newton iteration.

The key is cheap and may be too coarse: two runs with one key may differ where it does not look. That is only a matter
of speed, since a plan used again is proven again; where the proof fails the plan is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.plan import Plan

MOST = 64
_PLANS: OrderedDict[Hashable, Plan] = OrderedDict()


def key_of(ask: Ask) -> Hashable:
    """What two questions must share to share a plan, and what it keeps: numbers of a type, on a device."""
    if ask.key is None:
        ask.key = _key(ask)
    return ask.key


def _key(ask: Ask) -> Hashable:
    y, record = ask.y, ask.y.record
    signature = getattr(record, "signature", None)
    return (
        record.backend.name,
        y.shape,
        y.dtype,
        getattr(y.key, "device", None),
        _selection(ask.rows),
        ask.x.shape,
        tuple([(part.value.shape, part.value.dtype, _selection(part.elements), part.component) for part in ask.x.parts]),
        None if signature is None else signature(y),
    )


def _selection(elements: Elements) -> Hashable:
    if elements.listed is None:
        return elements.shape, elements.offset, elements.strides
    return elements.shape, hash(elements.listed.tobytes())


def recall(key: Hashable) -> Plan | None:
    """The plan that answered such a question last time."""
    found = _PLANS.get(key)
    if found is not None:
        _PLANS.move_to_end(key)
    return found


def remember(key: Hashable, plan: Plan) -> None:
    _PLANS[key] = plan
    _PLANS.move_to_end(key)
    while len(_PLANS) > MOST:
        _PLANS.popitem(last=False)


def forget(key: Hashable | None = None) -> None:
    """Drop one plan, or all of them: the next question is planned from the start."""
    if key is None:
        _PLANS.clear()
    else:
        _PLANS.pop(key, None)


def kept_plans() -> dict[Hashable, Any]:
    """What is remembered now, for those who look."""
    return dict(_PLANS)
