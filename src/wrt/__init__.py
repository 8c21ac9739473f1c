"""wrt ("with respect to"): the derivative of anything with respect to anything, in PyTorch, TensorFlow and JAX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wrt import errors
from wrt._notation.d import Differential, d
from wrt._notation.derivative import Derivative
from wrt._notation.trace import Handle, Trace, load_graph, record, tap, trace
from wrt._run.options import options

if TYPE_CHECKING:
    from wrt._beyond.map import map
    from wrt._beyond.model import Model
    from wrt._beyond.store import Stored
    from wrt._beyond.workers import local_cluster
    from wrt._core.finding import Finding, Findings
    from wrt._notation.joined import joined
    from wrt._notation.notebook import load_ipython_extension
    from wrt._notation.why import check, explain_cause, why
    from wrt._operators.check import Checked
    from wrt._operators.estimates import Estimate
    from wrt._operators.gram import Gram
    from wrt._operators.spectrum import Spectrum
    from wrt._operators.steps import Solved
    from wrt._run.function import Function
    from wrt._study.field import Field, receptive_field
    from wrt._study.flow import Flow, Watch, flow, watch
    from wrt._study.steering import Steered, steer

_LATER = {
    "_beyond.map": "map",
    "_beyond.model": "Model",
    "_beyond.store": "Stored",
    "_beyond.workers": "local_cluster",
    "_core.finding": "Finding Findings",
    "_notation.joined": "joined",
    "_notation.notebook": "load_ipython_extension",
    "_notation.why": "check explain_cause why",
    "_operators.check": "Checked",
    "_operators.estimates": "Estimate",
    "_operators.gram": "Gram",
    "_operators.spectrum": "Spectrum",
    "_operators.steps": "Solved",
    "_run.function": "Function",
    "_study.field": "Field receptive_field",
    "_study.flow": "Flow Watch flow watch",
    "_study.steering": "Steered steer",
}
"""What most programs never use is imported when it is first named: `import wrt` stays light."""
_MODULES = {name: module for module, names in _LATER.items() for name in names.split()}

__all__ = [
    "Checked", "Derivative", "Differential", "Estimate", "Field", "Finding", "Findings", "Flow", "Function", "Gram", "Handle",
    "Model", "Solved", "Spectrum", "Steered", "Stored", "Trace", "Watch", "check", "d", "errors", "explain_cause", "flow",
    "joined", "load_graph", "load_ipython_extension", "local_cluster", "map", "options", "receptive_field", "record", "steer",
    "tap", "trace", "watch", "why",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'wrt' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"wrt.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
