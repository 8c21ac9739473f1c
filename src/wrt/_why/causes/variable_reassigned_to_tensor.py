"""The variable was replaced by a plain tensor."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "variable_reassigned_to_tensor",
    family="modes",
    means="the variable was replaced by a plain tensor",
    remedy="write {x}.assign(...), which keeps it a variable",
    case="""\
import tensorflow as tf
import wrt

with wrt.record():
    x = tf.Variable([1.0, 2.0])
    x = x - 0.1
    with tf.GradientTape():
        y = tf.reduce_sum(x**2)

print(wrt.why(y, x)[0])
""",
)
