"""Names, sources and tokens are the user's, and may be anything: they are shown, letter by letter, and never run."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import wrt
from wrt._microscope import assets
from wrt._microscope.model import Microscope

HOSTILE = [
    "<script>window.caught=1</script>",
    "</script><script>window.caught=1</script>",
    "<img src=x onerror=window.caught=1>",
    "<svg onload=window.caught=1>",
    "<svg><script>window.caught=1</script></svg>",
    "<body onload=window.caught=1>",
    "<iframe srcdoc='<script>parent.caught=1</script>'>",
    "<a href=javascript:window.caught=1>x</a>",
    "javascript:window.caught=1",
    '"><script>window.caught=1</script>',
    "'><img src=x onerror=window.caught=1>",
    "`-window.caught=1-`",
    "${window.caught=1}",
    "{{constructor.constructor('window.caught=1')()}}",
    "<!--<script>window.caught=1</script>",
    "--><script>window.caught=1</script>",
    "]]><script>window.caught=1</script>",
    "<math><mtext></mtext><img src=x onerror=window.caught=1></math>",
    "<details open ontoggle=window.caught=1>",
    "<input autofocus onfocus=window.caught=1>",
    "<style>*{display:none}</style>",
    "<link rel=stylesheet href=data:text/css,*{display:none}>",
    "<base href=//example.com/>",
    "<meta http-equiv=refresh content=0;url=about:blank>",
    "\\u003cscript\\u003ewindow.caught=1\\u003c/script\\u003e",
    "&lt;script&gt;window.caught=1&lt;/script&gt;",
    "%3Cscript%3Ewindow.caught=1%3C/script%3E",
    "__proto__",
    "constructor",
    "\u202e<script>window.caught=1</script>\u2028\u0000",
]

FINDING = {
    "cause": HOSTILE[2], "sentence": HOSTILE[3], "file": HOSTILE[4], "line": 1, "function": HOSTILE[5],
    "evidence": [HOSTILE[6]], "remedy": HOSTILE[7], "source_lines": [{"line": 1, "text": HOSTILE[8], "mark": True}],
}  # fmt: skip

ANSWER = {
    "ask": {"target": {"name": HOSTILE[0], "index": [0]}, "source": {"name": HOSTILE[1], "index": None}, "reduce": None},
    "reply": {
        "kind": "row", "over": "source", "shape": [30], "data": None, "connected": False, "finding": FINDING,
        "python": HOSTILE[9], "plan": {HOSTILE[10]: HOSTILE[11]}, "certificate": HOSTILE[12], "note": HOSTILE[13],
        "passes": 1, "seconds": 0.1,
    },
}  # fmt: skip

PLACES = [("h1", 0), (".wrt-why b", 3), (".wrt-why .wrt-mark code", 8), (".wrt-python", 9), (".wrt-why .wrt-remedy", 7)]


def node(like: dict[str, Any], k: int, name: str) -> dict[str, Any]:
    words = dict.fromkeys(("name", "label", "op", "file", "function", "text"), name)
    finding = {"cause": name, "sentence": name, "line": 1}
    place = {"id": k, "names": [name], "kind": "value", "module": "", "line": 1, "inputs": [k - 1] if k else []}
    return like | words | place | {"finding": finding}


def hostile_run() -> dict[str, Any]:
    """What a page is given about a real run, every word in it replaced by a hostile one."""
    with wrt.record(values=True) as t:
        x = torch.ones(len(HOSTILE), requires_grad=True)
        y = x * 2
    microscope = Microscope(t, title=HOSTILE[0], tokens=HOSTILE)
    hello, graph, tensor = microscope.hello({}), microscope.graph({}), microscope.tensor({"name": "x"})
    hello |= {"framework": HOSTILE[1], "note": HOSTILE[2], "targets": HOSTILE, "sources": HOSTILE, "computes": False}
    hello["default"] = {"target": HOSTILE[0], "source": HOSTILE[1], "index": None}
    return {
        "hello": hello,
        "graph": graph | {"nodes": [node(graph["nodes"][0], k, name) for k, name in enumerate(reversed(HOSTILE))]},
        "tensors": {name: tensor | {"name": name, "dtype": name, "tokens": HOSTILE} for name in HOSTILE},
        "answers": [ANSWER],
        "whys": [{"target": HOSTILE[0], "source": HOSTILE[1], "reply": {"findings": [FINDING]}}],
    }


@pytest.fixture(scope="module")
def page(opened: Any, tmp_path_factory: Any) -> Any:
    assert len(HOSTILE) == 30
    file: Path = tmp_path_factory.mktemp("hostile") / "page.html"
    data = json.dumps(hostile_run()).replace("<", "\\u003c")
    file.write_text(assets.file_page(HOSTILE[0], data), encoding="utf-8", newline="")
    glass = opened(file.as_uri(), wait=False)
    glass.until("document.querySelector('.wrt-heat canvas')?.dataset.drawn || document.querySelector('.wrt-token')")
    for button in ("all steps", "whole run"):
        glass.page.get_by_text(button).click()
    return glass.show(HOSTILE[0], HOSTILE[1], [0])


def missing(shown: set[str]) -> list[str]:
    """Names that are nowhere. A browser shows U+0000, which no text of a page can hold, as U+FFFD."""
    return [name for name in HOSTILE if not {name, name.replace("\u0000", "\ufffd")} & shown]


def test_nothing_of_it_ran(page: Any) -> None:
    page.page.wait_for_timeout(200)
    assert page.page.evaluate("window.caught ?? null") is None
    assert page.page.evaluate("document.querySelectorAll('script').length") == 2  # the page's own module and its data
    strangers = "iframe, img, base, math, body ~ *, .wrt style, .wrt link"
    assert page.page.evaluate(f"document.querySelectorAll('{strangers}').length") == 0


@pytest.mark.parametrize("role", ["target", "source"])
def test_every_name_is_offered_letter_by_letter(page: Any, role: str) -> None:
    options = page.page.locator(f'[data-role="{role}"] .wrt-choice option')
    assert missing(set(options.evaluate_all("all => all.map((one) => one.textContent)"))) == []


def test_every_name_stands_in_the_graph_as_text(page: Any) -> None:
    seen: set[str] = set()
    scroller = page.page.locator(".wrt-scroll")
    for top in range(0, 3000, 500):
        scroller.evaluate("(box, top) => (box.scrollTop = top)", top)
        page.page.wait_for_timeout(60)
        seen |= set(page.page.evaluate("[...document.querySelectorAll('.wrt-box b')].map((one) => one.title)"))
    assert missing(seen) == []


@pytest.mark.parametrize(("place", "number"), PLACES)
def test_what_the_host_says_is_text(page: Any, place: str, number: int) -> None:
    page.show(HOSTILE[0], HOSTILE[1], [0])
    assert page.page.locator(place).first.evaluate("one => one.textContent") == HOSTILE[number]
