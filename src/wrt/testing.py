"""Assertions about what depends on what, for pytest and anything else that knows `assert`.

    assert_depends(y, x)                              a gradient path, and something comes through
    assert_independent(d(y)[:, 3], d(x)[:, 4:])       nothing comes through
    assert_causal(model, x, axis=1)                   no output sees a later input; token ids are fine
    assert_batch_independent(model, x)                no sample sees another
    assert_receptive_field(model, x, at=..., size=...)
    assert_all_parameters_learn(loss, model)
    assert_backward_correct(f, x)

Each returns what it proved (`Proven`), or raises `Failed`, an AssertionError that names one offending pair, the value and
the lines; `Undecided` where the gradients cannot tell. In TensorFlow, JAX and PyTorch alike.
"""

from wrt._testing.assertions import (
    assert_all_parameters_learn,
    assert_backward_correct,
    assert_batch_independent,
    assert_causal,
    assert_depends,
    assert_independent,
    assert_receptive_field,
)
from wrt._testing.verdict import Failed, Proven, Undecided

__all__ = [
    "Failed", "Proven", "Undecided", "assert_all_parameters_learn", "assert_backward_correct", "assert_batch_independent",
    "assert_causal", "assert_depends", "assert_independent", "assert_receptive_field",
]
