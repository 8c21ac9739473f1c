"""`wrt.why` and `wrt.check`: what is asked, found in its recording and examined."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from wrt import _backends
from wrt._core.finding import Finding, Findings
from wrt._core.index import Elements
from wrt._core.value import Value
from wrt._notation.d import Differential
from wrt._notation.examined import between, unknown
from wrt._notation.trace import Handle, trace
from wrt._why.causes import causes
from wrt._why.check import check as examine_operations
from wrt._why.errors import explain
from wrt.errors import NotATensor, UnknownName


def why(y: Any, *args: Any, **kwargs: Any) -> Findings:
    """Why a gradient is missing, zero, not finite or wrong; false when nothing is.

    `why(y, x)` asks about tensors, handles or `d(...)` of a recorded run, `why(f, *args)` runs a function first, and
    `why(error)` explains an exception.

    >>> import torch, wrt
    >>> with wrt.record():
    ...     x = torch.tensor([1.0, 2.0], requires_grad=True)
    ...     y = (x.detach() * 3).sum()
    >>> [finding.cause for finding in wrt.why(y, x)]
    ['detach']
    """
    if isinstance(y, BaseException):
        return explain(y)
    if callable(y) and not _is_side(y):
        t = trace(y, *args, **kwargs)
        return t.why()
    if len(args) != 1:
        raise NotATensor(
            f"why() of {1 + len(args)} things",
            "it asks about y and x, about a function and its arguments, or about an exception",
            "write wrt.why(y, x), wrt.why(f, x) or wrt.why(error)",
        )
    if isinstance(args[0], (bool, int)):
        return whole_number(args[0])
    return between(_place(y), _place(args[0]))


def check(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Findings:
    """Which operation of f has a wrong derivative: each one against central differences of its own forward.

    >>> import torch, wrt
    >>> class Cube(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return 2 * g * ctx.saved_tensors[0] ** 2
    >>> found = wrt.check(lambda x: Cube.apply(torch.tanh(x)).sum(), torch.ones(2, dtype=torch.float64))
    >>> len(found), found[0].evidence[:14]
    (1, 'Cube, input 0[')
    """
    t = trace(f, *args, values=True, **kwargs)
    return examine_operations(t._one.evidence())


def whole_number(x: int) -> Findings:
    """A Python int that was given to a function is no floating-point tensor, and never became one."""
    cause = causes()["int_input"]
    found = Finding(
        "int_input", f"{x!r} is a whole number: {cause.means}", evidence=f"a Python {type(x).__name__}", remedy=cause.remedy
    )
    return Findings((found,), f"why d(y) / d({x!r})")


def _place(obj: Any) -> tuple[Any, Value, Elements]:
    """The recording, the Value and the elements that are meant."""
    if isinstance(obj, Handle):
        value, elements = obj.__wrt_differential__()
        return obj._recording, value, elements
    if isinstance(obj, Differential):
        if not obj.value.record.recorded:
            raise unknown()
        return obj.value.record, obj.value, obj.elements
    for backend in _backends.loaded():
        found = backend.recorded(obj) if backend.owns(obj) else None
        if found is not None:
            return found.record, found, Elements.all(found.shape)
    raise unknown()


def _is_side(obj: Any) -> bool:
    return isinstance(obj, (Handle, Differential)) or any(b.owns(obj) and b.tree(obj) is None for b in _backends.loaded())


def explain_cause(slug: str) -> str:
    """What a cause means, a small program with it, what `why` says, and what to write.

    >>> print(explain_cause("detach").splitlines()[0])
    detach: .detach() cuts the path
    """
    known = causes()
    if slug not in known:
        close = difflib.get_close_matches(slug, known, n=3)
        raise UnknownName(
            f"there is no cause called {slug}",
            f"wrt knows {len(known)} causes",
            f"did you mean {', '.join(close)}?" if close else f"they are {', '.join(sorted(known))}",
        )
    cause = known[slug]
    told = [f"{slug}: {cause.means}"]
    if cause.case:
        told += ["", *(f"    {line}" for line in cause.case.splitlines())]
    return "\n".join([*told, "", f"write: {cause.remedy}"])
