"""Complex questions: the derivative is the complex one, and where it does not exist the question is refused.

The convention, in every framework: for complex y and x the entry is dy/dx as of complex analysis, which exists where
multiplying the seed by i multiplies the answer by i. For complex y over real x it is d(Re y)/dx + i d(Im y)/dx. Real y
over complex x has two real derivatives and no complex one.
"""

from __future__ import annotations

import numpy as np

from wrt._core.protocol import random_signs
from wrt._core.report import Step
from wrt._run.prove import own_roundings
from wrt._run.sweep import Sweeper
from wrt.errors import NotHolomorphic

SEED = 20_012


def refuse_if_not_holomorphic(sweeper: Sweeper) -> None:
    """Raise where a complex derivative does not exist at this point."""
    ask, arrays = sweeper.ask, sweeper.arrays
    if not ask.complex_x:
        return
    if not ask.complex_y:
        raise NotHolomorphic(
            "y is real and x is complex: a complex derivative does not exist",
            "y moves in two real directions of x, along its real and its imaginary part",
            "ask d(y) / d(x.real) and d(y) / d(x.imag)",
        )
    seed = sweeper.seeds(arrays.from_numpy(random_signs(1, ask.m, SEED), ask.y))
    seed_times_i = arrays.times_i(seed)  # before a hook can write into the seed
    straight, turned = sweeper.engine.plain(seed), sweeper.engine.plain(seed_times_i)
    sweeper.report.steps.append(Step("is it holomorphic?", "pull", "one by one", 2, 2))
    precision = max(arrays.precision(value) for value in (ask.y, *ask.x.values))
    for a, b in zip(straight, turned, strict=True):
        if a is None or b is None:
            continue
        expected, found = arrays.numpy(arrays.times_i(a)), arrays.numpy(b)
        size = max(np.linalg.norm(expected), np.linalg.norm(found))
        if np.linalg.norm(expected - found) > own_roundings(precision) * precision * size:
            raise NotHolomorphic(
                "y is not a holomorphic function of x here: a complex derivative does not exist",
                "turning the seed by i does not turn the answer by i (a conjugate, an absolute value, a real part)",
                "ask d(y.real) / d(x.real), d(y.real) / d(x.imag), and the same for y.imag",
            )
