"""Looking inside a loop for a reason changes nothing that is answered later."""

import jax.numpy as jnp
import numpy as np
from jax import lax

import wrt
from wrt import d


def test_a_question_after_why_is_answered_as_before() -> None:
    def f(h0):
        def step(h, _):
            return jnp.tanh(lax.stop_gradient(h) * 2) + 0 * h, h

        return lax.scan(step, h0, None, length=4)[0]

    t, again = wrt.trace(f, jnp.ones(2)), wrt.trace(f, jnp.ones(2))
    before = [node.op for node in t.graph.nodes]
    assert wrt.why(t.output, t.inputs[0])
    assert [node.op for node in t.graph.nodes] == before
    for name in ("h", "h#2"):
        ours, fresh = d(t.output) / d(t[name]), d(again.output) / d(again[name])
        assert np.array_equal(np.asarray(ours.value), np.asarray(fresh.value))
    assert not np.asarray((d(t.output) / d(t.inputs[0])).value).any()
