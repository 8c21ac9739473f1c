"""A derivative as a function of what the run was given: right at other points, and inside transformations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import wrt
from tests.jax._points import asked, points
from tests.jax._wrong_batch import doubled
from wrt import d
from wrt.errors import EngineRefused, WrongQuery, WrongShape


def burgers(u):
    inner = 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return jnp.concatenate([u[:1], inner, u[-1:]])


def samples(x):
    w = jnp.asarray(np.random.default_rng(3).normal(size=(8, 8)))
    return jnp.tanh(x @ w.astype(x.dtype))


def dense(x):
    w = jnp.asarray(np.random.default_rng(4).normal(size=(6, 9)))
    return jnp.sin(x @ w)


def tall(x):
    return jnp.outer(x, jnp.arange(40.0)).reshape(-1) ** 2


def scanned(h):
    return lax.scan(lambda h, a: (jnp.tanh(h * a + jnp.roll(h, 1)), None), h, jnp.arange(1.0, 5.0))[0]


PROBLEMS = {
    "stencil": (burgers, (120,), 4),
    "batch": (samples, (16, 8), 9),
    "dense": (dense, (6,), 6),
    "tall": (tall, (5,), 5),
    "scan": (scanned, (7,), 7),
}


@pytest.fixture(autouse=True)
def in_double_precision(planned_from_the_start):
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_is_jax_s_own_jacobian_at_every_point(name):
    f, shape, passes = PROBLEMS[name]
    here, *others = points(shape)
    jac = asked(f, here).function()
    assert jac.passes <= passes
    expected = jax.jit(jax.jacrev(f))
    for point in (here, *others):
        np.testing.assert_allclose(jac(point), expected(point), rtol=1e-9, atol=1e-12)
        assert jac.certificate


@pytest.mark.parametrize("name", PROBLEMS)
def test_inside_of_jit_vmap_and_grad(name):
    f, shape, _ = PROBLEMS[name]
    here, one, other = points(shape)
    jac = asked(f, here).function()
    expected = jax.jit(jax.jacrev(f))
    np.testing.assert_allclose(jax.jit(jac)(one), expected(one), rtol=1e-9, atol=1e-12)
    assert jac.certificate is None
    both = jax.jit(jax.vmap(jac))(jnp.stack([one, other]))
    np.testing.assert_allclose(both[1], expected(other), rtol=1e-9, atol=1e-12)
    curved = lambda jacobian: jax.jit(jax.grad(lambda x: (jacobian(x) ** 2).sum()))(one)
    np.testing.assert_allclose(curved(jac), curved(jax.jacrev(f)), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("name", ["stencil", "batch"])
def test_nonzeros_as_a_sparse_array_of_jax(name):
    f, shape, _ = PROBLEMS[name]
    here, one, _ = points(shape)
    jac = asked(f, here).function()
    size = int(np.prod(shape))
    want = jax.jacrev(f)(one).reshape(size, size)
    found = jac.sparse(one)
    assert found.nse < size * size / 4
    np.testing.assert_allclose(found.todense(), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda x: jac.sparse(x) @ jnp.ones(size))(one), want.sum(1), rtol=1e-9, atol=1e-12)


def test_elements_rows_and_columns():
    here, one, _ = points((6,))
    t = wrt.trace(dense, here)
    y, x = d(t.output), d(t.inputs[0])
    want = jax.jacrev(dense)(one)
    some = [(3, 2), (slice(None), [5, 0]), (slice(5, 2, -1), slice(None)), ([4, 4, 0], slice(None, None, 2)), (3, slice(None))]
    for rows, columns in some:
        jac = (y[rows] / x[columns]).function()
        np.testing.assert_allclose(jac(one), np.asarray(want)[rows][..., columns], rtol=1e-9, atol=1e-12)


def test_an_intermediate_follows_what_was_given():
    def f(x, scale):
        h = jnp.tanh(x) * scale["a"]
        return {"loss": (h**3).sum()}

    t = wrt.trace(f, jnp.arange(3.0), {"a": 2.0})
    slope = (d(t.output["loss"]) / d(t["h"])).function()
    x, scale = jnp.array([0.3, -0.2, 0.9]), {"a": 5.0}
    np.testing.assert_allclose(slope(x, scale), 3 * (np.tanh(x) * 5.0) ** 2, rtol=1e-12)


def test_keywords_and_what_is_no_array():
    def f(x, *, power, flip=False):
        return (x**power)[::-1] if flip else x**power

    t = wrt.trace(f, jnp.arange(1.0, 4.0), power=3, flip=True)
    jac = (d(t.output) / d(t.inputs[0])).function()
    x = jnp.array([2.0, 3.0, 5.0])
    np.testing.assert_allclose(jac(x, power=3, flip=True), np.diag(3 * x**2)[::-1])
    with pytest.raises(WrongShape) as refused:
        jac(x, power=2, flip=True)
    assert str(refused.value).splitlines() == [
        "these arguments are not like those that were recorded",
        "  there is 2 where the run had 3, which is part of its program",
        "  call it with all arguments of the recorded function, in the same shapes and types, or record anew",
    ]


def test_other_shapes_types_and_containers_are_refused():
    jac = asked(dense, jnp.zeros(6)).function()
    for args, words in [
        ((jnp.zeros(5),), "there is float64[5] where the run had float64[6]"),
        ((jnp.zeros(6, jnp.float32),), "there is float32[6] where the run had float64[6]"),
        (({"x": jnp.zeros(6)},), "there is 1 leaves in other containers than the 1 of the run"),
    ]:
        with pytest.raises(WrongShape, match="not like those") as refused:
            jac(*args)
        assert words in str(refused.value)


def test_a_path_that_python_chose_by_numbers_is_refused():
    def f(x):
        return jnp.sin(x) if x.sum() > 0 else jnp.cos(x)

    with pytest.raises(EngineRefused) as refused:
        asked(f, jnp.ones(3)).function()
    what, where, write = str(refused.value).splitlines()
    assert what == "this run is no function of what it was given"
    assert where.startswith("  Python looked at a number at ")
    assert where.endswith(": other numbers may go another way")
    assert write == "  record at the other point, t = wrt.trace(f, x), and ask there"


def test_a_number_that_does_not_depend_on_what_is_given_may_be_looked_at():
    def f(x):
        count = int(jnp.arange(3).sum())
        return x**count

    np.testing.assert_allclose(jnp.diag(asked(f, jnp.ones(2)).function()(jnp.array([2.0, 3.0]))), [12.0, 27.0])


def test_a_loop_and_a_branch_that_were_laid_open_are_refused():
    def loops(x):
        return lax.while_loop(lambda h: h.sum() < 10, lambda h: h * 2, x)

    def branches(x):
        def one(x):
            inside = jnp.sin(x)
            return inside

        return lax.cond(x.sum() > 0, one, lambda x: x, x)

    for f in (loops, branches):
        with pytest.raises(EngineRefused, match="laid open as it ran"):
            asked(f, jnp.ones(3)).function()


def test_indices_that_depend_on_x_are_not_taken_for_a_pattern():
    def f(x):
        return jnp.sort(x) * 2 + x[::-1]

    here, one, _ = points((40,))
    jac = asked(f, here).function()
    np.testing.assert_allclose(jac(one), jax.jacrev(f)(one), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jac)(one), jax.jacrev(f)(one), rtol=1e-12)


def test_entries_that_were_zero_at_the_recorded_point_are_not_lost():
    def f(x):  # at zero the first row sees nothing of the others
        return jnp.sin(x) + jnp.zeros(64).at[0].set((x**2).sum())

    jac = asked(f, jnp.zeros(64)).function()
    one = jnp.linspace(0.5, 1, 64)
    np.testing.assert_allclose(jax.jit(jac)(one), jax.jacrev(f)(one), rtol=1e-12)
    np.testing.assert_allclose(jac(one), jax.jacrev(f)(one), rtol=1e-12)


def test_an_array_that_is_given_and_closed_over_is_refused():
    x = jnp.ones(3)
    with pytest.raises(EngineRefused, match="closes over it as well"):
        asked(lambda given: given * x, x).function()


def test_one_array_given_twice_stays_one():
    x = jnp.array([1.0, 2.0])
    jac = asked(lambda a, b: a * b, x, x).function()
    tripled = 3 * x
    np.testing.assert_allclose(jnp.diag(jac(tripled, tripled)), [6.0, 12.0])
    with pytest.raises(WrongShape, match="two arrays where the run had one array twice"):
        jac(x, x + 0)


def test_a_wrong_batching_rule_is_found_outside_of_jit():
    jac = asked(lambda x: doubled(jnp.sin(x)), jnp.linspace(0, 1, 8)).function()
    np.testing.assert_allclose(jac(jnp.linspace(1, 2, 8)), np.diag(2 * np.cos(np.linspace(1, 2, 8))), rtol=1e-12)
    assert jac.certificate


def test_numbers_that_are_not_finite_are_the_engine_s():
    jac = asked(lambda x: jnp.sqrt(x), jnp.ones(40)).function()
    x = jnp.ones(40).at[3].set(0.0)
    np.testing.assert_array_equal(np.isinf(jac(x)), np.isinf(jax.jacrev(jnp.sqrt)(x)))
    assert "1 of 40 columns are not finite" in str(jac.certificate)


def test_without_a_certificate_nothing_is_proven():
    jac = asked(dense, jnp.ones(6)).function()
    with wrt.options(certify=False):
        jac(jnp.zeros(6))
    assert jac.certificate.kind == "none"


def test_one_program_serves_every_point():
    calls = []

    @jax.custom_jvp
    def noted(x):
        return jnp.sin(x)

    @noted.defjvp
    def _(primals, tangents):
        calls.append(1)
        return noted(*primals), jnp.cos(primals[0]) * tangents[0]

    jac = asked(lambda x: noted(x) * x, jnp.ones(5)).function()
    jac(jnp.zeros(5))
    before = len(calls)
    for k in range(4):
        jac(jnp.full(5, float(k)))
    assert len(calls) == before


def test_what_is_no_function():
    t = wrt.trace(dense, jnp.ones(6))
    J = d(t.output) / d(t.inputs[0])
    for question in (J.T, J / d(t.inputs[0]), J[[0, 1], [0, 1]]):
        with pytest.raises(WrongShape, match="only a first derivative as it is"):
            question.function()
    with pytest.raises(WrongShape, match="no entry of this derivative is known to be zero"):
        J.function().sparse(jnp.ones(6))
    unconnected = wrt.trace(lambda x, z: x * 2, jnp.ones(3), jnp.ones(3))
    with pytest.raises(WrongQuery, match="y does not depend on x"):
        (d(unconnected.output) / d(unconnected.inputs[1])).function()


def test_it_says_what_it_does():
    jac = asked(burgers, jnp.linspace(0, 1, 120)).function()
    assert str(jac).startswith("Function  shape (120, 120)   3 passes, because ")
