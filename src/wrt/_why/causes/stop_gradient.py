"""Stop_gradient cuts the path."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "stop_gradient",
    family="cut",
    means="stop_gradient cuts the path",
    remedy="remove stop_gradient from the branch you differentiate",
    stops=ops("stop_gradient StopGradient PreventGradient"),
    case="""\
import jax
import jax.numpy as jnp
import wrt


def f(x):
    target = jax.lax.stop_gradient(x * 2)
    return jnp.sum(target**2)


t = wrt.trace(f, jnp.array([1.0, 2.0]))
print(wrt.why(t.output, t.inputs[0])[0])
""",
)
