"""After a recording, a question and a `why`, every function of TensorFlow and Keras is the one that it was before."""

import os
import subprocess
import sys

SCRIPT = """
import inspect, sys
sys.path[:0] = %r
import keras
import tensorflow as tf
import tensorflow.python.ops.parallel_for.control_flow_ops
from tensorflow.python.ops import script_ops

def things():
    found = {}
    owners = [m for name, m in list(sys.modules.items()) if name.split(".")[0] in ("tensorflow", "keras") and inspect.ismodule(m)]
    owners += [tf.Tensor, tf.Variable, tf.GradientTape, type(tf.constant(1.0)), *type(tf.constant(1.0)).__mro__]
    owners += [keras.layers.Layer, keras.Model, keras.Variable, tf.Module]
    for owner in owners:
        for name, one in list(vars(owner).items()):
            if callable(one) and not inspect.ismodule(one):
                found[repr(owner), name] = one
    return found

model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, name="fc")])
x = tf.ones((2, 3))
with tf.GradientTape(persistent=True) as tape:  # what TensorFlow itself makes at first use
    tape.watch(x)
    y = tf.numpy_function(lambda a: a, [model(x)], tf.float32)
before = things()
settings = tf.config.functions_run_eagerly(), sys.gettrace(), sys.getprofile()

import wrt
from wrt import d

@tf.custom_gradient
def doubled(x):
    return 2 * x, lambda u: 2 * u

def program(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        h = doubled(model(x))
        tf.numpy_function(lambda a: a, [h], tf.float32)
        z = tf.reduce_sum(h)
    tape.gradient(z, x)
    return tf.tanh(tf.tile(h, [40, 3]))

t = wrt.trace(program, x)
J = d(t.output) / d(t.inputs[0])
J.value
(d(t.output)[0, 0] / d(t.inputs[0])[0, 0] / d(t.inputs[0])[0, 1]).value
wrt.why(t.output, t.inputs[0])
t.why()
with wrt.record():
    y = tf.sin(x)
    (d(y) / d(x)).value
    J.explain()
after = things()
changed = [key for key, one in before.items() if after.get(key) is not one]
assert not changed, changed
assert settings == (tf.config.functions_run_eagerly(), sys.gettrace(), sys.getprofile())
print("nothing changed in", len(before))
"""


def test_in_a_fresh_process() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT % sys.path], capture_output=True, text=True, env={**os.environ})
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "nothing changed in" in ran.stdout
