"""What questions cost in JAX next to jitted `jax.grad`, `jax.jacrev` and `jax.jacfwd`.

    python -m benchmarks.jax [--seconds 3]

Warm: everything is compiled, the run is recorded, and each question is asked anew. Compile time is told apart, of the first
question and of the rival's first call. The price of a small question is mostly fixed, so it is told in microseconds too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import wrt
from benchmarks.timing import Measured, compare, save
from wrt import d

LIMIT = 1.15
SIZES = (
    *((512, 512, 512, 512), (2048, 512, 64), (64, 512, 2048)),
    *((768, 768, 768, 768), (4096, 1024, 128), (128, 1024, 4096)),
)
Network = Callable[[Any], Any]


def mlp(*widths: int, batch: int | None = None) -> tuple[Network, Any]:
    """Linear layers with tanh between them."""
    generator = np.random.default_rng(0)
    weights = [jnp.asarray(generator.normal(size=s) / s[0] ** 0.5, "float32") for s in pairwise(widths)]

    def network(x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return x

    shape = (widths[0],) if batch is None else (batch, widths[0])
    return network, jnp.asarray(generator.normal(size=shape), "float32")


def images(layers: int = 4, side: int = 32, channels: int = 16) -> tuple[Network, Any]:
    """Convolutions that keep the size of the picture."""
    generator = np.random.default_rng(0)
    first = generator.normal(size=(3, 3, 3, channels)) * 0.2
    others = [generator.normal(size=(3, 3, channels, channels)) * 0.1 for _ in range(layers - 1)]
    kernels = [jnp.asarray(k, "float32") for k in (first, *others)]

    def network(x: Any) -> Any:
        for kernel in kernels:
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x)
        return x

    return network, jnp.asarray(generator.normal(size=(1, side, side, 3)), "float32")


def recurrent(steps: int = 200, width: int = 128) -> tuple[Network, Any]:
    """The same layer again and again, as a scan."""
    layer, x = mlp(width, width)
    return lambda x: jax.lax.scan(lambda h, _: (layer(h), None), x, None, length=steps)[0], x


def timed_once(ask: Callable[[], Any]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(ask())
    return time.perf_counter() - started


def question(name: str, ask: Callable[[Any], Any], f: Network, x: Any, rivals: dict[str, Network], **how: Any) -> Measured:
    """`ask(t)` against rivals that start from x, all compiled."""
    began = time.perf_counter()
    t = wrt.trace(f, x)
    recorded = time.perf_counter() - began
    first = timed_once(lambda: ask(t))
    jitted = {label: jax.jit(rival) for label, rival in rivals.items()}
    compiles = {label: timed_once(lambda rival=rival: rival(x)) for label, rival in jitted.items()}  # type: ignore[misc]
    truth = next(iter(jitted.values()))(x)
    allowed = 1e-4 if jax.default_backend() == "cpu" else 2e-3  # a GPU multiplies float32 with the digits of tf32
    np.testing.assert_allclose(ask(t), truth, rtol=0, atol=allowed * float(jnp.abs(truth).max()))
    others = {label: lambda rival=rival: jax.block_until_ready(rival(x)) for label, rival in jitted.items()}
    measured = compare(name, lambda: jax.block_until_ready(ask(t)), others, **how)
    print(measured)
    told = ", ".join(f"{label} {seconds:.2f} s" for label, seconds in compiles.items())
    print(f"{'':34s} first: recorded in {recorded:.2f} s, answered in {first:.2f} s; {told}\n", flush=True)
    return measured


def measure(seconds: float) -> list[Measured]:
    def whole(t: Any) -> Any:
        return (d(t.output) / d(t.inputs[0])).value

    def loss_of(f: Network) -> Network:
        return lambda x: (f(x) ** 2).sum()

    how = {"limit": LIMIT, "seconds": seconds}
    found = []
    f, x = mlp(1024, 1024, 1024, 1024, batch=256)
    loss = loss_of(f)
    found.append(question("gradient of a loss, MLP 1024, 256 rows", whole, loss, x, {"grad": jax.grad(loss)}, **how))
    f, x = images()
    loss = loss_of(f)
    found.append(question("gradient of a loss, four convolutions", whole, loss, x, {"grad": jax.grad(loss)}, **how))

    def element(t: Any) -> Any:
        return (d(t.output)[0, 16, 16, 3] / d(t.inputs[0])).value

    rival = {"grad": jax.grad(lambda x: f(x)[0, 16, 16, 3])}
    found.append(question("one feature, four convolutions", element, f, x, rival, **how))
    for widths in SIZES:
        f, x = mlp(*widths)
        rivals = {"jacrev": jax.jacrev(f), "jacfwd": jax.jacfwd(f)}
        found.append(question(f"Jacobian, MLP {'-'.join(map(str, widths))}", whole, f, x, rivals, **how))
    f, x = recurrent()
    found.append(question("Jacobian, scan of 200 steps", whole, f, x, {"jacrev": jax.jacrev(f), "jacfwd": jax.jacfwd(f)}, **how))
    return [*found, *fixed_prices(whole, loss_of, seconds)]


def fixed_prices(whole: Network, loss_of: Callable[[Network], Network], seconds: float) -> list[Measured]:
    """Questions so small that what is measured is the way to the program and back."""
    f, x = mlp(32, 32)
    third, loss = jax.grad(lambda x: f(x)[3]), loss_of(f)
    small = {
        "one element": (lambda t: (d(t.output)[3] / d(t.inputs[0])[2]).value, f, {"grad": lambda x: third(x)[2]}),
        "one row": (lambda t: (d(t.output)[3] / d(t.inputs[0])).value, f, {"grad": third}),
        "gradient": (whole, loss, {"grad": jax.grad(loss)}),
        "Jacobian": (whole, f, {"jacrev": jax.jacrev(f)}),
    }
    found = [question(f"small, {name}", ask, g, x, rivals, seconds=seconds) for name, (ask, g, rivals) in small.items()]
    told = (f"{name} {1e6 * (one.seconds['wrt'] - one.seconds[one.against]):.0f}" for name, one in zip(small, found, strict=True))
    print(f"fixed price of a question, in microseconds: {', '.join(told)}")
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args(arguments)
    measured = measure(asked.seconds)
    save("jax", measured, jax=jax.__version__, device=jax.default_backend())
    return 0 if all(one.met for one in measured) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
