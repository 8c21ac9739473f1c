"""The page in a notebook: messages in, messages out, and what is shown where anywidget is missing."""

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wrt
from tests.microscope.numbers import decode
from wrt import d
from wrt._microscope import assets
from wrt._microscope.model import Microscope
from wrt._microscope.open import NoAnywidget, Talk


class Cell:
    """A front end that keeps what it is sent."""

    def __init__(self, glass: Microscope) -> None:
        self.sent: list[dict[str, Any]] = []
        self.talk = Talk(glass, self.sent.append)

    def ask(self, number: int, verb: Any, args: Any) -> dict[str, Any]:
        self.talk.receive({"kind": "ask", "id": number, "verb": verb, "args": args})
        return self.reply(number)

    def reply(self, number: int) -> dict[str, Any]:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            for one in self.sent:
                if one["id"] == number and one["kind"] == "reply":
                    return one
            time.sleep(0.005)
        raise AssertionError("no reply")


@pytest.fixture
def cell(run: wrt.Trace) -> Iterator[Cell]:
    made = Cell(Microscope(run))
    yield made
    made.talk.worker.close()


def test_a_question_is_answered_by_its_number(cell: Cell, run: wrt.Trace) -> None:
    source = cell.ask(1, "hello", {})["result"]["default"]["source"]
    asked = {"target": {"name": "fc", "index": [0, 2]}, "source": {"name": source, "index": None}}
    told = cell.ask(2, "derivative", asked)
    assert told["ok"]
    np.testing.assert_array_equal(decode(told["result"]["data"]), (d(run["fc"])[0, 2] / d(run[source])).numpy())


def test_a_bad_question_is_answered_in_three_lines(cell: Cell) -> None:
    told = cell.ask(1, "tensor", {"name": "nothing"})
    assert not told["ok"]
    assert set(told["error"]) == {"what", "stands", "write", "code"}
    assert not cell.ask(2, None, {})["ok"]
    assert not cell.ask(3, "hello", [])["ok"]


def test_nonsense_is_not_answered(cell: Cell) -> None:
    for nonsense in (None, 3, [], {}, {"kind": "ask"}, {"kind": "cancel", "id": 99}, {"kind": "?", "id": 1}):
        cell.talk.receive(nonsense)
    assert cell.ask(1, "hello", {})["ok"]
    assert len(cell.sent) == 1


def test_a_question_that_is_no_longer_wanted_ends(cell: Cell) -> None:
    gate = threading.Event()
    cell.talk.worker.submit(gate.wait)
    cell.talk.receive({"kind": "ask", "id": 1, "verb": "hello", "args": {}})
    cell.talk.receive({"kind": "cancel", "id": 1})
    gate.set()
    assert cell.reply(1)["error"]["code"] == "cancelled"


def test_the_widget_carries_the_page(run: wrt.Trace, page: assets.Bundle) -> None:
    pytest.importorskip("anywidget")
    made = run.widget()
    assert made._esm == page.script
    assert made._repr_mimebundle_() is not None
    made.close()


def test_without_anywidget_it_says_what_to_install(
    run: wrt.Trace, page: assets.Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(NoAnywidget) as caught:
        run.widget()
    assert str(caught.value) == (
        "the page in a notebook needs anywidget\n"
        "  it is not installed here\n"
        "  pip install 'wrt[notebook]', or write t.show() or t.save_html(\"run.html\")"
    )
    assert run._repr_mimebundle_() is None
    assert run._display_() == repr(run)
