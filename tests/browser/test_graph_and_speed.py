"""The computation on the left, small and large; and how long things take, printed, not judged."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wrt
from tests.browser.glass import STORE
from tests.browser.runs import picture
from wrt._microscope import assets, encode
from wrt._microscope.model import Microscope


@pytest.fixture(scope="module")
def page(opened: Any) -> Any:
    with picture()[2].show(browser=False, wait=False) as live:
        yield (glass := opened(live.url))
        glass.page.close()


def labels(page: Any) -> list[str]:
    return page.page.evaluate("[...document.querySelectorAll('.wrt-box b')].map((one) => one.textContent)")


def test_only_the_path_between_target_and_source_is_drawn(page: Any) -> None:
    page.show("head", "conv2", [0, 1])
    assert "x" not in labels(page)
    assert {"conv2", "head"} <= set(labels(page))
    page.page.get_by_text("whole run").click()
    assert {"x", "conv1"} <= set(labels(page))
    page.page.get_by_text("whole run").click()


def test_boxes_say_shape_size_and_zeros(page: Any) -> None:
    page.show("head", "x", [0, 1])
    page.until("document.querySelector('.wrt-size')")
    said = page.page.evaluate("[...document.querySelectorAll('.wrt-face')].map((one) => one.getAttribute('aria-label'))")
    (head,) = [one for one in said if one.startswith("head,")]
    assert "shape 1×3" in head
    assert "largest gradient 1" in head
    assert "67% zeros" in head  # one of three elements of head is asked about


def test_a_click_on_a_box_makes_it_the_source_and_with_shift_the_target(page: Any) -> None:
    page.show("head", "x", [0, 1])
    page.page.locator('.wrt-face[data-key]:has(b[title="conv2"])').click()
    page.settled()
    assert page.view["source"] == "conv2"
    page.show("head", "x", [0, 1])
    page.page.locator('.wrt-face[data-key]:has(b[title="conv2"])').click(modifiers=["Shift"])
    page.until(f"{STORE}.view.value.target === 'conv2' && !{STORE}.busy.value")


class Deep(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        pairs = (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(30))
        self.layers = torch.nn.Sequential(*pairs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_modules_are_folded_and_open_with_a_click(opened: Any) -> None:
    with wrt.trace(Deep(), torch.ones(1, 4)).show(browser=False, wait=False) as live:
        page = opened(live.url)
        assert "values" in page.text(".wrt-box.wrt-module >> nth=0")
        before = int(page.page.locator(".wrt-scroll").get_attribute("data-boxes"))
        page.page.locator(".wrt-unfold").first.click()
        after = int(page.page.locator(".wrt-scroll").get_attribute("data-boxes"))
        assert after > before
        page.page.close()


def large_run(nodes: int, numbers: np.ndarray[Any, Any]) -> dict[str, Any]:
    """A long chain with branches, and one large derivative: as a saved page holds them."""
    shape = list(numbers.shape)
    with wrt.record(values=True) as t:
        x = torch.ones(3, requires_grad=True)
        y = x * 2
    microscope = Microscope(t)
    hello, graph, tensor = microscope.hello({}), microscope.graph({}), microscope.tensor({"name": "y"})
    like, last = graph["nodes"][-1], f"h#{nodes - 1}"
    inputs = [[] if k == 0 else [k - 1] if k % 5 else [k - 1, max(0, k - 7)] for k in range(nodes)]
    chain = [like | {"id": k, "name": f"h#{k}", "names": [f"h#{k}"], "label": "h", "inputs": inputs[k]} for k in range(nodes)]
    names = [one["name"] for one in chain]
    square = tensor | {"name": "h#0", "shape": shape, "data": encode.array(numbers), "view": "matrix"}
    square["axes"] = {"rows": 0, "columns": 1, "channel": None, "batch": None, "tokens": None}
    ask = {"target": {"name": last, "index": [0]}, "source": {"name": "h#0", "index": None}, "reduce": None}
    reply = {"kind": "row", "over": "source", "shape": shape, "data": encode.array(numbers), "connected": True}
    start = {"target": last, "source": "h#0", "index": [0]}
    return {
        "hello": hello | {"targets": names, "sources": names, "default": start, "computes": False},
        "graph": graph | {"nodes": chain, "modules": []},
        "tensors": {last: tensor | {"name": last}, "h#0": square},
        "answers": [{"ask": ask, "reply": reply | {"plan": None, "certificate": None, "python": "d(y) / d(x)"}}],
    }


def written(folder: Path, run: dict[str, Any]) -> str:
    data = json.dumps(run).replace("<", "\\u003c")
    (folder / "large.html").write_text(assets.file_page("large", data), encoding="utf-8", newline="")
    return (folder / "large.html").as_uri()


BLUE = """box => { const canvas = box.querySelector("canvas");
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let seen = 0;
    for (let i = 0; i < data.length; i += 4) seen += data[i + 2] > data[i] + 40;
    return seen }"""


def test_a_lone_entry_is_drawn_though_it_is_smaller_than_a_pixel(opened: Any, tmp_path: Path) -> None:
    numbers = np.zeros((1000, 1000), "float32")
    numbers[501, 333] = -2.0
    page = opened(written(tmp_path, large_run(3, numbers)))
    assert page.heat("source").evaluate(BLUE) >= 1
    page.page.close()


def test_a_tall_matrix_is_shrunk_only_the_way_it_is_too_long(opened: Any, tmp_path: Path) -> None:
    numbers = np.zeros((3000, 8), "float32")
    numbers[:, 5] = -1.0
    page = opened(written(tmp_path, large_run(3, numbers)))
    share = page.heat("source").evaluate(BLUE) / page.heat("source").evaluate("({firstChild: c}) => c.width * c.height")
    columns = page.heat("source").evaluate("box => (8 * 64) / box.clientWidth")  # cells are 64 pixels wide at most
    assert share == pytest.approx(min(1.0, columns) / 8, rel=0.05)
    page.page.close()


def test_five_thousand_nodes_and_a_million_entries_open(opened: Any, tmp_path: Path, record_property: Any) -> None:
    numbers = np.random.default_rng(0).normal(size=(1000, 1000)).astype("float32")
    address = written(tmp_path, large_run(5000, numbers))
    started = time.perf_counter()
    page = opened(address)
    seconds = time.perf_counter() - started
    layout = float(page.page.locator(".wrt-scroll").get_attribute("data-layout"))
    assert int(page.page.locator(".wrt-scroll").get_attribute("data-boxes")) == 5000
    assert page.page.locator(".wrt-box").count() < 40  # only what is in sight
    drawn = [float(page.heat("source").locator("canvas").get_attribute("data-drawn"))]
    for gain in ("0.25", "0.5", "0.75", "1"):  # every change of the scale colors the million entries anew
        page.page.get_by_label("gain of the source").fill(gain)
        page.page.wait_for_timeout(120)
        drawn.append(float(page.heat("source").locator("canvas").get_attribute("data-drawn")))
    record_property("told", f"5,000 nodes: the page opens in {seconds:.2f} s, of which layout {layout:.0f} ms")
    record_property("told", f"1,000 x 1,000 entries: drawn in {', '.join(f'{one:.0f}' for one in drawn)} ms")
    field = page.page.get_by_label("target tensor")  # too many names for a list: one types
    field.fill("h#42")
    field.press("Enter")
    page.until("document.querySelector('.wrt-trouble')?.innerText.includes('h#42')")
    page.page.close()
    assert max(drawn) < 2000  # a hang, not a figure


def test_the_time_from_a_click_to_its_picture(page: Any, record_property: Any) -> None:
    page.show("head", "x", [0, 0])
    measure = f"""async (box) => {{
        const store = {STORE};
        const begun = performance.now();
        const {{x, y}} = box.spotOf([0, 2]);
        const {{left, top}} = box.getBoundingClientRect();
        const at = {{clientX: left + x, clientY: top + y, bubbles: true, pointerId: 1, button: 0}};
        box.dispatchEvent(new PointerEvent("pointerdown", at));
        box.dispatchEvent(new PointerEvent("pointerup", at));
        while (store.stale.value || store.answer.value.view.at.join() !== "0,2") await new Promise((done) => setTimeout(done, 1));
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        return performance.now() - begun;
    }}"""
    times = []
    for _ in range(5):
        times.append(page.heat("target").evaluate(measure))
        page.show("head", "x", [0, 0])
    record_property("told", f"from a click to its picture: {', '.join(f'{one:.0f}' for one in sorted(times))} ms")
