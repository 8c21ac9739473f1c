"""Beyond one process with JAX: models travel, blocks and samples agree with `jax.jacrev`."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import d
from wrt._beyond.source import source_of

pytest.importorskip("dask")


def build(state):
    return lambda x: jnp.tanh(x @ state["first"]) @ state["last"]


def state() -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 2)
    return {"first": jax.random.normal(keys[0], (6, 9)), "last": jax.random.normal(keys[1], (9, 5))}


def test_blocks_make_up_the_jacobian() -> None:
    x = jnp.linspace(-1, 1, 6)
    run = pickle.loads(pickle.dumps(wrt.Model(build, state(), x))).trace()
    J = d(run.output) / d(run.inputs[0])
    found = J.dask(chunks=(2, -1))
    expected = jax.jacrev(build(state()))(x)
    assert np.allclose(found.compute(scheduler="synchronous"), expected, rtol=1e-5, atol=1e-6)
    with ThreadPoolExecutor(2) as pool:
        assert np.array_equal(found.compute(scheduler="threads", pool=pool), found.compute(scheduler="synchronous"))


def test_float64_travels() -> None:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        model = wrt.Model(lambda: lambda x: jnp.sin(x) * jnp.arange(3.0), None, jnp.arange(3.0))
        assert model.trace().output.dtype == jnp.float64
        sent = pickle.dumps(model)
    finally:
        jax.config.update("jax_enable_x64", before)
    from wrt._beyond.model import forget

    forget()
    run = pickle.loads(sent).trace()
    found = (d(run.output) / d(run.inputs[0])).dask().compute(scheduler="synchronous")
    assert (found.dtype, jax.config.jax_enable_x64) == (np.float64, before)
    assert np.allclose(found, np.diag(np.cos(np.arange(3.0)) * np.arange(3.0)), rtol=1e-14)


@pytest.mark.parametrize("take", ["value", "norm"])
def test_every_sample_has_the_answer_that_it_has_alone(take: str) -> None:
    xs = jnp.linspace(-1, 1, 66).reshape(11, 6)
    found = wrt.map(lambda t: d(t.output)[0] / d(t.inputs[0])[0], xs, model=wrt.Model(build, state()), take=take, batch=4)
    expected = jax.vmap(jax.jacrev(build(state())))(xs)
    expected = expected if take == "value" else jnp.sqrt((expected**2).sum((1, 2)))
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_flow_table_for_every_sample() -> None:
    def losses(x):
        hidden = jnp.tanh(x @ state()["first"])
        return (hidden @ state()["last"]).sum(1)

    xs = jnp.linspace(-1, 1, 30).reshape(5, 6)
    found = wrt.map(lambda t: t.output, xs, model=losses, take="flow", batch=2)
    assert found.shape[0] == 5
    assert found.shape[2] == 3


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_a_device_is_chosen_by_its_kind_or_its_number(device: str) -> None:
    run = wrt.Model(build, state(), jnp.linspace(-1, 1, 6), device=device).trace()
    (place,) = run.output.value.devices()
    assert place.platform == "cpu"


def test_the_blocks_of_a_second_derivative_make_up_the_hessian() -> None:
    x = jnp.linspace(-1, 1, 6)
    run = pickle.loads(pickle.dumps(wrt.Model(energy, state(), x))).trace()
    H = d(run.output) / d(run.inputs[0]) / d(run.inputs[0])
    found = H.dask(chunks=(2, -1)).compute(scheduler="synchronous")
    assert np.allclose(found, jax.hessian(energy(state()))(x), rtol=1e-4, atol=1e-5)


def energy(state):
    return lambda x: (jnp.tanh(x @ state["first"]) ** 2).sum()


def test_a_block_has_the_same_bits_however_often_its_like_was_asked_for() -> None:
    chance = np.random.default_rng(0)
    given = {"first": jnp.asarray(chance.normal(size=(70, 90))), "last": jnp.asarray(chance.normal(size=(90, 80)))}
    run = wrt.Model(build, given, jnp.linspace(-1, 1, 70)).trace()
    source = source_of(d(run.output) / d(run.inputs[0]))
    first = source.block((slice(0, 40), slice(0, 70)))
    for _ in range(7):
        again = source.block((slice(0, 40), slice(0, 70)))
    assert np.array_equal(first, again)
