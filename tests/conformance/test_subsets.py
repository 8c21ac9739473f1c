"""Any subset of the frameworks works, none included: each in a process in which the others cannot be imported."""

import subprocess
import sys
from importlib.util import find_spec
from itertools import combinations

import pytest

FRAMEWORKS = ("torch", "tensorflow", "jax")

PROGRAM = """
import sys

blocked, allowed = {blocked!r}, {allowed!r}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())

import numpy as np
import wrt
from wrt import d

assert not [name for name in ("torch", "tensorflow", "jax") if name in sys.modules], "wrt imported a framework"
try:
    d("text")
except wrt.errors.NotATensor:
    pass
else:
    raise AssertionError("d() of a string")

def check(array):
    t = wrt.trace(lambda x: x * x, array)
    assert np.allclose((d(t.output) / d(t.inputs[0])).numpy(), np.diag([2.0, 4.0]))

if "torch" in allowed:
    import torch
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    assert float(d(x * x)[1] / d(x)[1]) == 4.0
    check(x)
if "tensorflow" in allowed:
    import tensorflow as tf
    check(tf.constant([1.0, 2.0]))
if "jax" in allowed:
    import jax.numpy as jnp
    check(jnp.array([1.0, 2.0]))
print("worked")
"""

SUBSETS = [subset for size in range(4) for subset in combinations(FRAMEWORKS, size)]


@pytest.mark.parametrize("allowed", SUBSETS, ids=lambda subset: "+".join(subset) or "none")
def test_with_only(allowed):
    if missing := [name for name in allowed if find_spec(name) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    blocked = tuple(name for name in FRAMEWORKS if name not in allowed)
    program = PROGRAM.format(blocked=blocked, allowed=allowed)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "worked" in done.stdout
