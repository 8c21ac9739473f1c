"""The demo answers every question in every framework, and its checks can fail."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from wrt._cli import app as command_line
from wrt._cli import demo
from wrt._cli.demo import FRAMEWORKS, QUESTIONS, Outcome, Question


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command_line.app, ["demo", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.number)
def test_every_question_is_answered_in_torch(question: Question) -> None:
    outcomes = demo.answer(question, "torch")
    assert [one.line for one in outcomes] == [line for line, *_ in question.lines]
    assert all(outcomes), [one.words() for one in outcomes]


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "torch"])
def test_every_question_is_answered_in_the_other_frameworks(framework: str) -> None:
    outcomes = demo.outcomes_of(framework, QUESTIONS)
    if outcomes[0].skipped:
        pytest.skip(outcomes[0].skipped)
    assert len(outcomes) == sum(len(one.lines) for one in QUESTIONS)
    assert all(outcomes), [one.words() for one in outcomes if not one]


def test_there_are_five_questions_each_in_every_framework() -> None:
    assert [one.number for one in QUESTIONS] == ["1", "2", "3", "4", "5"]
    assert all(set(one.programs) == set(FRAMEWORKS) for one in QUESTIONS)


# ---- it can fail ----


def outcome(got: object, expected: object) -> Outcome:
    return Outcome("1", "torch", "d(y) / d(x)", got, expected, "by hand", 1)


def test_a_wrong_number_fails() -> None:
    assert outcome([1.0, 2.0], [1.0, 2.0])
    assert not outcome([1.0, 2.0], [1.0, 2.1])


@pytest.mark.parametrize("got", [[np.nan, 2.0], [[1.0, 2.0]], [1.0], [np.inf, 2.0]])
def test_nan_infinity_and_a_wrong_shape_fail(got: list[float]) -> None:
    assert not outcome(got, [1.0, 2.0])


def test_what_raised_fails_and_what_was_skipped_does_not() -> None:
    assert not Outcome("1", "torch", raised="ValueError")
    assert Outcome("1", "torch", skipped="not installed")


def test_the_demo_fails_when_a_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(QUESTIONS[0], lines=(("d(y) / d(x)[2]", "2.0", "by hand"),))
    monkeypatch.setattr(demo, "QUESTIONS", (wrong,))
    code, output = call("1", "--framework", "torch")
    assert code == 1
    assert "✗ PyTorch: d(y) / d(x)[2]  =  3  (1 pass; by hand: 2, DIFFERENT)" in output
    assert "FAILED: 1 (PyTorch)" in output


def test_the_demo_fails_when_a_question_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(QUESTIONS[0], programs={"torch": "1 / 0"})
    monkeypatch.setattr(demo, "QUESTIONS", (broken,))
    code, output = call("1", "--framework", "torch")
    assert code == 1
    assert "ZeroDivisionError: division by zero" in output


def test_a_process_that_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.sys, "executable", "/bin/false")
    assert [bool(one) for one in demo.outcomes_of("jax", QUESTIONS[:1])] == [False]


# ---- how it looks ----


def test_the_page_shows_question_answer_check_and_truth() -> None:
    code, output = call("2", "--framework", "torch")
    assert code == 0
    for words in ("Is plain indexing", "d(y) / d(x)", "[2, 0, 0, 0, 0]", "by hand: the same", "Truth", "examples/"):
        assert words in output
    assert re.search(r"1 answers held in", output)


def test_json_carries_the_numbers() -> None:
    _, output = call("2", "--framework", "torch", "--json")
    (row,) = json.loads(output)
    assert row["passed"] is True
    assert row["got"] == row["expected"] == [2, 0, 0, 0, 0]


@pytest.mark.parametrize("arguments", [("9",), ("1.1",), ("--framework", "theano")])
def test_an_unknown_number_or_framework_is_refused(arguments: tuple[str, ...]) -> None:
    code, output = call(*arguments)
    assert code == 2
    assert "no question matches" in output


def test_a_missing_framework_is_named_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    (found,) = demo.outcomes_of("torch", QUESTIONS[:1])
    assert found
    assert "pip install 'wrt[torch]'" in found.skipped
