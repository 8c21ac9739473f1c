"""Every mistake is named with its line, and healthy programs are left alone."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import wrt
from tests.why._programs import Program

FRAMEWORKS = ["torch", "jax", "tensorflow"]


def programs(framework: str, *, healthy: bool) -> list:
    try:
        importlib.import_module(framework)
    except ImportError:
        return []
    parts = [path.stem for path in sorted(Path(__file__).parent.glob(f"{framework}_*.py"))]
    tables = [importlib.import_module(f"tests.why.{part}").programs for part in parts]
    rows = [p for table in tables for p in table if (p.cause == "none") == healthy]
    return [pytest.param(framework, p, id=f"{framework}-{p}") for p in rows]


def findings(framework: str, program: Program) -> wrt.Findings:
    try:
        if framework == "jax":
            f, args = program.run()
            t = wrt.trace(f, *args)
            y, x = t.output, t.inputs[0]
        else:
            with wrt.record():
                y, x = program.run()
        return wrt.why(y, x if program.at is None else wrt.d(x)[program.at])
    except Exception as error:
        return wrt.why(error)


@pytest.mark.parametrize(("framework", "program"), [p for name in FRAMEWORKS for p in programs(name, healthy=False)])
def test_the_cause_and_its_line_are_named(framework, program):
    found = findings(framework, program)
    assert found, "nothing found"
    assert found[0].cause in (program.cause, *program.also), str(found)
    assert program.line in (None, found[0].line), str(found)


@pytest.mark.parametrize(("framework", "program"), [p for name in FRAMEWORKS for p in programs(name, healthy=True)])
def test_a_healthy_program_is_left_alone(framework, program):
    found = findings(framework, program)
    assert not found.certain, str(found)
