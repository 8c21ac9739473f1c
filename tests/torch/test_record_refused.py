"""Operations that torch refuses on tensors with a history run, inside a recording, as they do outside of it."""

import torch

import wrt


def test_a_sum_of_floats_as_whole_numbers_is_recorded() -> None:
    counts = torch.tensor([1.0, 2.0, 3.0])
    with wrt.record():
        offsets = torch.cumsum(counts, 0, dtype=torch.int32)
    assert offsets.tolist() == [1, 3, 6]
