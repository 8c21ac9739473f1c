"""wrt ("with respect to"): the derivative of anything with respect to anything, in PyTorch, TensorFlow and JAX."""

from wrt import errors
from wrt._core.finding import Finding, Findings
from wrt._notation.d import Differential, d
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle, Trace, load_graph, record, tap, trace
from wrt._notation.notebook import load_ipython_extension
from wrt._notation.why import check, explain_cause, why
from wrt._run.options import options
from wrt._study.field import Field, receptive_field
from wrt._study.flow import Flow, flow
from wrt._study.steering import Steered, steer
from wrt._study.watching import Watch, watch

__all__ = [
    "Derivative",
    "Differential",
    "Finding",
    "Findings",
    "Field",
    "Flow",
    "Handle",
    "Steered",
    "Trace",
    "Watch",
    "check",
    "d",
    "errors",
    "explain_cause",
    "flow",
    "load_graph",
    "load_ipython_extension",
    "options",
    "receptive_field",
    "record",
    "steer",
    "tap",
    "trace",
    "watch",
    "why",
]
__version__ = "0.1.0"
