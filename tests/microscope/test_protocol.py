"""The contract between the page and Python, held to what Python says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import wrt
from wrt._microscope import assets
from wrt._microscope.model import Microscope

PROTOCOL = Path(__file__).parents[2] / "frontend" / "PROTOCOL.md"


def columns(verb: str) -> set[str]:
    """The fields that the table promises for a verb, at its top level."""
    row = re.search(rf"^\| `{verb}` \|.*\| `(.*)` \|$", PROTOCOL.read_text(), re.MULTILINE)
    assert row is not None, verb
    flat = re.sub(r"\{[^{}]*\}", "", re.sub(r"\{[^{}]*\}", "", re.sub(r"\[\{.*\}\]", "", row[1])))
    return {field.split(":")[0].strip() for field in flat.split(",")}


@pytest.fixture(scope="module")
def asked(run: wrt.Trace) -> dict[str, Any]:
    glass = Microscope(run)
    y, x = {"name": "fc", "index": [0, [0, 2]]}, {"name": "conv1", "index": None}
    both = {"target": y, "source": x}
    args = {"tensor": {"name": "conv1"}, "sizes": {"target": y}, "derivative": both, "why": both}
    args["map"] = {"target": {"name": "fc"}, "source": x, "keep": [1, 1]}
    return {verb: glass.ask(verb, args.get(verb, {})) for verb in sorted(glass.verbs)}


def test_every_verb_is_told_and_no_other(asked: dict[str, Any]) -> None:
    told = re.findall(r"^\| `(\w+)` \|", PROTOCOL.read_text(), re.MULTILINE)
    assert sorted(told) == sorted(asked)


@pytest.mark.parametrize("verb", ["hello", "graph", "tensor", "sizes", "derivative", "map", "why"])
def test_a_reply_has_the_fields_of_the_contract(verb: str, asked: dict[str, Any]) -> None:
    assert columns(verb) == set(asked[verb])


def test_a_node_has_the_fields_of_the_contract(asked: dict[str, Any]) -> None:
    told = re.search(r"one value: `(.*?)`", PROTOCOL.read_text(), re.DOTALL)
    assert told is not None
    assert {field.strip() for field in told[1].split(",")} == set(asked["graph"]["nodes"][0])


def test_a_file_has_the_fields_of_the_contract(run: wrt.Trace, page: assets.Bundle, tmp_path: Path) -> None:
    text = run.save_html(tmp_path / "run.html").path.read_text()
    data = json.loads(text.split('id="wrt-run">')[1].split("</script>")[0])
    told = re.search(r"## The file\n\n`\{(.*?)\}`\. A", PROTOCOL.read_text(), re.DOTALL)
    assert told is not None
    flat = re.sub(r"\{[^{}]*\}", "", told[1])
    assert {field.split(":")[0].strip() for field in flat.split(",")} == set(data)
