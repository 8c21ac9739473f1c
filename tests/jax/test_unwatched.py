"""While JAX reads a function of its own nobody is watched, and no name of the user's is missed for it."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt._backends.jax import compat
from wrt._backends.jax import names as file
from wrt._names.settrace import CLOSED

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring needs no such care")


@pytest.fixture
def switched_off(monkeypatch):
    """What JAX read while the watch was off."""
    read, tells = [], file._calls_its_own

    def told(frame):
        found = tells(frame)
        if found:
            read.append(frame.f_locals["fun"].__name__)
        return found

    before = sys.gettrace()
    sys.settrace(None)
    monkeypatch.setitem(CLOSED, compat.CALLS, told)
    jax.clear_caches()
    yield read
    sys.settrace(before)


def names(t):
    return {name for name in t.names if not name.endswith("()")}


def test_names_around_what_jax_reads_are_seen(switched_off):
    def f(x):
        turned = jnp.roll(x, 3)
        first, second = jnp.split(turned * x, 2)
        return jnp.where(first > 0, first, second).sum()

    t = wrt.trace(f, jnp.arange(10.0))
    assert {"_roll_static", "multiply", "_where", "greater"} <= set(switched_off)
    assert {"x", "turned", "first", "second"} <= names(t)
    assert t["turned"].line is not None
    np.testing.assert_array_equal(t["turned"].value, jnp.roll(jnp.arange(10.0), 3))
    assert sys.gettrace() is None


def test_functions_of_the_users_inside_are_watched(switched_off):
    @jax.jit
    def doubled(a):
        inside = a + a
        return inside * 1.0

    def f(x):
        def mirrored(part):
            turned = -part
            return turned * turned

        pieces = jnp.piecewise(x, [x < 0, x >= 0], [mirrored, lambda part: part])
        return doubled(pieces)

    t = wrt.trace(f, jnp.linspace(-1, 1, 7))
    assert "_piecewise" not in switched_off
    assert "doubled" not in switched_off
    assert {"pieces", "inside"} <= names(t)


def test_what_is_refused_while_it_is_read_leaves_the_watch_on(switched_off):
    def f(x):
        try:
            joined = jnp.add(x, jnp.ones(4))
        except TypeError:
            joined = x * 3.0
        after = joined + 1
        return after.sum()

    t = wrt.trace(f, jnp.arange(5.0))
    assert "add" in switched_off
    assert "after" in names(t)
    assert sys.gettrace() is None


def test_a_transformed_function_is_not_one_of_jax():
    def frame_of(fun, *args, **kwargs):
        return sys._getframe()

    tells = file._calls_its_own
    assert not tells(frame_of(jnp.ravel.__wrapped__))  # nobody records

    def f(x):
        assert tells(frame_of(jnp.ravel.__wrapped__, x, ("C", 1), axis=None))
        assert not tells(frame_of(jnp.ravel.__wrapped__, x, [print]))
        assert not tells(frame_of(jax.vmap(jnp.sin), x))
        assert not tells(frame_of(f, x))
        return x

    wrt.trace(f, jnp.ones(3))
