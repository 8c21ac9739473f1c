"""The numeric oracle itself, against closed forms."""

import numpy as np
import pytest

from tests.finite.reference.backend import BACKEND
from tests.finite.reference.differences import along, jacobian
from wrt import d
from wrt._notation.trace import Trace
from wrt.errors import NotATensor, NotRecorded


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (np.sin, np.cos),
        (np.exp, np.exp),
        (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
        (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    ],
)
def test_a_slope_has_ten_digits(f, slope):
    x = np.array([0.3, 0.9, 1.7])
    np.testing.assert_allclose(np.diag(jacobian(f, x)), slope(x), rtol=1e-9)


def test_along_a_direction():
    x, v = np.array([0.3, 0.9]), np.array([2.0, -1.0])
    np.testing.assert_allclose(along(lambda x: x[0] * x[1], x, v), 2.0 * 0.9 - 0.3, rtol=1e-12)


def test_only_what_went_in_can_be_moved():
    t = Trace({"finite": BACKEND.trace(np.sin, (np.ones(2),), {})})
    with pytest.raises(NotRecorded, match="did not go in"):
        (d(t.inputs[0]) / d(t.output)).value


def test_a_bare_numpy_array_is_refused_in_words():
    with pytest.raises(NotATensor, match="NumPy keeps no history"):
        d(np.ones(3))
