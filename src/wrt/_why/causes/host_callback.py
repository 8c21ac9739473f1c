"""The value goes through a Python function that runs outside the framework."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "host_callback",
    family="leaving",
    means="the value goes through a Python function that runs outside the framework",
    remedy="use the framework's own operations, or give the callback a custom derivative",
    stops=ops("pure_callback io_callback PyFunc EagerPyFunc PyFuncStateless numpy_function python_callback"),
    raised=("Pure callbacks do not support JVP", "IO callbacks do not support JVP"),
    case="""\
import jax
import jax.numpy as jnp
import wrt


def f(x):
    h = jax.pure_callback(lambda v: v * 2, jax.ShapeDtypeStruct((2,), jnp.float32), x)
    return jnp.sum(h)


t = wrt.trace(f, jnp.array([1.0, 2.0]))
print(wrt.why(t.output, t.inputs[0])[0])
""",
)
