"""Values inside jit, scan, while, cond, vmap, grad and custom derivatives; truth from plain-Python twins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import d


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def central(f, x, step=1e-6):
    return (f(x + step) - f(x - step)) / (2 * step)


@jax.jit
def twice_the_sine(a):
    b = jnp.sin(a)
    return b * 2


def test_names_inside_jit_one_for_each_call_also_when_it_was_compiled_before():
    x = jnp.array([0.3, 0.7])
    twice_the_sine(x)
    for _ in range(2):  # the second recording finds what JAX kept of the first
        t = wrt.trace(lambda x: twice_the_sine(twice_the_sine(x)), x)
        assert len(t.names.all("b")) == 2
        inner = 2 * np.sin(np.asarray(x))
        np.testing.assert_allclose((d(t.output) / d(t["b", 0])).value, np.diag(4 * np.cos(inner)), rtol=1e-14)
        np.testing.assert_allclose((d(t.output) / d(t["b", 1])).value, 2 * np.eye(2), rtol=1e-14)


def scanned(x, reverse=False):
    def body(h, z):
        g = jnp.tanh(h * z)
        h = g + 1
        return h, g

    last, gs = jax.lax.scan(body, x, jnp.arange(1.0, 7.0) / 7, reverse=reverse)
    return last, gs


def by_hand(x, bump_at=None, bump=0.0, reverse=False):
    h, gs = x, []
    steps = np.arange(1.0, 7.0) / 7
    for k, z in enumerate(steps[::-1] if reverse else steps):
        g = np.tanh(h * z) + (bump if k == bump_at else 0.0)
        h = g + 1
        gs.append(g)
    return h, np.array(gs[::-1] if reverse else gs)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("k", [0, 3, 5])
def test_iteration_k_of_a_scan(k, reverse):
    t = wrt.trace(scanned, jnp.array(0.3), reverse=reverse)
    truth = central(lambda bump: by_hand(0.3, k, bump, reverse)[0], 0.0)
    assert float(d(t.output[0]) / d(t["g", k])) == pytest.approx(truth, rel=1e-6)
    stacked = central(lambda bump: by_hand(0.3, k, bump, reverse)[1], 0.0)
    np.testing.assert_allclose((d(t.output[1]) / d(t["g", k])).value, stacked, rtol=1e-6, atol=1e-9)


def test_between_two_iterations_in_any_order_of_asking():
    t = wrt.trace(scanned, jnp.array(0.3))
    gs = by_hand(0.3)[1]
    z = np.arange(1.0, 7.0) / 7
    for i, j in [(4, 1), (5, 4), (3, 0), (2, 2), (1, 4)]:
        truth = np.prod([(1 - gs[k] ** 2) * z[k] for k in range(j + 1, i + 1)]) if i >= j else 0.0
        assert float(d(t["g", i]) / d(t["g", j])) == pytest.approx(truth, rel=1e-12)
    np.testing.assert_allclose([float(t["g", k].value) for k in range(6)], gs, rtol=1e-14)


def test_the_carried_variable_counts_its_iterations():
    t = wrt.trace(scanned, jnp.array(0.3))
    states = [0.3, *(by_hand(0.3)[1] + 1)]
    np.testing.assert_allclose([float(t["body.h", k].value) for k in range(7)], states, rtol=1e-14)
    assert t["g", 2].line.text == "g = jnp.tanh(h * z)"


def test_a_while_loop_is_differentiated_over_the_iterations_it_ran():
    t = wrt.trace(lambda x: jax.lax.while_loop(lambda h: h < 5.0, lambda h: h * x, x), jnp.array(1.3))
    J = d(t.output) / d(t.inputs[0])
    assert float(J) == pytest.approx(7 * 1.3**6, rel=1e-13)
    assert "iterations it ran" in str(J.explain())
    assert float(d(t["h", 5]) / d(t["h", 1])) == pytest.approx(1.3**4, rel=1e-13)


def test_a_while_inside_a_scan_is_answered_column_by_column():
    def f(x):
        def body(h, _):
            return jax.lax.while_loop(lambda g: g.sum() < 5.0, lambda g: g * 1.5 + x, h) / 4, None

        return jax.lax.scan(body, x, None, length=3)[0]

    x = jnp.array([0.3, 0.4])
    t = wrt.trace(f, x)
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(J.value, jax.jacfwd(f)(x), rtol=1e-13)
    np.testing.assert_allclose(J[0].value, jax.jacfwd(f)(x)[0], rtol=1e-13)
    assert [step["way"] for step in J.explain().to_dict()["steps"] if step["what"] == "columns"] == ["push"]


def test_the_branch_that_ran():
    def f(x):
        def yes(v):
            s = v * 3
            return s**2

        return jax.lax.cond(x.sum() > 0, yes, lambda v: v * 4, x)

    x = jnp.array([0.3, 0.7])
    t = wrt.trace(f, x)
    np.testing.assert_allclose((d(t.output) / d(t["s"])).value, np.diag(6 * np.asarray(x)), rtol=1e-14)
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, jax.jacrev(f)(x), rtol=1e-14)


def test_a_name_inside_vmap_is_the_whole_batch():
    def one(v):
        h = jnp.sin(v).sum()
        return h**2

    x = jnp.arange(6.0).reshape(3, 2)
    t = wrt.trace(jax.vmap(one), x)
    assert t["h"].shape == (3,)
    np.testing.assert_allclose((d(t.output) / d(t["h"])).value, np.diag(2 * np.sin(np.asarray(x)).sum(1)), rtol=1e-14)


def test_through_the_users_own_grad():
    f = jax.grad(lambda x: (x**3).sum())
    t = wrt.trace(f, jnp.array([1.0, 2.0]))
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, np.diag([6.0, 12.0]), rtol=1e-14)


def test_custom_jvp_is_used_and_can_be_differentiated_again():
    @jax.custom_jvp
    def odd(x):
        return jnp.sin(x)

    odd.defjvp(lambda primals, tangents: (odd(*primals), 1000.0 * primals[0] * tangents[0]))
    t = wrt.trace(lambda x: odd(x).sum(), jnp.array([1.0, 2.0]))
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, [1000.0, 2000.0])
    twice = d(t.output) / d(t.inputs[0]) / d(t.inputs[0])
    np.testing.assert_allclose(twice.value, 1000 * np.eye(2))


def test_custom_vjp_is_used_and_pushed_by_its_transpose():
    @jax.custom_vjp
    def odd(x):
        return jnp.sin(x)

    odd.defvjp(lambda x: (jnp.sin(x), x), lambda x, u: (7.0 * u * x,))
    t = wrt.trace(lambda x: odd(x) * 2, jnp.array([1.0, 2.0, 3.0]))
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(J.value, np.diag([14.0, 28.0, 42.0]))
    np.testing.assert_allclose(J @ np.array([1.0, 1.0, 0.0]), [14.0, 28.0, 0.0])
    assert {node.gradient for node in t.graph if node.op.startswith("custom")} == {"custom"}


def test_two_denominators_one_behind_the_other_are_both_total():
    def f(x):
        h = jnp.sin(x)
        return (h**2).sum()

    x = jnp.array([0.3, 0.7])
    t = wrt.trace(f, x)
    both = d(t.output) / d({"h": t["h"], "x": t.inputs[0]})
    np.testing.assert_allclose(both["h"].value, 2 * np.sin(np.asarray(x)), rtol=1e-14)
    np.testing.assert_allclose(both["x"].value, np.sin(2 * np.asarray(x)), rtol=1e-14)


def test_tap_names_what_has_no_name():
    t = wrt.trace(lambda x: jnp.exp(wrt.tap("inner", x * 2)), jnp.array(0.5))
    assert float(d(t.output) / d(t["inner"])) == pytest.approx(np.e)


def test_the_graph_is_plain_data_with_lines_and_cuts(tmp_path):
    def f(x):
        h = jnp.sin(x)
        g = jax.lax.stop_gradient(h)
        return g * h

    t = wrt.trace(f, jnp.arange(3.0))
    cut = next(node for node in t.graph if node.gradient == "cut")
    assert cut.op == "stop_gradient"
    assert cut.where.text == "g = jax.lax.stop_gradient(h)"
    assert all(node.where is not None for node in t.graph)
    t.save(tmp_path / "run.json")
    assert [node.op for node in wrt.load_graph(tmp_path / "run.json")] == [node.op for node in t.graph]
