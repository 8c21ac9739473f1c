"""A convolution is pulled by the one with its kernel turned round: the same as torch's own backward."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.torch._rows import row_loop
from wrt import d
from wrt._backends.torch import turned

FORWARD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CASES = [
    # dimensions, channels in and out, groups, kernel, padding, dilation
    (1, 1, 1, 1, (5,), (2,), (1,)),
    (1, 2, 3, 1, (4,), (0,), (2,)),
    (1, 4, 6, 2, (3,), (2,), (1,)),
    (2, 1, 1, 1, (3, 3), (1, 1), (1, 1)),
    (2, 3, 2, 1, (3, 2), (1, 0), (2, 1)),
    (2, 4, 4, 4, (3, 3), (2, 1), (1, 2)),
    (2, 2, 4, 2, (1, 1), (0, 0), (1, 1)),
    (3, 2, 2, 1, (2, 3, 1), (1, 1, 0), (1, 1, 1)),
]


@pytest.mark.parametrize("case", CASES)
def test_a_turned_kernel_pulls_what_torch_does(case):
    dimensions, inner, outer, groups, kernel, padding, dilation = case
    g = torch.Generator().manual_seed(1)
    x = torch.randn(2, inner, *range(8, 8 + dimensions), dtype=torch.float64, generator=g).requires_grad_()
    weight = torch.randn(outer, inner // groups, *kernel, dtype=torch.float64, generator=g)
    y = FORWARD[dimensions](x, weight, None, 1, padding, dilation, groups)
    seed = torch.randn(y.shape, dtype=torch.float64, generator=g)
    (truth,) = torch.autograd.grad(y, x, seed)
    found = turned.pull(seed, weight, padding, dilation, groups)
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-12)


def test_padding_beyond_the_kernel_is_left_to_torch():
    assert turned.pull(torch.randn(1, 1, 9), torch.randn(1, 1, 2), (2,), (1,), 1) is None
    x = torch.randn(1, 1, 70, dtype=torch.float64, requires_grad=True)
    y = F.conv1d(torch.sin(x), torch.tensor([[[2.0, 1.0]]], dtype=torch.float64), padding=2)
    torch.testing.assert_close((d(y) / d(x)).value, row_loop(y, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("case", CASES[:-1])
def test_whole_jacobians_of_convolutions(case, stride):
    dimensions, inner, outer, groups, kernel, padding, dilation = case
    g = torch.Generator().manual_seed(1)
    x = torch.randn(1, inner, *[12 if dimensions == 1 else 8] * dimensions, dtype=torch.float64, generator=g)
    weight = torch.randn(outer, inner // groups, *kernel, dtype=torch.float64, generator=g)
    x.requires_grad_()
    y = FORWARD[dimensions](torch.tanh(x), weight, None, stride, padding, dilation, groups).flatten().cumsum(0)
    torch.testing.assert_close((d(y) / d(x)).value, row_loop(y, x), rtol=1e-11, atol=1e-11)
