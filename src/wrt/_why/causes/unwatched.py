"""The tape does not watch this tensor."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "unwatched",
    family="modes",
    means="the tape does not watch this tensor",
    remedy="call tape.watch({x}) inside the tape, or make it a tf.Variable",
    case="""\
import tensorflow as tf
import wrt

with wrt.record():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape():
        y = tf.reduce_sum(x**2)

print(wrt.why(y, x)[0])
""",
)
