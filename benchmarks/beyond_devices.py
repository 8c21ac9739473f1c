"""One accelerator for each worker: blocks computed there, next to the same blocks on the CPU.

    python -m benchmarks beyond_devices

Two workers share out what the machine has. Printed are the device and the device memory of each worker and how far its
blocks are from the answer of a CPU; nothing but a sentence where there is no accelerator.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import wrt
from wrt import d

SIZE, ROWS = 1024, 128


def main() -> int:
    if not torch.cuda.is_available():
        print("no accelerator here")
        return 0
    with tempfile.TemporaryDirectory(prefix="wrt-devices-") as folder, wrt.local_cluster(2) as client:
        for name, model in {"torch": of_torch, "jax": of_jax}.items():
            if find_spec(name) is not None:
                _shown(name, model, Path(folder), client)
    return 0


def _shown(name: str, model: Any, folder: Path, client: Any) -> None:
    here, there = (jacobian(model(device)) for device in ("cpu", "auto"))
    expected = np.concatenate([here[k : k + ROWS].numpy() for k in range(0, SIZE, ROWS)])
    stored = there.to_zarr(folder / name, chunks=(ROWS, -1), client=client)
    off = float(np.abs(np.asarray(stored) - expected).max() / np.abs(expected).max())
    again = there.dask(chunks=(ROWS, -1)).compute(scheduler="synchronous")
    print(f"{name}: {stored}")
    print(f"  off from the CPU by {off:.1e} of its size; bit-equal to this process on the same device: "
          f"{np.array_equal(stored, again)}")  # fmt: skip
    if name == "torch":
        taken = client.run(torch.cuda.max_memory_allocated)
        print(f"  device memory that the workers took: {[f'{one / 2**20:.0f} MiB' for one in taken.values()]}")


def jacobian(model: wrt.Model) -> Any:
    run = model.trace()
    return d(run.output) / d(run.inputs[0])


def weights() -> list[np.ndarray[Any, Any]]:
    chance = np.random.default_rng(0)
    return [(chance.normal(size=(SIZE, SIZE)) / SIZE**0.5).astype(np.float32) for _ in range(3)]


def of_torch(device: str) -> wrt.Model:
    return wrt.Model(network, [torch.from_numpy(one) for one in weights()], torch.linspace(-1, 1, SIZE), device=device)


def network(state: Any) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        for weight in state:
            x = torch.tanh(weight @ x)
        return x

    return f


def of_jax(device: str) -> wrt.Model:
    import jax.numpy as jnp

    return wrt.Model(jax_network, [jnp.asarray(one) for one in weights()], jnp.linspace(-1, 1, SIZE), device=device)


def jax_network(state: Any) -> Any:
    import jax.numpy as jnp

    def f(x: Any) -> Any:
        for weight in state:
            x = jnp.tanh(jnp.matmul(weight, x, precision="highest"))  # by default a GPU rounds products to 10 bits
        return x

    return f


if __name__ == "__main__":
    sys.exit(main())
