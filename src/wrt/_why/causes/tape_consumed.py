"""A non-persistent tape was used twice."""

from wrt._why.cause import Cause

CAUSE = Cause(
    "tape_consumed",
    family="modes",
    means="a non-persistent tape was used twice",
    remedy="write tf.GradientTape(persistent=True), or ask for all gradients in one call",
    raised=("non-persistent GradientTape can only be used",),
    case="""\
import tensorflow as tf
import wrt

try:
    with wrt.record():
        x = tf.Variable([1.0, 2.0])
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(x**2)
        tape.gradient(y, x)
        tape.gradient(y, x)
except RuntimeError as error:
    print(wrt.why(error)[0])
""",
)
