"""JAX's errors in our words, and what it is known to refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from wrt._backends.jax.program import Op
from wrt.errors import EngineRefused, WrtError


def forward_only(ops: Iterable[Op]) -> bool:
    """Whether a loop on the way has no fixed length, so that JAX has no backward pass for it."""
    return any(holds_while(op.primitive.name, op.params) for op in ops)


def holds_while(name: str, params: dict[str, Any]) -> bool:
    """A `while` at any depth; one whose derivative is its own (a custom one) does not count."""
    if name == "while":
        return True
    if name.startswith("custom_"):
        return False
    return any(holds_while(eqn.primitive.name, eqn.params) for jaxpr in _jaxprs(params) for eqn in jaxpr.eqns)


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for given in params.values():
        for one in given if isinstance(given, (tuple, list)) else (given,):
            inner = getattr(one, "jaxpr", one)
            if hasattr(inner, "eqns"):
                yield inner


@contextmanager
def in_our_words() -> Iterator[None]:
    """Around a plain pass of JAX."""
    try:
        yield
    except Exception as error:
        raise said(error) from error


def said(error: Exception) -> Exception:
    """What an error of a plain pass means."""
    if isinstance(error, WrtError):
        return error
    return EngineRefused(
        "JAX could not run this pass",
        first_line(error),
        "the original error is chained below; ask around the operation it names, from its output or to its input",
    )


def first_line(error: Exception) -> str:
    words = str(error).strip().splitlines()
    return words[0][:200] if words else type(error).__name__
