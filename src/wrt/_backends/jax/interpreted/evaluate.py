"""The operations of a jaxpr in NumPy, in order, where a rule is known for each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from wrt._backends.jax import compat
from wrt._backends.jax.interpreted import elementwise, indexing, products, shapes

Array = Any

RULES = {**elementwise.RULES, **shapes.RULES, **indexing.RULES, **products.RULES}
CALLS = compat.INLINED | {"custom_jvp_call", "custom_vjp_call"}
"""Operations that only wrap others; what is differentiated by a rule of its own has been differentiated by now."""

PER_OPERATION, PER_NUMBER, PER_PRODUCT = 4e-6, 1.5e-9, 1e-10  # seconds, about: only orders of magnitude matter
COMPILER, PER_COMPILED, PER_HEAVY = 2e-2, 1.5e-3, 4e-2  # what a compiler takes, for each operation and each convolution


def evaluate(jaxpr: Any, consts: Sequence[Array], given: Sequence[Array]) -> list[Array]:
    """What the jaxpr gives for these arrays, as arrays of NumPy."""
    env: dict[Any, Array] = dict(zip((*jaxpr.constvars, *jaxpr.invars), map(np.asarray, (*consts, *given)), strict=True))

    def read(atom: Any) -> Array:
        return np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, compat.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        found = _ran(eqn, [read(atom) for atom in eqn.invars])
        for var, array in zip(eqn.outvars, found, strict=True):
            env[var] = np.asarray(array).astype(var.aval.dtype, copy=False)
    return [read(atom) for atom in jaxpr.outvars]


def moved(primitive: Any, params: dict[str, Any], given: Sequence[Array], avals: Sequence[Any]) -> list[Array] | None:
    """What an operation gives that only moves numbers: the same bits as JAX's own; None for any other operation."""
    name = primitive.name
    if name not in shapes.RULES or name in shapes.ROUNDED or not all(map(_ordinary, (*avals, *given))):
        return None
    if name == "convert_element_type" and avals[0].dtype.kind in "iu":  # NumPy and JAX round what does not fit differently
        return None
    found: Any = shapes.RULES[name](*map(np.asarray, given), **params)
    made = found if primitive.multiple_results else [found]
    return [np.asarray(array).astype(aval.dtype, copy=False) for array, aval in zip(made, avals, strict=True)]


def _ran(eqn: Any, given: list[Array]) -> Sequence[Array]:
    name = eqn.primitive.name
    if name in CALLS:
        return evaluate(*compat.sub_jaxpr(eqn.params), given)
    if name == "scan":
        return _scanned(eqn.params, given)
    if name == "cond":
        which, *operands = given
        branches = eqn.params["branches"]
        chosen = branches[max(0, min(int(which), len(branches) - 1))]
        return evaluate(chosen.jaxpr, chosen.consts, operands)
    found: Any = RULES[name](*given, **eqn.params)
    return found if eqn.primitive.multiple_results else [found]


def _scanned(params: dict[str, Any], given: list[Array]) -> list[Array]:
    consts, carried = params["num_consts"], params["num_carry"]
    body, length = params["jaxpr"], params["length"]
    fixed, state, rows = given[:consts], given[consts : consts + carried], given[consts + carried :]
    outputs = [np.empty((length, *aval.shape), aval.dtype) for aval in body.out_avals[carried:]]
    for k in reversed(range(length)) if params["reverse"] else range(length):
        made = evaluate(body.jaxpr, body.consts, [*fixed, *state, *(row[k] for row in rows)])
        state = made[:carried]
        for whole, one in zip(outputs, made[carried:], strict=True):
            whole[k] = one
    return [*state, *outputs]


def known(jaxpr: Any) -> bool:
    """Whether there is a rule for everything in it."""
    return all(_has_rule(eqn) for eqn, _ in _operations(jaxpr, 1))


@lru_cache(maxsize=1024)
def pays(jaxpr: Any) -> bool:
    """Whether NumPy can evaluate it, and sooner than it could be compiled."""
    if not known(jaxpr):
        return False
    takes, compiling = 0.0, COMPILER
    for eqn, times in _operations(jaxpr, 1):
        numbers = sum(math.prod(var.aval.shape) for var in eqn.outvars)
        takes += times * (PER_OPERATION + numbers * PER_NUMBER + _multiplied(eqn) * PER_PRODUCT)
        compiling += PER_HEAVY if eqn.primitive.name == "conv_general_dilated" else PER_COMPILED
    return takes < compiling


def _operations(jaxpr: Any, times: int) -> Iterator[tuple[Any, int]]:
    """Every operation, those inside others too, and how often it runs."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in CALLS:
            yield from _operations(compat.sub_jaxpr(eqn.params)[0], times)
        elif name == "scan":
            yield from _operations(eqn.params["jaxpr"].jaxpr, times * eqn.params["length"])
        elif name == "cond":
            for branch in eqn.params["branches"]:
                yield from _operations(branch.jaxpr, times)
        else:
            yield eqn, times


def _has_rule(eqn: Any) -> bool:
    """Whether NumPy knows the operation, and the types of all its numbers."""
    name = eqn.primitive.name
    if name not in RULES or eqn.effects or (name in elementwise.REAL_ONLY and eqn.invars[0].aval.dtype.kind == "c"):
        return False
    if eqn.params.get("out_dtype") is not None:  # computed in another type than that of the operands
        return False
    return all(_ordinary(atom.aval) for atom in (*eqn.invars, *eqn.outvars))


def _ordinary(aval: Any) -> bool:
    """Whether NumPy computes with such numbers as JAX does: half precision is rounded elsewhere, keys have no numbers."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not isinstance(dtype, np.dtype):
        return False
    return dtype.kind in "iub" or (dtype.kind in "fc" and dtype.itemsize >= 4)


def _multiplied(eqn: Any) -> int:
    """Multiplications of a product."""
    name = eqn.primitive.name
    if name not in products.RULES:
        return 0
    left, right = (atom.aval.shape for atom in eqn.invars)
    if name == "dot_general":
        (summed, _), _ = eqn.params["dimension_numbers"]
        inner = math.prod(left[k] for k in summed)
    else:
        inner = math.prod(right[k] for k in eqn.params["dimension_numbers"].rhs_spec[1:])
    return math.prod(eqn.outvars[0].aval.shape) * inner
