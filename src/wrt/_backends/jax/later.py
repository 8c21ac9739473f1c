"""Programs that are compiled when they are asked for again: NumPy gives the first answers, sooner than a compiler could.

Compiling takes tens to hundreds of milliseconds, whatever the size of the arrays; most questions are asked once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from wrt._backends.jax.interpreted.evaluate import evaluate, pays
from wrt._backends.jax.seeds import on_cpu

STEADY: ContextVar[bool] = ContextVar("steady", default=False)
"""Whether everything is compiled, however rarely it is asked for: then the same question has the same bits at any time."""

FEW = 5  # questions that are not worth a compiler
ENOUGH = 0.1  # seconds spent without one, after which it would have been worth it


@dataclass(slots=True)
class Heat:
    """How often a program was asked for, and how long it has been interpreted."""

    asked: int = 0
    spent: float = 0.0

    def hot(self, coming: int = 0) -> bool:
        """Whether to compile, with so many questions more."""
        return self.asked + coming > FEW or self.spent > ENOUGH or STEADY.get() or not on_cpu()


class Later:
    """`jax.jit(function)`, with the first calls interpreted.

    Those that share a `heat` are compiled from the same question on; without one, each call counts as a question.
    Once `compiled` it stays so: the same numbers give the same answer from then on.
    """

    __slots__ = ("_alone", "_function", "_made", "_static", "compiled", "heat")

    def __init__(self, function: Callable[..., Any], heat: Heat | None = None, static: tuple[int, ...] = ()) -> None:
        self._function = function
        self._static = static
        self._made: Any = None
        self._alone = heat is None
        self.heat = heat or Heat()
        self.compiled = False

    def __call__(self, *given: Any) -> Any:
        found = None if self.compiled else self.interpreted(given)
        if found is None:
            self.compiled = True
            return self._jitted(*given)
        return found

    @property
    def _jitted(self) -> Any:
        """Made when it is first needed: the first answers may do without."""
        if self._made is None:
            self._made = jax.jit(self._function, static_argnums=self._static)
        return self._made

    def bound(self, *given: Any) -> Callable[[], Any]:
        """The compiled program and what it is given, as one call of JAX's own."""
        return partial(self._jitted, *given)

    def traced(self, given: Sequence[Any]) -> Any:
        """The program before it is compiled."""
        return self._jitted.trace(*given)

    def settles(self, given: Sequence[Any]) -> bool:
        """Whether the next call is compiled, or was before."""
        return self.compiled or self.heat.hot(coming=self._alone) or not self._may_be_interpreted(given)

    def interpreted(self, given: Sequence[Any]) -> Any | None:
        """What NumPy gives, asked once more; None once a compiler is worth it, or where there is no rule for everything."""
        self.heat.asked += self._alone
        return None if self.heat.hot() else self.evaluated(given)

    def evaluated(self, given: Sequence[Any]) -> Any | None:
        """What NumPy gives; None where it has no rule for everything, or would take longer than a compiler."""
        if not self._may_be_interpreted(given):
            return None
        traced, leaves = self.traced(given), self._leaves(given)
        program = traced.jaxpr
        began = time.perf_counter()
        with np.errstate(all="ignore"):  # what is not finite is looked at by whoever asked
            found = evaluate(program.jaxpr, program.consts, leaves)
        self.heat.spent += time.perf_counter() - began
        return jax.tree.unflatten(traced.out_tree, found)

    def _leaves(self, given: Sequence[Any]) -> list[Any]:
        return jax.tree.leaves([one for k, one in enumerate(given) if k not in self._static])

    def _may_be_interpreted(self, given: Sequence[Any]) -> bool:
        jaxpr = self.traced(given).jaxpr.jaxpr
        return len(self._leaves(given)) == len(jaxpr.invars) and pays(jaxpr)
