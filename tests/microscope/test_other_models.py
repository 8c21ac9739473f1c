"""Models that others wrote: the page opens where one would look first."""

from typing import Any

import numpy as np
import pytest
import torch

import wrt
from tests.microscope.numbers import decode
from wrt._microscope.model import Microscope

WORDS = "the quick brown fox jumps".split()


@pytest.fixture(scope="module")
def gpt() -> Microscope:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make corpus adds it")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 30, "n_positions": 8}
        settings = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
        model = transformers.GPT2LMHeadModel(settings).eval().double()
        return Microscope(wrt.trace(model, torch.randint(0, 30, (1, 5)), values=True), tokens=WORDS)


def test_a_language_model_opens_at_the_last_word_by_the_embeddings(gpt: Microscope) -> None:
    hello = gpt.ask("hello", {})
    assert hello["title"].startswith("GPT2LMHeadModel in ")
    assert (hello["default"]["target"], hello["default"]["source"]) == ("lm_head", "transformer.wte")
    assert hello["default"]["index"][:2] == [0, 4]
    for name in ("lm_head", "transformer.wte"):
        told = gpt.ask("tensor", {"name": name})
        assert (told["view"], told["tokens"]) == ("tokens", WORDS)


def test_its_map_is_a_triangle(gpt: Microscope) -> None:
    sides = {"target": {"name": "transformer.h.1"}, "source": {"name": "transformer.wte"}}
    table = decode(gpt.ask("map", {**sides, "keep": [1, 1]})["data"])
    assert (np.triu(table, 1) == 0).all()
    assert (np.tril(table) > 0).sum() == 15


def test_modules_fold_into_those_around_them(gpt: Microscope) -> None:
    drawn = gpt.ask("graph", {})
    assert {"transformer", "transformer.h.0", "transformer.h.0.attn"} <= set(drawn["modules"])
    assert not [node for node in drawn["nodes"] if node["gradient"] == "cut"]


def test_a_network_from_torchs_own_layers() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).train(False).double()
        glass = Microscope(wrt.trace(model, torch.randn(1, 4, 8, dtype=torch.float64), values=True))
    hello = glass.ask("hello", {})
    default = hello["default"]
    asked = {"target": {"name": default["target"], "index": default["index"]}, "source": {"name": default["source"]}}
    assert glass.ask("derivative", asked)["connected"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_other_kinds_of_numbers_can_be_looked_at(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * x
        return y

    glass = Microscope(wrt.trace(f, torch.tensor([1.0, 2.0], dtype=dtype), values=True))
    asked = {"target": {"name": "y", "index": [1]}, "source": {"name": "x"}}
    assert decode(glass.ask("derivative", asked)["data"]).tolist() == [0.0, 4.0]
    assert decode(glass.ask("tensor", {"name": "x"})["data"]).tolist() == [1.0, 2.0]
