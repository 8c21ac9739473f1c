"""The demo answers every question, its checks can fail, and each line it shows is the line it ran."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from wrt._cli import app as command_line
from wrt._cli.demo import answer, page, questions
from wrt._cli.demo.question import Check, Outcome, Question, Shown, asked, slopes

EVERY = [question for topic in questions.TOPICS for question in topic.questions]


@pytest.mark.parametrize("question", [one for one in EVERY if "torch" in one.twins], ids=lambda one: one.number)
def test_every_torch_question_is_answered_and_checked(question: Question) -> None:
    outcome = answer.answer(question, "torch")
    assert outcome, (outcome.raised, [one for one in outcome.evidence if not one])
    assert not outcome.skipped
    assert any(isinstance(one, Check) for one in outcome.evidence)


@pytest.mark.parametrize("framework", [name for name in answer.frameworks() if name != answer.HERE])
def test_every_question_is_answered_in_the_other_frameworks(framework: str) -> None:
    outcomes = answer.outcomes(framework)
    if outcomes[0].skipped:
        pytest.skip(outcomes[0].skipped)
    assert len(outcomes) == len([one for one in EVERY if framework in one.twins])
    assert all(outcomes), [(one.number, one.raised) for one in outcomes if not one]


def test_there_are_three_questions_or_more_to_each_of_five_topics() -> None:
    assert len(questions.TOPICS) == 5
    assert all(len([q for q in topic.questions if q.number[-1] in "123"]) == 3 for topic in questions.TOPICS)


def test_numbers_are_unique_and_in_order() -> None:
    numbers = [question.number for question in EVERY]
    assert numbers == sorted(set(numbers))


def calls_of_asked(framework: str) -> list[ast.Call]:
    tree = ast.parse(Path(answer.__file__).with_name(f"{framework}_twins.py").read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "asked"]


@pytest.mark.parametrize("framework", answer.frameworks())
def test_the_line_shown_is_the_line_that_ran(framework: str) -> None:
    calls = calls_of_asked(framework)
    assert len(calls) > 10
    for call in calls:
        shown, ran = call.args[:2]
        assert isinstance(shown, ast.Constant)
        assert ast.unparse(ast.parse(shown.value)) == ast.unparse(ran)


# ---- it can fail ----


def test_a_wrong_number_fails() -> None:
    right = Check("d(y)", np.array([1.0, 2.0]), np.array([1.0, 2.0]), "by hand")
    wrong = Check("d(y)", np.array([1.0, 2.0]), np.array([1.0, 2.1]), "by hand")
    assert right
    assert not wrong


@pytest.mark.parametrize("got", [[np.nan, 2.0], [[1.0, 2.0]], [1.0], [np.inf, 2.0]])
def test_nan_infinity_and_a_wrong_shape_fail(got: list[float]) -> None:
    assert not Check("d(y)", np.array(got), np.array([1.0, 2.0]), "by hand")


def test_an_outcome_without_evidence_fails() -> None:
    assert not Outcome("1.1", "torch")
    assert not Outcome("1.1", "torch", (Shown("yes", True),), raised="ValueError")
    assert Outcome("1.1", "torch", skipped="not installed")


def test_the_demo_fails_when_a_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong():  # type: ignore[no-untyped-def]
        yield asked("d(y)", np.array(1.0), 2.0, "by hand")

    monkeypatch.setattr(answer.twins("torch"), "element_used_twice", wrong)
    result = CliRunner().invoke(command_line.app, ["demo", "1.1", "--framework", "torch"])
    assert result.exit_code == 1
    assert "DIFFERENT by 5.0e-01" in result.output
    assert "FAILED: 1.1 (PyTorch)" in result.output


def test_the_demo_fails_when_a_question_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken():  # type: ignore[no-untyped-def]
        raise ZeroDivisionError("broken")
        yield

    monkeypatch.setattr(answer.twins("torch"), "element_used_twice", broken)
    result = CliRunner().invoke(command_line.app, ["demo", "1.1", "--framework", "torch"])
    assert result.exit_code == 1
    assert "ZeroDivisionError: broken" in result.output


# ---- how it looks ----


def test_the_page_shows_question_answer_check_and_truth() -> None:
    result = CliRunner().invoke(command_line.app, ["demo", "2.1", "--framework", "torch"])
    assert result.exit_code == 0
    for words in ("Is plain indexing differentiable?", "d(y) / d(x)", "[2, 0, 0, 0, 0]", "by hand: the same", "Truth"):
        assert words in result.output
    assert re.search(r"1 answers? held against 1 checks? in", result.output)


def test_json_carries_the_numbers() -> None:
    result = CliRunner().invoke(command_line.app, ["demo", "2.1", "--framework", "torch", "--json"])
    (row,) = json.loads(result.stdout)
    assert row["passed"] is True
    assert row["evidence"][0]["got"] == row["evidence"][0]["expected"] == [2, 0, 0, 0, 0]


def test_an_unknown_number_is_refused() -> None:
    result = CliRunner().invoke(command_line.app, ["demo", "9.9"])
    assert result.exit_code == 2
    assert "no question matches" in result.output


def test_a_missing_framework_is_named_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer.importlib.util, "find_spec", lambda name: None)
    (outcome,) = answer.outcomes("torch", "1.1")
    assert outcome
    assert "pip install 'wrt[torch]'" in outcome.skipped


def test_outcomes_survive_the_way_between_processes() -> None:
    outcome = answer.answer(EVERY[0], "torch")
    back = answer._outcome(json.loads(json.dumps(answer.as_data(outcome))))
    assert page.verdict([back], 0.0).plain == page.verdict([outcome], 0.0).plain
    assert back.evidence[0].got.tolist() == outcome.evidence[0].got.tolist()  # type: ignore[union-attr]


def test_a_process_that_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer.sys, "executable", "/bin/false")
    outcomes = answer.apart("torch", "1.1")
    assert [bool(one) for one in outcomes] == [False]


def test_central_differences_know_a_cubic() -> None:
    x = np.array([[1.0, 2.0], [3.0, -1.0]])
    assert np.allclose(slopes(lambda x: (x**3).sum(), x), 3 * x**2, atol=1e-8)
    assert slopes(lambda x: x.sum(axis=0), x).shape == (2, 2, 2)
