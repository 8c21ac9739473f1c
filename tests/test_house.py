"""The size of the house: lines, files, thresholds, and how many calls lie between a question and the engine."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from wrt import d

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "wrt"

LIMITS = {
    "lines in src": 38_000,
    "files in src": 330,
    "lines in _run": 3_000,
    "lines in _backends/torch": 6_500,
    "numeric thresholds": 40,
    "calls for one element": 45,
    "files for one element": 10,
    "calls for a 100 x 3 Jacobian": 120,
    "files for a 100 x 3 Jacobian": 15,
}
TODAY = {
    "lines in src": 39_000,
    "numeric thresholds": 131,
}
"""What is not yet within its limit, and may not grow meanwhile; an entry goes when its limit is reached."""


def lines(folder: str = "") -> int:
    return sum(len(path.read_text().splitlines()) for path in (PACKAGE / folder).rglob("*.py"))


def files() -> int:
    return len(list(PACKAGE.rglob("*.py")))


# ---------------------------------------------------------------- thresholds


def thresholds() -> list[str]:
    """Numeric constants of modules: `folder/file.py: NAME = value`."""
    return [
        f"{path.relative_to(PACKAGE).as_posix()}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in numeric_constants(path.read_text())
    ]


def numeric_constants(source: str) -> list[str]:
    """Names in capitals that a module gives a number, arithmetic of numbers, or a tuple of such.

    >>> numeric_constants("A = 2**20\\nB = 'x'\\n_C: int = -(1 + 2)\\nD = 1, 2.5\\nlower = 3\\nE = True")
    ['A', '_C', 'D']
    """
    found = []
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if value is not None and is_number(value):
            found += [one.id for one in targets if isinstance(one, ast.Name) and one.id.isupper()]
    return found


def is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(is_number, node.elts))


def test_a_threshold_is_one_however_it_is_written() -> None:
    source = "A = 2**20\nB = 'x'\n_C: int = -(1 + 2)\nD = 1, 2.5\nlower = 3\nE = True\nF = g(1)"
    assert numeric_constants(source) == ["A", "_C", "D"]
    assert numeric_constants("def f():\n  A = 1\nclass B:\n  C = 2") == []  # not of a module


# ---------------------------------------------------------------- calls


def calls(ask: Callable[[], Any]) -> tuple[int, int]:
    """Python calls inside of the package during one question, and the files they are in, once it was asked before."""
    seen: list[str] = []

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.append(frame.f_code.co_filename)

    before = sys.getprofile()
    for _ in range(4):
        seen.clear()
        gc.collect()
        sys.setprofile(look)
        try:
            ask()
        finally:
            sys.setprofile(before)
    return len(seen), len(set(seen))


def one_element() -> Callable[[], Any]:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5))
    x = torch.randn(4, 8, requires_grad=True)
    y = model(x)
    return lambda: (d(y)[0, 3] / d(x)[1, 2]).value


def jacobian() -> Callable[[], Any]:
    torch.manual_seed(0)
    x = torch.randn(3, requires_grad=True)
    y = torch.sin(torch.randn(100, 3) @ x)
    return lambda: (d(y) / d(x)).value


def test_calls_are_counted() -> None:
    x = torch.ones(2, requires_grad=True)
    assert calls(lambda: None) == (0, 0)
    count, where = calls(lambda: d(x))
    assert 1 <= where <= count


# ---------------------------------------------------------------- limits


def figures() -> dict[str, int]:
    found = {
        "lines in src": lines(),
        "files in src": files(),
        "lines in _run": lines("_run"),
        "lines in _backends/torch": lines("_backends/torch"),
        "numeric thresholds": len(thresholds()),
    }
    for name, question in (("one element", one_element), ("a 100 x 3 Jacobian", jacobian)):
        found[f"calls for {name}"], found[f"files for {name}"] = in_a_fresh_process(question)
    return found


def in_a_fresh_process(question: Callable[[], Callable[[], Any]]) -> tuple[int, int]:
    """Hooks and recordings that other tests have left alive are looked at, too: they do not count here."""
    source = f"from tests.test_house import calls, {question.__name__}; print(*calls({question.__name__}()))"
    environment = os.environ | {"PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{ROOT}"}
    ran = subprocess.run([sys.executable, "-c", source], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    count, where = map(int, ran.stdout.split())
    return count, where


def test_the_house_keeps_its_limits(record_property: Any) -> None:
    found = figures()
    assert found.keys() == LIMITS.keys()
    told = [f"{name}: {count:,} (at most {LIMITS[name]:,})" for name, count in found.items()]
    record_property("told", "the house: " + "; ".join(told))
    over = {name: count for name, count in found.items() if count > max(LIMITS[name], TODAY.get(name, 0))}
    assert not over
    kept = {name for name in TODAY if found[name] <= LIMITS[name]}
    assert not kept, "these are within their limits by now: take them out of TODAY"


def test_where_the_thresholds_are(record_property: Any) -> None:
    folders: dict[str, int] = {}
    for name in thresholds():
        folder = name.split(":")[0].rsplit("/", 1)[0] if "/" in name else "."
        folders[folder] = folders.get(folder, 0) + 1
    most = sorted(folders.items(), key=lambda each: -each[1])
    record_property("told", "thresholds: " + ", ".join(f"{folder} {count}" for folder, count in most))
    assert sum(folders.values()) == len(thresholds())
