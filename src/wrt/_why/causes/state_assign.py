"""An assignment to a variable is not differentiable."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "state_assign",
    family="cut",
    means="an assignment to a variable is not differentiable",
    remedy="use the value itself instead of reading it back from the variable",
    stops=ops("AssignVariableOp AssignAddVariableOp AssignSubVariableOp ResourceScatterUpdate assign"),
    case="""\
import tensorflow as tf
import wrt

with wrt.record():
    x = tf.Variable([1.0, 2.0])
    state = tf.Variable([0.0, 0.0])
    with tf.GradientTape():
        state.assign(x * 2)
        y = tf.reduce_sum(state**2)

print(wrt.why(y, x)[0])
""",
)
