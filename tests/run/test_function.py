"""A derivative as a function, of a run that cannot be had at other points: refused in words."""

from __future__ import annotations

import pytest
import torch

from wrt import d
from wrt.errors import WrongQuery


def test_a_run_that_is_what_it_is_says_what_to_write():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(WrongQuery) as refused:
        (d(x * 2) / d(x)).function()
    assert str(refused.value).splitlines() == [
        "a run of torch cannot be had at other points",
        "  it is asked about as it is, and its plan is kept for the next one",
        "  run your function at the other point and ask again: d(y) / d(x)",
    ]
