"""Questions, handles and recordings can be copied; what hangs on a live run is refused by pickle in words."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import wrt
from wrt import d, errors


def everything() -> dict[str, Any]:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    t = wrt.trace(lambda x: x**2, x)
    return {"Derivative": d(x**2) / d(x), "Differential": d(x), "Handle": t.output, "Trace": t}


@pytest.mark.parametrize("kind", ["Derivative", "Differential", "Handle", "Trace"])
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_copy_is_the_same_question(kind: str, way: Any) -> None:
    one = everything()[kind]
    assert repr(way(one)) == repr(one)


def test_a_copied_question_has_the_same_answer() -> None:
    J = everything()["Derivative"]
    assert torch.equal(copy.deepcopy(J).value, torch.diag(torch.tensor([2.0, 4.0, 6.0])))


@pytest.mark.parametrize(
    ("kind", "words"), [("Derivative", "a question"), ("Handle", "a handle"), ("Trace", "a recording")]
)
def test_a_live_run_is_not_pickled(kind: str, words: str) -> None:
    with pytest.raises(errors.CannotTravel) as refused:
        pickle.dumps(everything()[kind])
    assert str(refused.value) == (
        f"{words} of live tensors cannot be pickled\n"
        "  it hangs on the graph of a run in this process\n"
        "  pickle the answer J.value, the graph as t.save(path), or ask through a wrt.Model, which travels"
    )
