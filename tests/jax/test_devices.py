"""Questions asked again where arrays lie on another device, or where another one is the default: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np, wrt
from wrt import d

here, there = jax.devices()
W = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")

def found_on(x, w):
    f = lambda x: jnp.tanh(w @ x)
    t, J = wrt.trace(f, x), jax.jacrev(f)(x)
    for _ in range(9):
        y, x = t.output, t.inputs[0]
        row = d(y)[1]
        for asked, truth in ((d(y) / d(x), J), (row / d(x), J[1]), (row / d(x)[2], J[1, 2]), (row / d(x)[1:3], J[1, 1:3])):
            np.testing.assert_allclose(asked.value, truth, rtol=1e-5, atol=1e-6)
    return asked.value.devices()

assert found_on(jnp.ones(4), jnp.asarray(W)) == {here}
assert found_on(jax.device_put(jnp.ones(4), there), jax.device_put(W, there)) == {there}
with jax.default_device(there):
    assert found_on(jnp.ones(4), jnp.asarray(W)) == {there}
assert found_on(jnp.ones(4), jax.device_put(W, there)) == {there}
assert found_on(jnp.ones(4), jnp.asarray(W)) == {here}
"""


def test_answers_lie_where_the_run_was():
    told = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
