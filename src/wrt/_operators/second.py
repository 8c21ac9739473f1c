"""The second derivative of one number is a linear map too: the Jacobian of its gradient."""

from __future__ import annotations

from wrt._core.ask import Ask
from wrt._core.index import Elements
from wrt._core.value import Side, Value
from wrt._run.answer import meanings
from wrt.errors import WrongShape


def of_gradient(y: Value, rows: Elements, sides: tuple[Side, ...]) -> Ask:
    """d(y) / d(x) / d(z) of a single y: the question d(gradient) / d(z). One pull, kept differentiable."""
    record = y.record
    first, second = sides
    by = [value for side in meanings(second) for value in side.values]
    seed = record.backend.arrays.one_hot(y, rows.positions)
    for side in meanings(first):
        if not all(map(record.has_history, side.values)) or len(side.parts) != 1 or side.parts[0].into is not None:
            continue
        (gradient,) = record.engine(y, side.values).pull_traceable(seed, by)
        if gradient is None:
            continue
        picked = Elements.at(gradient.shape, side.parts[0].elements.positions.reshape(first.shape))
        if not gradient.record.has_history(gradient):
            break
        return Ask(gradient, picked, second)
    raise WrongShape(
        "this second derivative is no linear map that can be multiplied",
        "y is linear in x, or x is scattered over several writes",
        "take .value, which is exact zeros where y is linear",
    )
