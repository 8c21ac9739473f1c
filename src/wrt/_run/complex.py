"""Complex questions: the derivative is the complex one, and where it does not exist the question is refused.

The convention, in every framework: for complex y and x the entry is dy/dx as of complex analysis, which exists where
multiplying the seed by i multiplies the answer by i. For complex y over real x it is d(Re y)/dx + i d(Im y)/dx. Real y
over complex x has two real derivatives and no complex one.
"""

from __future__ import annotations

from wrt._core.ask import Ask
from wrt._core.protocol import Linear, random_signs
from wrt._core.report import Report, Step
from wrt._run.certify import SEED, tolerance
from wrt.errors import NotHolomorphic


def refuse_if_not_holomorphic(ask: Ask, linear: Linear, report: Report) -> None:
    """Raise where a complex derivative does not exist at this point."""
    arrays = ask.y.record.backend.arrays
    if not arrays.is_complex(ask.x.values[0]) or ask.x.parts[0].component:
        return
    if not arrays.is_complex(ask.y):
        raise NotHolomorphic(
            "y is real and x is complex: a complex derivative does not exist",
            "y moves in two real directions of x, along its real and its imaginary part",
            "ask d(y) / d(x.real) and d(y) / d(x.imag)",
        )
    weights = arrays.from_numpy(random_signs(1, ask.m, SEED + 1), ask.y)
    seed = arrays.spread(ask.y, ask.rows.positions, weights)
    rung = linear.pull_rungs[-1]
    straight = linear.pull(seed, rung)
    turned = linear.pull(arrays.times_i(seed), rung)
    report.steps.append(Step("is it holomorphic?", "pull", rung, 2, 2))
    for a, b in zip(straight, turned, strict=True):
        if a is None or b is None:
            continue
        scale = max(arrays.largest(arrays.abs(a)), arrays.largest(arrays.abs(b)))
        if scale and arrays.largest(arrays.abs(arrays.times_i(a) - b)) > scale * tolerance(ask):
            raise NotHolomorphic(
                "y is not a holomorphic function of x here: a complex derivative does not exist",
                "turning the seed by i does not turn the answer by i (a conjugate, an absolute value, a real part)",
                "ask d(y.real) / d(x.real), d(y.real) / d(x.imag), and the same for y.imag",
            )
