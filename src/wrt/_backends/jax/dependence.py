"""What reaches what inside loops, branches and calls: with the value, or with the gradient, which a cut stops.

A scan is one operation of the run, but not all that goes in reaches all that comes out. Labels travel through its body
until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wrt._backends.jax import compat

Labels = frozenset[int]
NONE: Labels = frozenset()


def through(name: str, params: dict[str, Any], given: Sequence[Labels], made: Sequence[Any], *, gradient: bool) -> list[Labels]:
    """The labels of each output of one operation; `made` are its outputs, as far as their avals go."""
    if gradient and name == "stop_gradient":
        return [NONE] * len(made)
    if name == "scan":
        found = _scan(params, given, gradient)
    elif name == "while":
        found = _while(params, given, gradient)
    elif name == "cond":
        branches = [_jaxpr(branch, given[1:], gradient) for branch in params["branches"]]
        chosen = NONE if gradient else given[0]
        found = [chosen.union(*each) for each in zip(*branches, strict=True)]
    elif name in compat.INLINED:
        jaxpr, _ = compat.sub_jaxpr(params)
        found = _body(jaxpr, given, gradient)
    else:
        found = [NONE.union(*given)] * len(made)
    return [NONE if gradient and not _smooth(out) else labels for out, labels in zip(made, found, strict=True)]


def _jaxpr(closed: Any, given: Sequence[Labels], gradient: bool) -> list[Labels]:
    return _body(closed.jaxpr, given, gradient)


def _body(jaxpr: Any, given: Sequence[Labels], gradient: bool) -> list[Labels]:
    env: dict[Any, Labels] = {}
    for var, labels in zip(jaxpr.invars, given, strict=True):
        env[var] = NONE if gradient and not _smooth(var) else labels

    def read(atom: Any) -> Labels:
        return NONE if isinstance(atom, compat.Literal) else env.get(atom, NONE)

    for eqn in jaxpr.eqns:
        found = through(eqn.primitive.name, eqn.params, [read(a) for a in eqn.invars], eqn.outvars, gradient=gradient)
        env.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _scan(params: dict[str, Any], given: Sequence[Labels], gradient: bool) -> list[Labels]:
    first, many = compat.scan_counts(params)
    carry = list(given[first : first + many])
    while True:
        found = _jaxpr(params["jaxpr"], [*given[:first], *carry, *given[first + many :]], gradient)
        again = [old | new for old, new in zip(carry, found[:many], strict=True)]
        if again == carry:
            return [*carry, *found[many:]]
        carry = again


def _while(params: dict[str, Any], given: Sequence[Labels], gradient: bool) -> list[Labels]:
    tests, consts = params["cond_nconsts"], params["body_nconsts"]
    carry = list(given[tests + consts :])
    while True:
        decides = NONE if gradient else _jaxpr(params["cond_jaxpr"], [*given[:tests], *carry], gradient)[0]
        found = _jaxpr(params["body_jaxpr"], [*given[tests : tests + consts], *carry], gradient)
        again = [old | new | decides for old, new in zip(carry, found, strict=True)]
        if again == carry:
            return carry
        carry = again


def _smooth(var: Any) -> bool:
    return compat.is_differentiable(var.aval.dtype)


def cuts_inside(params: dict[str, Any]) -> Iterator[Any]:
    """Equations within a loop, a branch or a call at which a gradient stops."""
    for jaxpr in compat.inner_jaxprs(params):
        for eqn in jaxpr.eqns:
            smooth = [a for a in eqn.invars if not isinstance(a, compat.Literal) and _smooth(a)]
            if eqn.primitive.name == "stop_gradient" or (smooth and not any(map(_smooth, eqn.outvars))):
                yield eqn
            yield from cuts_inside(eqn.params)
