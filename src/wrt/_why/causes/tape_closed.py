"""Computed outside the tape."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "tape_closed",
    family="modes",
    means="computed outside the tape",
    remedy="move the line into the `with tf.GradientTape()` block",
    case="""\
import tensorflow as tf
import wrt

with wrt.record():
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape():
        h = x * 2
    y = tf.reduce_sum(h)

print(wrt.why(y, x)[0])
""",
)
