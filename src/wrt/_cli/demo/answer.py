"""Ask the questions of one framework, here or in a process of their own.

`python -m wrt._cli.demo.answer tensorflow` asks those of TensorFlow and prints what came out as JSON: two frameworks in
one process are slow to start and heavy.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from wrt._cli.demo.question import Check, Evidence, Outcome, Question, Shown
from wrt._cli.demo.questions import TOPICS

HERE = "torch"  # asked in this process; the others in one of their own


def frameworks() -> list[str]:
    """Every framework that a question has a twin for, in the order of the table."""
    return list(dict.fromkeys(name for topic in TOPICS for question in topic.questions for name in question.twins))


def questions(framework: str, only: str = "") -> list[Question]:
    """The questions that can be asked there; `only` is the beginning of a number."""
    every = (question for topic in TOPICS for question in topic.questions)
    return [question for question in every if framework in question.twins and question.number.startswith(only)]


def missing(framework: str) -> str:
    """Why nothing can be asked there, or nothing."""
    if importlib.util.find_spec(framework) is None:
        return f"{framework} is not installed here; pip install 'wrt[{framework}]' and run the demo again"
    return ""


def everywhere(names: Sequence[str], only: str = "") -> list[Outcome]:
    """What all of these answered; processes of their own run beside this one."""
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        apart = {name: pool.submit(outcomes, name, only) for name in names if name != HERE}
        here = outcomes(HERE, only) if HERE in names else []
        return here + [one for waiting in apart.values() for one in waiting.result()]


def outcomes(framework: str, only: str = "") -> list[Outcome]:
    """What the framework answered, asked here or apart."""
    todo = questions(framework, only)
    if not todo:
        return []
    if why := missing(framework):
        return [Outcome(question.number, framework, skipped=why) for question in todo]
    return [answer(question, framework) for question in todo] if framework == HERE else apart(framework, only)


@cache
def twins(framework: str) -> ModuleType:
    """The functions that ask there, loaded as a user's file: wrt watches programs, and never its own files."""
    source = Path(__file__).with_name(f"{framework}_twins.py").read_text()
    module = ModuleType(f"demo_{framework}")
    exec(compile(source, f"<demo in {framework}>", "exec"), module.__dict__)
    return module


def answer(question: Question, framework: str) -> Outcome:
    """Run one twin; what it raises is an outcome too."""
    evidence: list[Evidence] = []
    try:
        evidence.extend(getattr(twins(framework), question.twins[framework])())
    except Exception as error:
        said = traceback.format_exception_only(error)[-1].strip()
        return Outcome(question.number, framework, tuple(evidence), raised=said)
    return Outcome(question.number, framework, tuple(evidence))


def apart(framework: str, only: str) -> list[Outcome]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", __name__, framework, only]
    process = subprocess.run(command, capture_output=True, text=True)
    try:
        return [_outcome(row) for row in json.loads(process.stdout.splitlines()[-1])]
    except (IndexError, json.JSONDecodeError):
        said = (process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        return [Outcome(question.number, framework, raised=said) for question in questions(framework, only)]


def as_data(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON understands it."""
    return asdict(outcome) | {"evidence": [_evidence_data(one) for one in outcome.evidence], "passed": bool(outcome)}


def _evidence_data(one: Evidence) -> dict[str, Any]:
    if isinstance(one, Shown):
        return asdict(one)
    return asdict(one) | {"got": one.got.tolist(), "expected": one.expected.tolist()}


def _outcome(row: dict[str, Any]) -> Outcome:
    evidence = tuple(_evidence(one) for one in row["evidence"])
    return Outcome(row["number"], row["framework"], evidence, row["raised"], row["skipped"])


def _evidence(row: dict[str, Any]) -> Evidence:
    if "words" in row:
        return Shown(**row)
    numbers = {name: np.asarray(row[name], dtype=np.float64) for name in ("got", "expected")}
    return Check(**(row | numbers))


if __name__ == "__main__":
    framework, only = (*sys.argv[1:], "")[:2]
    print(json.dumps([as_data(answer(question, framework)) for question in questions(framework, only)]))
