"""The page as a test sees it: clicked by elements, read by elements."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

STORE = 'document.querySelector(".wrt").parentElement.microscope'


class Glass:
    """One open page."""

    def __init__(self, page: Any, wait: bool = True) -> None:
        self.page = page
        if wait:
            self.settled()

    def settled(self) -> Glass:
        """Wait until nothing is being asked and something is shown."""
        return self.until(f"{STORE}?.view.value && ({STORE}.answer.value || {STORE}.trouble.value) && !{STORE}.busy.value")

    def until(self, condition: str, seconds: float = 15.0) -> Glass:
        """Wait for a condition; asked from outside, since the page's policy rightly forbids to evaluate text within it."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < end, f"waited {seconds} s for {condition}"
            self.page.wait_for_timeout(20)
        return self

    def show(self, target: str, source: str, at: list[Any] | None = None) -> Glass:
        """Look at something else without loading the page again."""
        view = {"target": target, "at": at, "source": source, "from": None, "asks": None}
        self.page.evaluate(f"view => void {STORE}.show(view)", view)
        return self.until(f"!{STORE}.busy.value")

    def heat(self, role: str) -> Any:
        return self.page.locator(f'[data-role="{role}"] .wrt-heat')

    def spot(self, role: str, index: tuple[int, ...]) -> dict[str, float]:
        """Where an element is drawn, once it is."""
        self.until(f"""document.querySelector('[data-role="{role}"] .wrt-heat canvas')?.dataset.drawn""")
        return self.heat(role).evaluate("(box, index) => box.spotOf(index)", list(index))

    def click(self, role: str, *index: int, shift: bool = False) -> Glass:
        """Click the very pixel at which an element is drawn."""
        self.heat(role).click(position=self.spot(role, index), modifiers=["Shift"] if shift else [])
        return self.settled()

    def hover(self, role: str, *index: int) -> str:
        """Point at an element: what the line below the picture says."""
        self.heat(role).hover(position=self.spot(role, index))
        return self.readout(role)

    def readout(self, role: str) -> str:
        return self.page.locator(f'[data-role="{role}"] .wrt-readout').inner_text().replace("−", "-")

    def derivative_at(self, role: str, *index: int) -> float:
        """The number that is shown for an element when it is pointed at."""
        return float(self.hover(role, *index).split("derivative")[1])

    def drag(self, role: str, first: tuple[int, ...], last: tuple[int, ...]) -> Glass:
        box = self.heat(role).bounding_box()
        start, end = self.spot(role, first), self.spot(role, last)
        self.page.mouse.move(box["x"] + start["x"], box["y"] + start["y"])
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + end["x"], box["y"] + end["y"], steps=4)
        self.page.mouse.up()
        return self.settled()

    def choose(self, role: str, name: str) -> Glass:
        self.page.get_by_label(f"{role} tensor").select_option(name)
        return self.until(f"{STORE}.view.value.{role} === {name!r} && !{STORE}.busy.value")

    @property
    def view(self) -> dict[str, Any]:
        return self.page.evaluate(f"{STORE}.view.value")

    @property
    def over(self) -> str:
        return self.page.evaluate(f"{STORE}.over.value")

    @property
    def values(self) -> np.ndarray[Any, Any]:
        """All numbers of the answer that is drawn."""
        return np.array(self.page.evaluate(f"[...{STORE}.answer.value.values]"))

    @property
    def block(self) -> np.ndarray[Any, Any]:
        shape, data = self.page.evaluate(f"[{STORE}.answer.value.block.shape, [...{STORE}.answer.value.block.data]]")
        return np.array(data).reshape(shape)

    @property
    def python(self) -> str:
        return self.page.locator(".wrt-python").inner_text()

    def pixel(self, role: str, *index: int) -> tuple[int, int, int]:
        """The color in which an element is drawn."""
        spot = self.spot(role, index)
        read = """(box, {x, y}) => { const canvas = box.querySelector("canvas");
            const [left, top] = [x, y].map((one) => Math.round((one * canvas.width) / box.clientWidth));
            return [...canvas.getContext("2d").getImageData(left, top, 1, 1).data].slice(0, 3) }"""
        return tuple(self.heat(role).evaluate(read, spot))

    def text(self, place: str) -> str:
        return self.page.locator(place).inner_text()
