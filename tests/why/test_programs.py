"""Every mistake is named with its line, and healthy programs are left alone."""

from __future__ import annotations

import pytest

import wrt
from tests.why._programs import Program

pytest.importorskip("torch")
from tests.why.torch_programs import programs  # noqa: E402


def findings(program: Program) -> wrt.Findings:
    try:
        with wrt.record():
            y, x = program.run()
        return wrt.why(y, x if program.at is None else wrt.d(x)[program.at])
    except Exception as error:
        return wrt.why(error)


@pytest.mark.parametrize("program", [p for p in programs if p.cause != "none"], ids=str)
def test_the_cause_and_its_line_are_named(program):
    found = findings(program)
    assert found, "nothing found"
    assert (found[0].cause, found[0].line) in [(cause, program.line) for cause in (program.cause, *program.also)], str(found)


@pytest.mark.parametrize("program", [p for p in programs if p.cause == "none"], ids=str)
def test_a_healthy_program_is_left_alone(program):
    assert not [f for f in findings(program) if f.certain], str(findings(program))
