"""Imports in wrt only go down the layer diagram, and this test can tell when one does not."""

from pathlib import Path

import pytest

from tests._layers import MAY_IMPORT, SIBLINGS, sources, violations

PACKAGE = Path(__file__).parents[1] / "src" / "wrt"


def packages_of(modules: dict[str, str]) -> set[str]:
    return {module for module in modules if any(other.startswith(f"{module}.") for other in modules)}


def found_in(modules: dict[str, str]) -> list[str]:
    return violations(modules, packages_of(modules))


def test_the_package_follows_its_diagram() -> None:
    modules = sources(PACKAGE)
    packages = {".".join(path.parent.relative_to(PACKAGE.parent).parts) for path in PACKAGE.rglob("__init__.py")}
    found = violations(modules, packages)
    assert not found, "\n".join(found)


def test_the_diagram_itself_points_only_down() -> None:
    height = {part: level for level, part in enumerate(MAY_IMPORT)}
    assert all(height[part] < height[below] for part, allowed in MAY_IMPORT.items() for below in allowed)


def test_siblings_never_import_one_another() -> None:
    assert not any(set(MAY_IMPORT[part]) & set(SIBLINGS) for part in SIBLINGS)


OFFENDERS = {
    "upwards": ({"wrt._core.ask": "from wrt._plan import plan"}, "_core may not import _plan"),
    "upwards, relative": ({"wrt._core.ask": "from .._plan import plan"}, "_core may not import _plan"),
    "upwards, to the door": ({"wrt._run.answer": "import wrt"}, "_run may not import wrt"),
    "upwards, lazily": ({"wrt._core.ask": "def f():\n  import wrt._run.answer"}, "_core may not import _run"),
    "upwards, for a type": (
        {"wrt._core.ask": "if TYPE_CHECKING:\n  from wrt._notation import d"},
        "_core may not import _notation",
    ),
    "sideways": ({"wrt._plan.colored": "from wrt._backends.torch import engine"}, "_plan may not import _backends.torch"),
    "one backend to another": (
        {"wrt._backends.jax.engine": "from wrt._backends.torch.engine import TorchEngine"},
        "_backends.jax may not import _backends.torch",
    ),
    "the runner to a backend": ({"wrt._run.answer": "import wrt._backends.torch"}, "may not import _backends.torch"),
    "a face past the doors": ({"wrt._cli.ask": "from wrt._notation import d"}, "_cli may not import _notation"),
    "a face to a face": ({"wrt._testing.plugin": "import wrt._cli"}, "testing may not import _cli"),
    "the implementation of a face": ({"wrt._testing.plugin": "import wrt._run"}, "testing may not import _run"),
    "errors to anything": ({"wrt.errors": "import wrt._core"}, "errors may not import _core"),
    "a framework in the core": ({"wrt._core.ask": "import torch"}, "torch is imported under _backends.torch alone"),
    "a framework, lazily": ({"wrt._run.answer": "def f():\n  from torch import nn"}, "torch is imported under"),
    "a framework in another's backend": ({"wrt._backends.torch.record": "import jax"}, "jax is imported under"),
    "scipy in the core": ({"wrt._core.pattern": "import scipy.sparse"}, "only the standard library, numpy and psutil"),
    "numpy in errors": ({"wrt.errors": "import numpy"}, "only the standard library"),
    "a new part": ({"wrt._utils": ""}, "_utils has no place in the diagram"),
    "a cycle, lazily": (
        {"wrt._core.ask": "import wrt._core.plan", "wrt._core.plan": "def f():\n  import wrt._core.ask"},
        "import cycle: wrt._core.ask -> wrt._core.plan -> wrt._core.ask",
    ),
    "a cycle": (
        {"wrt._core.ask": "from wrt._core import plan", "wrt._core.plan": "from . import ask", "wrt._core": ""},
        "import cycle: wrt._core.ask -> wrt._core.plan -> wrt._core.ask",
    ),
}


@pytest.mark.parametrize("name", OFFENDERS)
def test_an_offending_import_is_found(name: str) -> None:
    modules, words = OFFENDERS[name]
    assert words in "\n".join(found_in(modules))


ALLOWED = {
    "a face at the doors": {"wrt._cli.ask": "import wrt\nfrom wrt import d, errors\nfrom wrt.extend import backend"},
    "a circle of types alone": {
        "wrt._core.ask": "from wrt._core.plan import Plan",
        "wrt._core.plan": "if TYPE_CHECKING:\n  from wrt._core.ask import Ask",
    },
    "within a part": {"wrt._core.ask": "from wrt._core.index import select", "wrt._core.index": "import numpy"},
    "a framework at home": {"wrt._backends.torch.engine": "import torch.autograd\nfrom wrt._core import ask"},
    "the one list of backends": {"wrt._backends": "def load():\n  from wrt._backends import torch"},
    "notation, where all meets": {"wrt._notation.d": "from wrt._backends import find\nimport wrt._run, wrt._plan"},
    "the demo makes tensors": {"wrt._cli.demo": "def demo():\n  import torch"},
}


@pytest.mark.parametrize("name", ALLOWED)
def test_an_allowed_import_passes(name: str) -> None:
    assert found_in(ALLOWED[name]) == []
