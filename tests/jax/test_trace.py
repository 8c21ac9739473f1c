"""Recording a JAX function and asking about anything in it; truth from jax.jacrev, closed products and differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import _backends, d
from wrt.errors import DifferentRuns, EngineRefused, GradientCut, NoPath, NotDifferentiable, NotRecorded


def model(x, w):
    h = jnp.tanh(w @ x)
    y = jnp.sin(h) ** 2
    return {"y": y, "loss": y.sum()}


@pytest.fixture
def point():
    generator = np.random.default_rng(0)
    return jnp.asarray(generator.normal(size=3)), jnp.asarray(generator.normal(size=(4, 3)))


def test_whole_jacobian_equals_jacrev(point):
    t = wrt.trace(model, *point)
    np.testing.assert_allclose((d(t.output["y"]) / d(t.inputs[0])).value, jax.jacrev(model)(*point)["y"], rtol=1e-6)


def test_an_intermediate_by_its_variable_name(point):
    t = wrt.trace(model, *point)
    h = np.asarray(t["h"].value)
    np.testing.assert_allclose((d(t.output["y"]) / d(t["h"])).value, np.diag(np.sin(2 * h)), rtol=1e-5, atol=1e-7)


def test_pytrees_go_in_and_out():
    t = wrt.trace(lambda p: {"a": p["w"][0] * p["b"], "k": 3}, {"w": [jnp.ones(2) * 2], "b": jnp.ones(2) * 5})
    assert t.output["k"] == 3
    np.testing.assert_array_equal((d(t.output["a"]) / d(t.inputs[0]["w"][0])).value, 5 * np.eye(2))


def test_an_array_given_to_the_trace_is_known_again(point):
    x, w = point
    t = wrt.trace(model, x, w)
    np.testing.assert_array_equal((d(t.output["loss"]) / d(x)).value, (d(t.output["loss"]) / d(t.inputs[0])).value)


def test_bare_arrays_are_refused_with_what_to_write(point):
    x, w = point
    with pytest.raises(NotRecorded, match=r"t = wrt\.trace\(f, x\)"):
        d(x) / d(w)
    t = wrt.trace(model, x, w)
    with pytest.raises(NotRecorded, match="not part of this run"):
        d(t.output["loss"]) / d(jnp.ones(3))


def test_two_runs_do_not_meet(point):
    a, b = wrt.trace(model, *point), wrt.trace(model, *point)
    with pytest.raises(DifferentRuns):
        d(a.output["y"]) / d(b.inputs[0])


def test_python_branches_and_loops_on_values_work():
    def f(x):
        if x.sum() > 0:
            y = jnp.sin(x) * 2
        else:
            y = x * 3
        while y.max() > 0.5:
            y = y * 0.7
        return y

    x = jnp.array([0.3, 0.8, 1.1])
    t = wrt.trace(f, x)
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(J.value, jax.jacrev(f)(x), rtol=1e-6)
    assert "Python branched" in str(J.explain())


def test_boolean_masks_work_as_they_do_in_eager_jax():
    x = jnp.array([0.3, -0.8, 1.1])
    t = wrt.trace(lambda x: (x[x > 0] ** 2).sum(), x)
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, [0.6, 0, 2.2], rtol=1e-6)


def test_a_number_that_left_jax_is_no_proof_of_independence():
    t = wrt.trace(lambda x: jnp.ones(2) * float(x), jnp.array(2.0))
    with pytest.raises(NoPath, match="left JAX"):
        (d(t.output) / d(t.inputs[0])).value


def test_no_dependence_is_exact_zeros():
    t = wrt.trace(lambda x, z: x * 2, jnp.ones(2), jnp.ones(3))
    J = d(t.output) / d(t.inputs[1])
    assert not J.connected
    np.testing.assert_array_equal(J.value, np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: jax.lax.stop_gradient(x * 2).sum(), "stop_gradient"),
        (lambda x: (x > 0).astype(float).sum(), "bool"),
        (lambda x: x.astype(int).astype(float).sum(), "int"),
        (lambda x: jnp.argmax(x) * 1.0, "argmax"),
    ],
)
def test_a_cut_is_an_error_that_names_the_line(f, words):
    t = wrt.trace(f, jnp.arange(3.0))
    with pytest.raises(GradientCut, match=r"test_trace\.py") as refused:
        (d(t.output) / d(t.inputs[0])).value
    assert words in str(refused.value)


def test_integers_and_random_keys_are_refused_in_words():
    t = wrt.trace(lambda n, key, x: x * n + jax.random.normal(key, (3,)), jnp.arange(3), jax.random.key(0), jnp.ones(3))
    for k in (0, 1):
        with pytest.raises(NotDifferentiable, match="whole numbers"):
            d(t.output) / d(t.inputs[k])
    np.testing.assert_array_equal((d(t.output) / d(t.inputs[2])).value, np.diag([0, 1, 2]))


def test_tracing_inside_a_transformation_is_refused():
    with pytest.raises(EngineRefused, match="outside"):
        jax.jit(lambda x: wrt.trace(jnp.sin, x))(jnp.ones(3))


def test_second_order_and_mixed(point):
    x, w = point
    t = wrt.trace(model, x, w)
    loss = t.output["loss"]

    def plain(x, w):
        return model(x, w)["loss"]

    twice = jax.hessian(plain)(x, w)
    np.testing.assert_allclose((d(loss) / d(t.inputs[0]) / d(t.inputs[0])).value, twice, rtol=1e-4, atol=1e-6)
    mixed = jax.jacrev(jax.grad(plain, 0), 1)(x, w)
    np.testing.assert_allclose((d(loss) / d(t.inputs[0]) / d(t.inputs[1])).value, mixed, rtol=1e-4, atol=1e-6)


def test_a_gradient_refers_to_the_values_of_the_run():
    def f(x):
        h = x**2
        return h**2

    t = wrt.trace(f, jnp.array(3.0))  # dy/dx = 2 h * 2 x, so that d/dh of it is 4 x
    assert float(d(t.output) / d(t.inputs[0]) / d(t["h"])) == pytest.approx(12.0)
    assert float(d(t.output) / d(t.inputs[0]) / d(t.inputs[0])) == pytest.approx(108.0)


def test_the_second_identical_question_compiles_nothing(point, caplog):
    x, w = point
    elsewhere = x + 1
    t = wrt.trace(model, x, w)
    (d(t.output["y"]) / d(t["h"])).value
    (d(t.output["y"])[1] / d(t["h"])).value
    with jax.log_compiles():
        caplog.clear()
        t = wrt.trace(model, elsewhere, w)
        (d(t.output["y"]) / d(t["h"])).value
        (d(t.output["y"]) / d(t["h"])).value
        (d(t.output["y"])[2] / d(t["h"])).value
        said = [record.getMessage() for record in caplog.records]
    assert not [words for words in said if words.startswith("Compiling")]


def test_products_and_columns(point):
    x, w = point
    t = wrt.trace(model, x, w)
    J, truth = d(t.output["y"]) / d(t.inputs[1]), np.asarray(jax.jacrev(model, 1)(x, w)["y"])
    np.testing.assert_allclose(J @ np.ones((4, 3)), truth.sum((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(np.ones(4) @ J, truth.sum(0), rtol=1e-5)
    np.testing.assert_allclose(J[:, 1, 2].value, truth[:, 1, 2], rtol=1e-5, atol=1e-7)


def test_effects_happen_once(capfd):
    def f(x):
        jax.debug.print("seen {}", x)
        return x * 2

    t = wrt.trace(f, jnp.array(2.0))
    (d(t.output) / d(t.inputs[0])).value
    jax.effects_barrier()
    assert capfd.readouterr().out.count("seen 2.0") == 1


def test_sixty_four_bits_are_remembered():
    with jax.enable_x64(True):
        t = wrt.trace(lambda x: jnp.sin(x), jnp.array([0.3, 0.4]))
        J = d(t.output) / d(t.inputs[0])
        assert J.value.dtype == np.float64
        np.testing.assert_allclose(J.value, np.diag(np.cos([0.3, 0.4])), rtol=1e-15)
    with pytest.raises(EngineRefused, match="enable_x64"):
        (d(t.output)[0] / d(t.inputs[0])).value


def test_nothing_of_the_users_changes(point, unchanged):
    x, w = point
    with unchanged(x, w):
        t = wrt.trace(model, x, w)
        (d(t.output["y"]) / d(t["h"])).value
        (d(t.output["loss"]) / d(t.inputs[0]) / d(t.inputs[1])).value
    with unchanged(x), pytest.raises(ZeroDivisionError):
        wrt.trace(lambda x: 1 // 0, x)


def test_a_cut_inside_a_loop_is_no_silent_zero():
    def f(x, z):
        def body(carry, _):
            h, g = carry
            s = jax.lax.stop_gradient(x)
            return (h * s, g * z), None

        return jax.lax.scan(body, (jnp.ones(2), jnp.ones(2)), None, length=3)[0]

    t = wrt.trace(f, jnp.ones(2), jnp.ones(2) * 3)
    with pytest.raises(GradientCut, match=r"s = jax\.lax\.stop_gradient\(x\)"):
        (d(t.output[0]) / d(t.inputs[0])).value
    np.testing.assert_array_equal((d(t.output[1]) / d(t.inputs[1])).value, 27 * np.eye(2))
    assert not (d(t.output[0]) / d(t.inputs[1])).connected
    np.testing.assert_array_equal((d(t.output[0]) / d(t.inputs[1])).value, np.zeros((2, 2)))


def test_what_only_chose_the_branch_has_the_slope_zero():
    t = wrt.trace(lambda x, z: jax.lax.cond(x.sum() > 0, lambda v: v * 2, lambda v: v * 3, z), jnp.ones(2), jnp.ones(2))
    np.testing.assert_array_equal((d(t.output) / d(t.inputs[1])).value, 2 * np.eye(2))
    np.testing.assert_array_equal((d(t.output) / d(t.inputs[0])).value, np.zeros((2, 2)))


def test_a_banded_jacobian_is_planned_as_in_every_framework():
    def burgers(u):
        return 0.01 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)) - u * (jnp.roll(u, -1) - jnp.roll(u, 1))

    u = jnp.sin(jnp.linspace(0, 6, 1000))  # of 300, all rows at once take less than looking for a pattern
    t = wrt.trace(burgers, u)
    J = d(t.output) / d(t.inputs[0])
    np.testing.assert_allclose(J.value, jax.jacrev(burgers)(u), atol=1e-6)
    assert J.explain().passes < 60
    assert J.sparse().nnz == 3000


def test_several_devices_are_refused_in_words():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
    spec = jax.sharding.PartitionSpec("i")
    f = jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=spec, out_specs=spec)
    with pytest.raises(EngineRefused, match="shard_map"):
        wrt.trace(f, jnp.ones(len(jax.devices())))


def test_third_order():
    def f(x):
        return jnp.stack([x.prod(), (x**3).sum()])

    x = jnp.arange(1.0, 4.0)
    t = wrt.trace(f, x)
    thrice = d(t.output) / d(t.inputs[0]) / d(t.inputs[0]) / d(t.inputs[0])
    np.testing.assert_allclose(thrice.value, jax.jacfwd(jax.hessian(f))(x), rtol=1e-5, atol=1e-5)


def test_equal_numbers_are_different_arguments():
    t = wrt.trace(lambda a, b: a * b * 0.3, 0.3, 0.3)
    assert float(d(t.output) / d(t.inputs[0])) == pytest.approx(0.09)


class Elsewhere:
    """A second framework that is loaded, and owns nothing."""

    name = "torch"
    takes_numbers = False
    owns = staticmethod(lambda obj: False)
    tree = staticmethod(lambda obj: None)


@pytest.mark.parametrize(
    ("f", "given", "slope"),
    [
        (jnp.tanh, 2.0, 1 - np.tanh(2) ** 2),
        (jax.jit(lambda x: x * x), 2.0, 4.0),
        (partial(lambda k, x: jnp.sin(k * x), 3.0), 2.0, 3 * np.cos(6)),
        (lambda x: x * x * 0.5, 2.0, 2.0),
    ],
    ids=["a function of jax.numpy", "a jitted one", "a partial one", "plain arithmetic"],
)
def test_numbers_go_to_jax_also_where_another_framework_is_loaded(f, given, slope, monkeypatch):
    here = _backends.loaded()
    monkeypatch.setattr(_backends, "loaded", lambda: [Elsewhere(), *here])
    t = wrt.trace(f, given)
    assert float(d(t.output) / d(t.inputs[0])) == pytest.approx(slope, rel=1e-5)


def test_an_integer_is_refused_by_name_also_where_another_framework_is_loaded(monkeypatch):
    here = _backends.loaded()
    monkeypatch.setattr(_backends, "loaded", lambda: [Elsewhere(), *here])
    assert wrt.trace(jnp.tanh, 2).inputs == [2]


def test_an_array_of_numpy_is_taken_as_it_is_at_that_moment():
    buffer, x = np.ones(2, np.float32), np.array([1.0, 2.0], np.float32)

    def f(x):
        first = jnp.multiply(x, buffer)  # it names jnp: no argument tells whose function it is
        buffer[:] = 5
        return first + x * buffer

    t = wrt.trace(f, x)
    buffer[:] = 100
    x[:] = 7
    np.testing.assert_array_equal((d(t.output) / d(t.inputs[0])).value, 6 * np.eye(2))
    np.testing.assert_array_equal(t.inputs[0].value, [1, 2])
    np.testing.assert_array_equal((d(t.output) / d(t.inputs[0])).value, 6 * np.eye(2))


def test_what_the_user_compiled_before_stays_compiled(caplog):
    import subprocess
    import sys

    program = """
import jax, jax.numpy as jnp, logging, wrt
f, x = jax.jit(lambda x: jnp.sin(x) * 2), jnp.ones(3)
f(x)
seen = []
logging.getLogger("jax").addFilter(lambda record: seen.append(record.getMessage()))
for name in ("jax._src.interpreters.pxla", "jax._src.dispatch"):
    logging.getLogger(name).addFilter(lambda record: seen.append(record.getMessage()))
t = wrt.trace(lambda x: f(x).sum(), x)
with jax.log_compiles():
    f(x)
print([words for words in seen if "Compiling" in words])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_array_has_its_own_methods_while_it_is_recorded():
    from wrt._backends.jax.recorder import Recorded

    x = jnp.asarray([[1.0, 2.0], [4.0, 8.0]])
    t = wrt.trace(lambda x: x.var(0) + x.std() + x.mean(1), x)
    expected = jax.jacrev(lambda x: jnp.var(x, 0) + jnp.std(x) + jnp.mean(x, 1))(x)
    np.testing.assert_allclose((d(t.output) / d(t.inputs[0])).value, expected, rtol=1e-6)
    assert not {name for name in Recorded.__slots__ if hasattr(x, name)}
