"""The states of the random number generators. Tests draw numbers too, so these are compared around calls alone."""

import random
import sys
from typing import Any

from tests._snapshot.aside import aside
from tests._snapshot.compare import Bits, Facts


def chance() -> Facts:
    """The state of every generator that the frameworks imported so far share with the user."""
    facts: Facts = {"random.getstate()": random.getstate()}
    for name, probe in PROBES.items():
        if (module := sys.modules.get(name)) is not None:
            facts |= probe(module)
    return facts


def _numpy(np: Any) -> Facts:
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    return {"numpy.random.get_state()": (kind, Bits(keys.tobytes()), position, has_gauss, gauss)}


def _torch(torch: Any) -> Facts:
    with aside(torch):
        states = {"torch.get_rng_state()": torch.get_rng_state()}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            cuda = enumerate(torch.cuda.get_rng_state_all())
            states |= {f"torch.cuda.get_rng_state({k})": state for k, state in cuda}
        return {name: Bits(state.cpu().numpy().tobytes()) for name, state in states.items()}


def _tensorflow(context: Any) -> Facts:
    # Without a global seed TensorFlow draws from C++ generators that nobody can look at or put back.
    facts: Facts = {"tensorflow global seed": context.global_seed()}
    operation_seeds = getattr(context.context(), "_rng", None)
    if operation_seeds is not None:
        facts["tensorflow operation seeds"] = operation_seeds.getstate()
    return facts


# JAX has no hidden generator: keys are arguments.
PROBES = {"numpy": _numpy, "torch": _torch, "tensorflow.python.eager.context": _tensorflow}
