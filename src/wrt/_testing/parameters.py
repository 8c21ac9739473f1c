"""`assert_all_parameters_learn`: a gradient that is there, finite and not zero reaches every parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import numpy as np

from wrt import d
from wrt._testing.verdict import Failed, Proven, assertion
from wrt.errors import GradientCut, NoPath, NotDifferentiable, NotRecorded, UnknownName
from wrt.extend import numbers


@assertion
def assert_all_parameters_learn(loss: Any, model: Any, *, frozen: Sequence[str] = ()) -> Proven:
    """Every parameter of the model gets a gradient of this loss that is there, finite and not zero.

    `frozen` names those that are meant to rest, as patterns: frozen=["backbone.*"]. One shared pass for all of them.

    >>> import torch
    >>> model = torch.nn.Linear(3, 2)
    >>> assert_all_parameters_learn(model(torch.ones(1, 3)).sum(), model).claim
    'all 2 parameters learn'
    """
    found = dict(_named(d(loss) / d(model), ""))
    for pattern in frozen:
        if not any(fnmatch(name, pattern) for name in found):
            raise _no_such(pattern, list(found))
    asked = {name: one for name, one in found.items() if not any(fnmatch(name, pattern) for pattern in frozen)}
    faults = {name: fault for name, one in asked.items() if (fault := _fault(one))}
    if faults:
        name, fault = next(iter(faults.items()))
        rest = [f"{name}: {fault}" for name, fault in list(faults.items())[1:9]]
        more = len(faults) - 1 - len(rest)
        raise Failed(
            f"{name} does not learn: {fault}",
            "\n    ".join([f"{len(faults)} of {len(asked)} parameters do not:", f"{name}: {fault}", *rest])
            + (f"\n    and {more} more" if more > 0 else ""),
            f"use it in the loss, let gradients through, or name it in frozen=[{name!r}]",
        )
    resting = len(found) - len(asked)
    notes = (f"{resting} were named frozen",) if resting else ()
    return Proven(f"all {len(asked)} parameters learn", "a finite gradient that is not zero, at this loss", 1, notes)


def _no_such(pattern: str, names: list[str]) -> UnknownName:
    """A pattern that fits nothing is a slip of the pen: what it was meant for would be tested, or its neighbor not."""
    known = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    return UnknownName(f"frozen={pattern!r} fits no parameter", f"there is {known}", "write a name, or a pattern as 'layer.*'")


def _named(answers: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(answers, Mapping):
        for key, one in answers.items():
            yield from _named(one, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(answers, (list, tuple)):
        for place, one in enumerate(answers):
            yield from _named(one, f"{prefix}[{place}]")
    else:
        yield prefix, answers


def _fault(one: Any) -> str:
    try:
        g = numbers(one)
    except GradientCut as cut:
        return f"the gradient is cut: {cut.where}"
    except NoPath:
        return "no gradient path leads to it"
    except NotRecorded:
        return "it does not require grad"
    except NotDifferentiable as missing:
        return missing.what
    if not one.connected:
        return "the loss does not use it"
    if not np.isfinite(g).all():
        return f"{int((~np.isfinite(g)).sum())} of {g.size} gradients are NaN or infinite"
    return "" if np.any(g) else "its gradient is zero everywhere"
