"""Equinox, Flax linen and Flax NNX models: parts by path, parameters, state; truth from jax.grad and nnx.grad."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from wrt import d

KEY = jax.random.key(0)


class TestEquinox:
    @pytest.fixture
    def model(self):
        equinox = pytest.importorskip("equinox")
        return equinox.nn.MLP(3, 2, 8, 2, key=KEY)

    def test_one_output_with_respect_to_the_model(self, model):
        import equinox

        x = jnp.arange(3.0)
        t = wrt.trace(model, x)
        found = d(t.output)[0] / d(model)
        truth = equinox.filter_grad(lambda m: m(x)[0])(model)
        for layer, expected in zip(found.layers, truth.layers, strict=True):
            np.testing.assert_allclose(layer.weight.value, expected.weight, rtol=1e-6)
            np.testing.assert_allclose(layer.bias.value, expected.bias, rtol=1e-6)

    def test_parts_by_their_path(self, model):
        x = jnp.arange(3.0)
        t = wrt.trace(lambda m, x: m(x), model, x)
        np.testing.assert_allclose(t["layers[0]"].value, model.layers[0](x), rtol=1e-6)
        truth = jax.jacrev(lambda h: model.layers[2](jax.nn.relu(model.layers[1](jax.nn.relu(h)))))(model.layers[0](x))
        np.testing.assert_allclose((d(t.output) / d(t["layers[0]"])).value, truth, rtol=1e-5, atol=1e-7)
        weight = (d(t.output)[0] / d(t.inputs[0].layers[0].weight)).value
        np.testing.assert_array_equal(weight, (d(t.output)[0] / d(t["layers[0].weight"])).value)

    def test_the_class_is_left_as_it_was(self, model):
        before = vars(type(model))["__call__"]
        wrt.trace(model, jnp.arange(3.0))
        assert vars(type(model))["__call__"] is before


class TestLinen:
    def test_layers_and_parameters_by_name(self):
        nn = pytest.importorskip("flax.linen")

        class Net(nn.Module):
            @nn.compact
            def __call__(self, x):
                h = nn.Dense(8)(x)
                return nn.Dense(2)(nn.relu(h))

        net, x = Net(), jnp.arange(3.0)
        params = net.init(KEY, x)
        t = wrt.trace(net.apply, params, x)
        truth = jax.jacrev(lambda p: net.apply(p, x))(params)["params"]
        for name in ("Dense_0", "Dense_1"):
            by_name = (d(t.output) / d(t[f"{name}.kernel"])).value
            np.testing.assert_allclose(by_name, truth[name]["kernel"], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(t["Dense_0"].value, t["h"].value)
        tree = d(t.output)[1] / d(t.inputs[0])
        np.testing.assert_allclose(tree["params"]["Dense_0"]["bias"].value, truth["Dense_0"]["bias"][1], rtol=1e-5)


class TestNNX:
    def test_state_is_not_changed_and_the_mask_of_the_run_stays(self):
        nnx = pytest.importorskip("flax.nnx")

        class Net(nnx.Module):
            def __init__(self, rngs):
                self.first = nnx.Linear(3, 8, rngs=rngs)
                self.norm = nnx.BatchNorm(8, rngs=rngs)
                self.drop = nnx.Dropout(0.5, rngs=rngs)
                self.last = nnx.Linear(8, 2, rngs=rngs)

            def __call__(self, x):
                h = self.drop(nnx.relu(self.norm(self.first(x))))
                return self.last(h)

        net = Net(nnx.Rngs(0))
        x = jax.random.normal(KEY, (4, 3))
        before = [np.asarray(leaf) for leaf in jax.tree.leaves(net) if jax.dtypes.issubdtype(leaf.dtype, np.number)]
        t = wrt.trace(net, x)
        found = d(t.output)[0, 0] / d(net)
        after = [np.asarray(leaf) for leaf in jax.tree.leaves(net) if jax.dtypes.issubdtype(leaf.dtype, np.number)]
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)
        truth = nnx.grad(lambda m: m(x)[0, 0])(nnx.clone(net))
        np.testing.assert_allclose(found.last.kernel[...].value, truth["last"]["kernel"][...], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose((d(t.output)[0, 0] / d(t["first.kernel"])).value, truth["first"]["kernel"][...], atol=1e-5)
        mask = np.asarray(t["drop"].value) != 0
        assert np.all((np.asarray((d(t["drop"]) / d(t["norm"])).diagonal()) != 0) <= mask.reshape(4, 8))
