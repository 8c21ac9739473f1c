"""What a `Derivative` asks of this layer: one function for each of its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wrt._core.ask import Ask
from wrt._core.protocol import Array
from wrt._core.report import Report
from wrt._core.thresholds import ROUNDOFF_ROUNDINGS
from wrt._operators import estimates, steps
from wrt._operators.blocks import block_diagonal as blocks_of
from wrt._operators.blocks import samples_of
from wrt._operators.gram import Gram
from wrt._operators.operator import Operator, all_of_it, operand
from wrt._operators.spectrum import Spectrum, spectrum
from wrt._operators.thresholds import SHORT_LINES
from wrt._run import compact
from wrt._run.linear_map import LinearMap
from wrt._run.memory import is_small
from wrt.errors import WrongShape


def operator(ask: Ask, report: Report, *, transposed: bool) -> Any:
    """As scipy's LinearOperator."""
    made = Operator(LinearMap(ask, report))
    return made.T if transposed else made


def gram(ask: Ask, known: Callable[[], Array | None], *, transposed: bool) -> Gram:
    """JᵀJ, or JJᵀ of the transposed map."""
    return Gram(ask, "y" if transposed else "x", known)


def block_diagonal(ask: Ask, report: Report, axes: tuple[int, int], *, transposed: bool) -> Array:
    """The blocks of samples that share an index of two axes."""
    samples = samples_of(ask, *(reversed(axes) if transposed else axes))
    found = blocks_of(ask, samples, report)
    if not transposed:
        return found
    arrays = ask.y.record.backend.arrays
    order = np.arange(samples.count * samples.p * samples.q).reshape(samples.count, samples.p, samples.q)
    rest_of_y = len(ask.rows.shape) - 1
    shape = (samples.count, *samples.shape[1 + rest_of_y :], *samples.shape[1 : 1 + rest_of_y])
    turned = arrays.take(arrays.reshape(found, (-1,)), order.transpose(0, 2, 1).reshape(-1), 0)
    return arrays.reshape(turned, shape)


def singular_values(ask: Ask, report: Report, k: int, tolerance: float | None, *, transposed: bool) -> Spectrum:
    """The k largest, with their vectors and bounds."""
    before = report.passes
    matrix = operand(ask, report, short=max(SHORT_LINES, 2 * k))
    found = spectrum(matrix, k, tolerance or max(1e-6, ROUNDOFF_ROUNDINGS * _epsilon(ask)), most=max(400, 40 * k))
    left, right = (found.right, found.left) if transposed else (found.left, found.right)
    return Spectrum(found.values, found.errors, left, right, found.tolerance, report.passes - before)


def estimate_trace(ask: Ask, report: Report, passes: int) -> estimates.Estimate:
    """Exact where that costs no more passes than an estimate may take."""
    exact = _cheap_diagonal(ask, report, passes, "trace")
    if exact is not None:
        return estimates.Estimate(exact.sum().item(), 0.0, report.passes, "exact")
    return _spent(estimates.trace(_pull(ask, report), ask.n, passes), report)


def estimate_diagonal(ask: Ask, report: Report, passes: int) -> estimates.Estimate:
    """In the shape of y."""
    exact = _cheap_diagonal(ask, report, passes, "diagonal")
    if exact is not None:
        return estimates.Estimate(exact, np.zeros_like(exact), report.passes, "exact")
    found = estimates.diagonal(_pull(ask, report), ask.n, passes)
    shaped = estimates.Estimate(found.value.reshape(ask.rows.shape), found.error.reshape(ask.rows.shape), 0, found.method)
    return _spent(shaped, report)


def _spent(found: estimates.Estimate, report: Report) -> estimates.Estimate:
    return estimates.Estimate(found.value, found.error, report.passes, found.method)


def _cheap_diagonal(ask: Ask, report: Report, passes: int, what: str) -> Any:
    if ask.m != ask.n:
        raise WrongShape(
            f"a Jacobian of {ask.m} x {ask.n} has no {what}",
            f"y has shape {ask.rows.shape}, x has shape {ask.x.shape}",
            "ask for elements of both sides that match, for example d(y)[:n] / d(x)[:n]",
        )
    if ask.m > passes:
        return None
    return ask.y.record.backend.arrays.numpy(compact.diagonal(ask, report))


def _pull(ask: Ask, report: Report) -> estimates.Pull:
    adjoint = Operator(LinearMap(ask, report)).T
    return lambda u: np.asarray(adjoint.matmat(u.T)).T


def solve(ask: Ask, report: Report, b: Any, wanted: dict[str, Any], *, transposed: bool) -> steps.Solved:
    """The step, as an array of the framework in the shape of what it steps on."""
    arrays = ask.y.record.backend.arrays
    of_b, of_step = (ask.x.values[0], ask.y) if transposed else (ask.y, ask.x.values[0])
    given, shape = ((ask.x.shape, ask.rows.shape) if transposed else (ask.rows.shape, ask.x.shape))
    right = arrays.numpy(arrays.native(b, of_b))
    if right.shape != given:
        raise WrongShape(
            f"J.solve(b): b has shape {right.shape}", f"J maps {shape} to {given}", f"give b the shape {given}"
        )
    found = _iterated(ask, report, right, wanted, transposed=transposed)
    value = arrays.reshape(arrays.from_numpy(found[0], of_step), shape)
    return steps.Solved(value, found[1], found[2], found[3], report.passes, found[4])


def _iterated(ask: Ask, report: Report, right: Any, wanted: dict[str, Any], *, transposed: bool) -> Any:
    """By lsmr; where that would take more passes than all of J, and J fits, from all of J at once."""
    matrix = operand(ask, report, short=SHORT_LINES)
    matrix_free = isinstance(matrix, Operator)
    tolerance = wanted["tolerance"] or max(1e-10 if matrix_free else 1e-13, 8 * _epsilon(ask))
    most = wanted["most"] or 10 * max(matrix.shape)
    give_up = matrix_free and not wanted["most"] and is_small(ask)
    if give_up:
        most = max(1, min(matrix.shape) // 2)
    found = steps.least_squares(
        matrix.T if transposed else matrix, right, steps.Wanted(wanted["damping"], tolerance, most)
    )
    if not give_up or not found[4].startswith("NOT"):
        return found
    report.notes.append(f"not converged after {most} iterations: all of J was swept instead")
    whole = all_of_it(ask, report)
    return steps.least_squares(whole.T if transposed else whole, right, steps.Wanted(wanted["damping"], tolerance, most))


def _epsilon(ask: Ask) -> float:
    arrays = ask.y.record.backend.arrays
    return max(arrays.precision(value) for value in (ask.y, *ask.x.values))
