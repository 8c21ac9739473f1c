"""Take the pictures of docs/microscope.md: `python frontend/pictures.py`. Needs torch, playwright and the system's Chromium."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import sync_playwright
from torch import nn

import wrt
from wrt._cli import demo

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
STORE = 'document.querySelector(".wrt").parentElement.microscope'
WORDS = "the cat sat on the mat because it was very tired .".split()


class Attention(nn.Module):
    """Causal attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        parts = self.qkv(x).view(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        later = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        attention = scores.masked_fill(later, -math.inf).softmax(-1)
        return self.out((attention @ v).transpose(1, 2).reshape(n, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, words: int, width: int = 24, heads: int = 4) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(64, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(2)])
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


def transformer() -> wrt.Trace:
    torch.manual_seed(1)
    known = sorted(set(WORDS))
    tokens = torch.tensor([[known.index(word) for word in WORDS]])
    return wrt.trace(Transformer(len(known)).eval(), tokens, values=True)


def recurrence() -> wrt.Trace:
    with wrt.record(values=True) as t:
        x = torch.linspace(-1, 1, 12, requires_grad=True)
        h = torch.zeros(12)
        for i in range(12):
            h[i] = torch.tanh(x[i] + (0.9 * h[i - 1] if i else 0.0))
        loss = h.square().sum()
    return t


def cut() -> wrt.Trace:
    torch.manual_seed(3)
    encoder, head = nn.Linear(8, 16), nn.Linear(16, 4)
    with wrt.record(values=True) as t:
        x = torch.randn(5, 8, requires_grad=True)
        features = encoder(x)
        h = features.detach()
        logits = head(h)
        loss = logits.logsumexp(1).mean()
    return t


def settled(page: Any) -> None:
    for _ in range(1000):
        if page.evaluate(f"Boolean({STORE}?.view.value && !{STORE}.busy.value)"):
            break
        page.wait_for_timeout(20)
    page.wait_for_timeout(400)


def show(page: Any, **view: Any) -> None:
    whole = {"at": None, "from": None, "asks": None} | view
    page.evaluate(f"view => void {STORE}.show(view)", whole)
    settled(page)


def take(browser: Any, t: wrt.Trace, name: str, look: Any, *, theme: str = "light", **told: Any) -> None:
    """Open a page, look at something, take the picture; a phone is as narrow as phones are."""
    size = (390, 844) if name == "phone" else (1360, 820)
    with t.show(browser=False, wait=False, **told) as live:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
        page.goto(live.url)
        settled(page)
        look(page)
        page.mouse.move(size[0] - 3, size[1] - 3)
        page.wait_for_timeout(300)
        page.screenshot(path=PICTURES / f"microscope_{name}.png")
        page.close()
    print(PICTURES / f"microscope_{name}.png")


def on_a_picture(page: Any) -> None:
    show(page, target="parts", source=page.evaluate(f"{STORE}.hello.value.default.source"), at=[0, 3, 5, 4])
    page.get_by_role("button", name="both").click()


def on_tokens(page: Any) -> None:
    page.get_by_text("dependence map").click()
    settled(page)
    page.get_by_label("gain of the map").fill("1")


def all_by_all(page: Any) -> None:
    show(page, target="h", source="h", asks="block")


def main() -> None:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        run, tokens = demo.shapes(), transformer()
        take(browser, run, "picture", on_a_picture, title="a small network on a ring")
        take(browser, tokens, "tokens", on_tokens, title="a causal transformer", tokens=WORDS)
        take(browser, tokens, "dark", lambda page: show(page, target="head", source="embed", at=[0, 8, 3]), theme="dark",
             title="a causal transformer", tokens=WORDS)  # fmt: skip
        take(browser, recurrence(), "recurrence", all_by_all, title="a recurrence that fills h in place")
        take(browser, cut(), "cut", lambda page: show(page, target="loss", source="x", at=[]), title="a path that is cut")
        take(browser, run, "phone", on_a_picture, title="a small network on a ring")
        browser.close()


if __name__ == "__main__":
    main()
