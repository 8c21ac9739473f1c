"""Leaves of one tree share every pass, and each is proven by its own part of one independent pass."""

from collections import Counter

import torch

import wrt
from tests.run.test_sweep import Sine, question, swept
from tests.torch._rows import agree, row_loop
from wrt import d
from wrt._backends.torch.engine import TorchEngine

__all__ = ["swept"]


def test_a_tree_shares_one_pass(swept: Counter[str]) -> None:
    y, x = question()
    h = x * 1
    loss = Sine.apply(torch.stack([h, h * 2]).sum(0)).sum() + y.sum()
    unused = torch.ones(2, requires_grad=True)
    swept.clear()
    tree = d(loss) / d({"x": x, "h": [h], "unused": unused})
    tree["x"].value, tree["h"][0].value
    assert swept.total() == 2  # one pass, which meets two sines
    assert tree["x"].explain().passes == tree["h"][0].explain().passes == 1
    assert not tree["unused"].connected
    assert swept.total() == 2


def test_a_tree_of_several_rows_shares_its_passes_and_its_certificate(swept: Counter[str]) -> None:
    y, x = question()
    h = x * 1
    both = y + h.sum()
    swept.clear()
    tree = d(both) / d([x, h])
    agreed = [leaf.value for leaf in tree]
    assert swept == {"pull": 7 + 1}
    assert tree[0].explain().passes == 8
    agree(agreed[0], row_loop(both, x))
    agree(agreed[1], row_loop(both, h))


def network() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4)).double()
    return model, model(torch.randn(6, dtype=torch.float64))


def test_a_batch_that_is_wrong_in_one_leaf_is_noticed_and_answered_row_by_row(monkeypatch) -> None:
    right = TorchEngine.pull

    def wrong(self, seeds, *, batched=True):
        found = right(self, seeds, batched=batched)
        if batched:
            found.arrays[2] = found.arrays[2] * (1 + 1e-9)
        return found

    monkeypatch.setattr(TorchEngine, "pull", wrong)
    model, y = network()
    tree = d(y) / d(model)
    for name, parameter in model.named_parameters():
        agree(tree[name].value, row_loop(y, parameter))
        assert tree[name].certificate
        assert "DISAGREES" in tree[name].explain().fallbacks[0]


def test_without_a_proof_leaves_say_so() -> None:
    model, y = network()
    with wrt.options(certify=False):
        tree = d(y) / d(model)
        agree(tree["0.weight"].value, row_loop(y, model[0].weight))
        assert str(tree["0.weight"].certificate) == "switched off"
