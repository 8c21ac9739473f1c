"""Numbers that a function writes down: one call sends them all, and each is what it was when it was met."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import wrt
from wrt import d


def polynomial(x):
    return 0.1 * x**2 + 3 * x - np.float32(0.25) + True


def test_all_numbers_are_sent_in_one_call(monkeypatch):
    sent = []
    send = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda things, *rest, **words: sent.append(things) or send(things, *rest, **words))
    t = wrt.trace(polynomial, jnp.arange(3.0))
    assert len(sent) == 1
    np.testing.assert_allclose(t.output.value, polynomial(np.arange(3.0)), rtol=1e-6)


def test_a_number_has_the_width_that_was_set_when_it_was_recorded():
    with jax.enable_x64(True):
        t = wrt.trace(polynomial, jnp.arange(3.0))
    t.output.value  # read with other settings
    with jax.enable_x64(True):
        np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, np.diag(0.2 * np.arange(3.0) + 3), rtol=1e-15)


def test_a_number_that_python_asks_for_is_there_in_the_middle_of_the_run():
    def branching(x):
        y = 2.5 * x
        if y.sum() > 7:
            y = y * 4.0
        return y * 0.5

    for start, slope in ((1.0, 5.0), (0.0, 1.25)):
        t = wrt.trace(branching, jnp.full(3, start))
        np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, slope * np.eye(3), rtol=1e-6)


def test_an_array_of_numpy_that_is_written_afterwards_is_what_it_was():
    factors = np.arange(3.0)

    def scaled(x):
        y = x * factors
        factors[:] = 7.0
        return y

    t = wrt.trace(scaled, jnp.ones(3))
    factors[:] = 9.0
    np.testing.assert_allclose(t.output.value, [0.0, 1.0, 2.0])
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, np.diag([0.0, 1.0, 2.0]))
