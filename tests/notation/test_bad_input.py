"""What cannot be differentiated is refused in three lines, never by an error from inside."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import wrt
from wrt import d, errors


class Hostile:
    """An object that raises whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("hostile")


def eight_bits() -> Any:
    x = torch.ones(3, requires_grad=True)
    return d(x.to(torch.float8_e4m3fn)) / d(x)


def without_numbers() -> Any:
    return d(torch.ones(3, device="meta", requires_grad=True))


def inside_a_transform() -> Any:
    return torch.func.grad(lambda x: (d(x**2) / d(x)).value.sum())(torch.ones(3))


def in_a_batch() -> Any:
    return torch.func.vmap(lambda x: (d(x**2) / d(x)).value)(torch.ones(2, 3))


def token_ids() -> Any:
    words = torch.nn.Embedding(10, 4)
    t = wrt.trace(lambda ids: words(ids).sum(), torch.tensor([1, 2]))
    return d(t.output) / d(t.inputs[0])


def unknown_option() -> Any:
    with wrt.options(unknown=1):
        pass


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (eight_bits, errors.NotDifferentiable, "float8_e4m3fn"),
        (without_numbers, errors.NotRecorded, "meta device"),
        (inside_a_transform, errors.NotRecorded, "torch.func"),
        (in_a_batch, errors.NotRecorded, "torch.func"),
        (token_ids, errors.NotDifferentiable, "embedding"),
        (unknown_option, errors.WrongQuery, "certify, memory, run_again, way"),
        (lambda: d(Hostile()), errors.NotATensor, "Hostile"),
        (lambda: d(torch.ones(2, requires_grad=True)) / d([Hostile()]), errors.NotATensor, "list"),
        (lambda: wrt.trace(3, torch.ones(2)), errors.NotATensor, "cannot be called"),
    ],
)
def test_it_is_refused_in_three_lines(ask: Callable[[], Any], error: type[errors.WrtError], words: str) -> None:
    with pytest.raises(error) as refused:
        ask()
    assert words in str(refused.value)
    assert str(refused.value).count("\n") == 2


def test_a_handle_gives_its_numbers_like_a_tensor() -> None:
    t = wrt.trace(lambda x: x * x, torch.tensor([2.0, 3.0]))
    assert t.output.numpy().tolist() == [4.0, 9.0]
    assert np.asarray(t.output).tolist() == [4.0, 9.0]
    assert float(t.output[1]) == 9.0
    with pytest.raises(errors.WrongShape, match="not one number"):
        float(t.output)
