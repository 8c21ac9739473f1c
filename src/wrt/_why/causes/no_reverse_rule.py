"""An operation or control flow without a reverse rule."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "no_reverse_rule",
    family="refused",
    means="an operation or control flow without a reverse rule",
    remedy="use lax.scan or fori_loop with fixed bounds, or forward mode",
    stops=ops("while"),
    raised=(
        "Reverse-mode differentiation does not work",
        "Differentiation rule for",
        "Transpose rule",
        "derivative for .* is not implemented",
        "No gradient defined for operation",
    ),
    case="""\
import jax
import jax.numpy as jnp
import wrt


def f(x):
    return jax.lax.while_loop(lambda h: jnp.sum(h) < 100, lambda h: h * 2, x).sum()


t = wrt.trace(f, jnp.array([1.0, 2.0]))
print(wrt.why(t.output, t.inputs[0])[0])
""",
)
