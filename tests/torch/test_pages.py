"""Memory for large tensors begins with a cache line, whatever NumPy was given by the system."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wrt._backends.torch.pages import LINE, _on_a_line, product, zeros

CPU = torch.device("cpu")
SHAPES = [(520, 520), (513, 1024), (3, 100_001), (600_007, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_large_zeros_begin_with_a_line(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    made = zeros(shape, dtype, CPU)
    assert (made.shape, made.dtype) == (shape, dtype)
    assert made.is_contiguous()
    assert made.data_ptr() % LINE == 0
    assert not made.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_large_product_begins_with_a_line(shape: tuple[int, int], dtype: torch.dtype) -> None:
    a, b = torch.randn(shape[0], 5, dtype=dtype), torch.randn(5, shape[1], dtype=dtype)
    found = product(a, b)
    assert found.is_contiguous()
    assert found.data_ptr() % LINE == 0
    truth = a.double().numpy() @ b.double().numpy()
    np.testing.assert_allclose(found.numpy(), truth, rtol=0, atol=50 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 8, 16, 24, 48, 56])
def test_wherever_memory_begins_an_array_fits_behind_the_next_line(offset: int, dtype: type) -> None:
    raw = np.zeros(1024 + 2 * LINE, np.uint8)
    start = -raw.ctypes.data % LINE + offset
    given = raw[start : start + 1024].view(dtype)
    made = _on_a_line(given, (given.size - LINE // given.itemsize,))
    made.fill_(1)
    assert made.data_ptr() % LINE == 0
    assert given.sum() == made.numel()  # inside of what was given
    assert made.storage_offset() == 0  # views that are laid over it count from the start of its storage


def test_a_product_that_is_differentiated_again_keeps_its_history() -> None:
    a = torch.randn(600, 4, requires_grad=True)
    assert product(a, torch.randn(4, 600)).requires_grad
