"""`h = h.at[i].set(...)` makes versions; truth from closed products and central differences of plain-Python twins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import d

T = 10


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def filled(x):
    h = jnp.zeros(T)
    h = h.at[0].set(x)
    for k in range(1, T):
        h = h.at[k].set(jnp.tanh(h[k - 1]))
    return h


def two_back(x):
    h = jnp.zeros(T)
    h = h.at[0].set(x).at[1].set(x / 2)
    for k in range(2, T):
        h = h.at[k].set(h[k - 1] * h[k - 2] + jnp.tanh(h[k - 1]))
    return h


def two_back_by_hand(x, bump_at, bump):
    h = np.zeros(T)
    for k in range(T):
        h[k] = x if k == 0 else x / 2 if k == 1 else h[k - 1] * h[k - 2] + np.tanh(h[k - 1])
        h[k] += bump if k == bump_at else 0.0
    return h


def test_every_element_of_a_recurrence_with_respect_to_every_other():
    t = wrt.trace(filled, jnp.array(0.9))
    h = np.asarray(t["h"].value)
    J = (d(t["h"]) / d(t["h"])).value
    for i in range(T):
        for j in range(T):
            truth = np.prod(1 - h[j + 1 : i + 1] ** 2) if i >= j else 0.0
            assert float(d(t["h"])[i] / d(t["h"])[j]) == pytest.approx(truth, rel=1e-12)
            assert J[i, j] == pytest.approx(truth, rel=1e-12)


def test_a_recurrence_that_reads_two_elements_back():
    t = wrt.trace(two_back, jnp.array(0.9))
    J, step = (d(t["h"]) / d(t["h"])).value, 1e-6
    for j in range(T):
        column = (two_back_by_hand(0.9, j, step) - two_back_by_hand(0.9, j, -step)) / (2 * step)
        np.testing.assert_allclose(J[:, j], column, rtol=1e-6, atol=1e-9)


def test_writes_tell_region_and_line_and_at_goes_back():
    t = wrt.trace(filled, jnp.array(0.9))
    writes = t["h"].writes
    assert [write.region for write in writes] == [f"[{k}]" for k in range(T)]
    assert writes[0].where.text == "h = h.at[0].set(x)"
    assert np.count_nonzero(t["h"].at(3).value) == 3
    with pytest.raises(wrt.errors.WrongIndex, match="updated 10 times"):
        t["h"].at(11)


def test_an_element_written_twice_means_the_last_write_and_both_can_be_had():
    def f(x):
        h = jnp.zeros(3)
        h = h.at[0].set(x)
        h = h.at[1].set(h[0] * 3)
        h = h.at[0].set(h[0] * 10)
        h = h.at[2].set(h[0] * 7 + h[1])
        return h

    t = wrt.trace(f, jnp.array(2.0))
    J = d(t["h"])[2] / d(t["h"])[0]
    assert float(J) == 7.0
    assert "written more than once" in str(J.explain())
    assert float(d(t["h"])[2] / d(t["h"].at(1))[0]) == 73.0


def test_another_array_is_no_version_of_the_one_it_was_made_from():
    def f(x):
        z = x.at[0].set(5.0)
        return z.sum() + x.sum()

    t = wrt.trace(f, jnp.ones(3))
    np.testing.assert_array_equal((d(t.output) / d(t["z"])).value, [1, 1, 1])
    np.testing.assert_array_equal((d(t.output) / d(t["x"])).value, [1, 2, 2])


@pytest.mark.parametrize(
    "update",
    [
        lambda h, v: h.at[1:3].set(v[:2]),
        lambda h, v: h.at[jnp.array([0, 2])].add(v[:2]),
        lambda h, v: h.at[np.array([True, False, True, True])].set(v[:3]),
        lambda h, v: h.at[1].multiply(v[0]),
        lambda h, v: jax.lax.dynamic_update_slice(h, v[:2], (1,)),
    ],
)
def test_kinds_of_updates(update):
    def f(x, v):
        h = x * 1.0
        h = update(h, v)
        return (h**2).sum() + h[0]

    x, v = jnp.array([0.3, 0.6, 0.9, 1.2]), jnp.array([2.0, 3.0, 4.0])
    t = wrt.trace(f, x, v)
    for k in (0, 1):
        truth = jax.grad(f, k)(x, v)
        np.testing.assert_allclose((d(t.output) / d(t.inputs[k])).value, truth, rtol=1e-13)
    assert len(t["h"].writes) == 1


def test_what_jax_cannot_differentiate_is_said():
    t = wrt.trace(lambda x: x.at[-1].apply(jnp.sin).sum(), jnp.ones(3))
    with pytest.raises(wrt.errors.EngineRefused, match="scatter_apply"):
        (d(t.output) / d(t.inputs[0])).value
