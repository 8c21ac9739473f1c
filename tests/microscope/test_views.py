"""Which picture is chosen for which shape."""

import pytest
import torch

import wrt
from wrt._microscope.graph import View, view
from wrt._microscope.model import Microscope

CHOSEN = [
    ((), {}, View("scalar")),
    ((1, 1), {}, View("scalar")),
    ((10,), {}, View("series", columns=0)),
    ((1, 10), {}, View("series", 0, 1)),
    ((6, 10), {}, View("matrix", 0, 1)),
    ((3, 32, 32), {"given": True}, View("image", 1, 2, 0)),
    ((1, 3, 32, 32), {"given": True}, View("image", 2, 3, 1, 0)),
    ((1, 32, 32, 3), {"given": True, "last": True}, View("image", 1, 2, 3, 0)),
    ((32, 32, 3), {"given": True}, View("image", 0, 1, 2)),
    ((1, 64, 16, 16), {}, View("planes", 2, 3, 1, 0)),
    ((1, 16, 16, 64), {}, View("planes", 1, 2, 3, 0)),
    ((1, 16, 20, 24), {}, View("planes", 2, 3, 1, 0)),
    ((1, 16, 20, 24), {"last": True}, View("planes", 1, 2, 3, 0)),
    ((1, 7, 5), {}, View("matrix", 1, 2, 0)),
    ((12,), {"tokens": 12, "integer": True}, View("tokens", columns=0, tokens=0)),
    ((1, 12), {"tokens": 12, "integer": True}, View("tokens", columns=1, batch=0, tokens=1)),
    ((1, 12, 64), {"tokens": 12}, View("tokens", 1, 2, None, 0, 1)),
    ((12, 64), {"tokens": 12}, View("tokens", 0, 1, None, None, 0)),
    ((1, 4, 12, 12), {"tokens": 12}, View("planes", 2, 3, 1, 0, 2)),
    ((12, 12), {"tokens": 12}, View("matrix", 0, 1, None, None, 0)),
    ((1, 4, 12, 8), {"tokens": 12}, View("tokens", 2, 3, 1, 0, 2)),
]


@pytest.mark.parametrize(("shape", "more", "want"), CHOSEN)
def test_the_picture_fits_the_shape(shape: tuple[int, ...], more: dict[str, object], want: View) -> None:
    assert view(shape, **more) == want  # type: ignore[arg-type]


def test_tokens_that_went_in_label_what_follows_from_them() -> None:
    embedding = torch.nn.Embedding(20, 4)

    def f(ids: torch.Tensor) -> torch.Tensor:
        h = embedding(ids)
        return torch.cumsum(h, dim=1)

    t = wrt.trace(f, torch.tensor([[3, 1, 4, 1, 5]]), values=True)
    plain, worded = Microscope(t), Microscope(t, tokens=["the", "cat", "<b>", "sat", "."])
    assert plain.ask("hello", {})["default"]["source"] == "h"
    assert plain.ask("tensor", {"name": "ids"})["tokens"] == ["3", "1", "4", "1", "5"]
    told = worded.ask("tensor", {"name": "h"})
    assert (told["view"], told["axes"]["tokens"], told["tokens"][2]) == ("tokens", 1, "<b>")
