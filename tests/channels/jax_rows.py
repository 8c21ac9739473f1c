"""Ways that numbers take from x to y in JAX, one program each: `f(x)`, and the two ends of the question."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def later_callback(x: Any) -> Any:
    """`jax.debug.callback` runs after f has returned."""
    kept: list[Any] = []
    jax.debug.callback(lambda a: kept.append(np.asarray(a)), x)
    jax.effects_barrier()
    return jnp.ones(3) * (kept[0] if kept else 0.0)


def io_callback(x: Any) -> Any:
    kept: list[Any] = []
    jax.experimental.io_callback(lambda a: kept.append(np.asarray(a)), None, x, ordered=True)
    jax.effects_barrier()
    return jnp.ones(3) * (kept[0] if kept else 0.0)


def pure_callback(x: Any) -> Any:
    return jax.pure_callback(lambda a: np.sin(a), jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential") * 2


def two_io_callbacks(x: Any) -> Any:
    kept: list[Any] = []
    jax.experimental.io_callback(lambda a: kept.append(np.asarray(a)), None, x, ordered=True)
    made = jax.experimental.io_callback(lambda: kept[0], jax.ShapeDtypeStruct(x.shape, x.dtype), ordered=True)
    return made * 2


def trip_count(x: Any) -> Any:
    """Only how often the loop runs depends on x."""
    return jax.lax.while_loop(lambda t: t < x.sum(), lambda t: t + 1e-2, jnp.zeros((), x.dtype)) * jnp.ones(3)


def fori_count(x: Any) -> Any:
    n = (x.sum() * 100).astype(int)
    return jax.lax.fori_loop(0, n, lambda k, t: t + 1e-2, jnp.zeros((), x.dtype)) * jnp.ones(3)


def python_count(x: Any) -> Any:
    total = jnp.zeros((), x.dtype)
    while total < x.sum():
        total = total + 1e-2
    return total * jnp.ones(3)


def python_branch(x: Any) -> Any:
    k = 0
    while k * 1e-2 < x.sum():
        k += 1
    return k * 1e-2 * jnp.ones(3)


def lax_cond(x: Any) -> Any:
    return sum(jax.lax.cond(x.sum() > k * 0.1, lambda: 0.1, lambda: 0.0) for k in range(30)) * jnp.ones(3)


def scan_of_cond(x: Any) -> Any:
    """Only the branch depends on x, inside a scan."""
    step = lambda c, k: (c + jax.lax.cond(x.sum() > k * 1e-2, lambda: 1e-2, lambda: 0.0), None)
    return jax.lax.scan(step, jnp.zeros((), x.dtype), jnp.arange(230))[0] * jnp.ones(3)


def item_back(x: Any) -> Any:
    return jnp.ones(3) * float(x.sum())


def numpy_back(x: Any) -> Any:
    return jnp.asarray(np.sin(np.asarray(x))) * 2


def text(x: Any) -> Any:
    return jnp.ones(3) * float(f"{x.sum():.12f}")


def printed(x: Any) -> Any:
    return jnp.ones(3) * float(str(np.asarray(x.sum())))


def tolist_back(x: Any) -> Any:
    return jnp.array(x.tolist()) * 2


def device_get(x: Any) -> Any:
    return jnp.asarray(jax.device_get(x)) * 2


def int_index(x: Any) -> Any:
    return jnp.linspace(0, 1, 10001)[int(x[0] * 1e4)] * jnp.ones(3)


def argsort_position(x: Any) -> Any:
    return jnp.linspace(0, 1, 10001)[(x[0] * 1e4).astype(int)] * jnp.ones(3)


def thread(x: Any) -> Any:
    made: list[Any] = []
    one = threading.Thread(target=lambda: made.append(np.asarray(x) * 2))
    one.start()
    one.join()
    return jnp.asarray(made[0]) if made else jnp.zeros(3)


def closed_over_jit(x: Any) -> Any:
    return jax.jit(lambda a: jax.lax.stop_gradient(a) * 2)(x)


def numpy_written(x: Any) -> Any:
    target = np.zeros(3)
    target[:] = x
    return jnp.asarray(target) * 2


def nan_check(x: Any) -> Any:
    return jnp.where(jnp.isnan(x).any(), 1.0, 2.0) * jnp.ones(3)


def scan_elements(x: Any) -> Any:
    """What a scan stacks: elements by earlier ones."""

    def step(carry: Any, one: Any) -> Any:
        carry = jnp.sin(carry) + one
        return carry, carry

    return jax.lax.scan(step, jnp.zeros(()), x)[1]


def stacked_elements(x: Any) -> Any:
    """The same, written out."""
    path = [x[0]]
    for k in range(2):
        path.append(jnp.sin(path[-1]) + x[k + 1])
    return jnp.stack(path)


def constant(x: Any) -> Any:
    """Healthy: y does not depend on x, whose numbers are looked at afterwards."""
    z = x * 2
    y = jnp.where(jnp.ones(3) > 0, 3.0, jnp.zeros(3))
    float(z.sum())
    jax.debug.print("{}", z)
    return y


CHANNELS: dict[str, tuple[str, list[Any]]] = {
    "callbacks, which may run after f has returned": ("left", [later_callback, io_callback, two_io_callbacks, pure_callback]),
    "how often a loop runs": ("cut or left", [trip_count, fori_count, python_count, python_branch]),
    "which branch is taken": ("cut", [lax_cond, scan_of_cond, nan_check]),
    "NumPy, `float()`, `.item()`, `.tolist()`, text": (
        "left", [item_back, numpy_back, text, printed, tolist_back, numpy_written, thread],
    ),
    "an index, a rounded number": ("left or cut", [int_index, argsort_position]),
    "`stop_gradient`": ("cut", [closed_over_jit]),
    "a constant, a mask, a look at numbers": ("right", [constant]),
}
"""What the table in docs/meaning.md says, and the programs behind each line."""
