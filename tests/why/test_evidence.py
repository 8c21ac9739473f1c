"""What `why` asks of a backend is declared: nothing is sniffed, and every backend has all of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from wrt._core.evidence import Evidence

SOURCES = Path(__file__).parents[2] / "src" / "wrt"
SNIFFS = ("getattr", "hasattr")
ASKED = {name for name, member in vars(Evidence).items() if callable(member) and not name.startswith("_")}


def sniffed(source: str) -> list[int]:
    """The lines in which an object is asked whether it has something."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name) and node.id in SNIFFS]


def methods(source: str) -> set[str]:
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name.endswith("Evidence")]
    return {node.name for one in classes for node in one.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted((SOURCES / "_why").glob("*.py")), ids=lambda path: path.stem)
def test_nothing_is_sniffed(path: Path) -> None:
    assert not sniffed(path.read_text())


def test_sniffing_is_noticed() -> None:
    assert sniffed("look = 1\nlook = getattr(evidence, 'asked', None)") == [2]


@pytest.mark.parametrize("backend", ["torch", "tensorflow", "jax"])
def test_every_backend_has_all_that_is_declared(backend: str) -> None:
    assert ASKED - methods((SOURCES / "_backends" / backend / "evidence.py").read_text()) == set()


def test_a_method_that_is_missing_is_noticed() -> None:
    assert ASKED - methods("class HalfEvidence:\n    def via(self): ...") == ASKED - {"via"}
    assert "requests" in ASKED
