"""A zero is followed to where it began, however far that is."""

import torch

import wrt


def test_a_zero_behind_very_many_operations_is_found() -> None:
    with wrt.record():
        x = torch.ones(3, requires_grad=True)
        h = x
        for _ in range(600):
            h = h * 1.001
        y = (h * torch.zeros(3)).sum()
    (found,) = wrt.why(y, x)
    assert (found.cause, found.certain) == ("mask", True)
    assert found.where is not None
    assert found.where.text == "y = (h * torch.zeros(3)).sum()"
