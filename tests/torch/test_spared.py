"""A push through convolutions without the gradient of their weights: the same numbers, and fewer convolutions."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from wrt import d
from wrt._backends.torch.sweep import DOUBLE_BACKWARD, ONE_BY_ONE


def weights(*shape):
    made = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))
    return made.requires_grad_()


MAPS = {
    "plain": lambda x: F.conv2d(torch.tanh(F.conv2d(x, weights(4, 2, 3, 3), padding=1)), weights(3, 4, 3, 3)),
    "strided and dilated": lambda x: F.conv2d(x, weights(4, 2, 3, 3), stride=2, dilation=2, padding=1).sin(),
    "in groups": lambda x: F.conv2d(x, weights(4, 1, 3, 3), weights(4), groups=2).sin(),
    "transposed": lambda x: F.conv_transpose2d(x, weights(2, 3, 3, 3), stride=2).sin(),
    "one axis": lambda x: F.conv1d(x[0], weights(3, 8, 3)).sin(),
    "weights made of x": lambda x: F.conv2d(x, weights(4, 2, 3, 3) * x.mean()).sin(),
    "the same weights twice": lambda x: F.conv2d(F.conv2d(x, w := weights(2, 2, 3, 3)).tanh(), w),
    "x itself as the weights": lambda x: F.conv2d(weights(1, 2, 12, 12), x[:, :, :3, :3]).sin(),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_batch_of_pushes_equals_pushes_one_by_one(name):
    x = torch.randn(1, 2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    J = d(MAPS[name](x)) / d(x)
    linear = J.ask.y.record.linear(J.ask.y, J.ask.x.values)
    tangents = torch.randn(5, *x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batch = linear.push([tangents], DOUBLE_BACKWARD)
    alone = linear.push([tangents], f"{DOUBLE_BACKWARD}, {ONE_BY_ONE}")
    torch.testing.assert_close(batch, alone, rtol=1e-13, atol=1e-13)


def test_a_convolution_is_pushed_by_one_convolution():
    class Counted(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += func is torch.ops.aten.convolution.default and args[0].device.type != "meta"
            return func(*args, **(kwargs or {}))

    x = torch.randn(1, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    J = d(MAPS["plain"](x)) / d(x)
    linear = J.ask.y.record.linear(J.ask.y, J.ask.x.values)
    linear.start_push(torch.zeros(1, *J.ask.y.shape, dtype=torch.float64))
    with Counted() as counted:
        linear.push([torch.randn(5, *x.shape, dtype=torch.float64)], DOUBLE_BACKWARD)
    assert counted.count == 2


@pytest.mark.parametrize("name", MAPS)
def test_a_single_column_is_that_of_the_row_loop(name):
    x = torch.randn(1, 2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = MAPS[name](x)
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0][0, 1, 2, 3] for one in y.reshape(-1)]
    column = (d(y) / d(x)[0, 1, 2, 3]).value
    torch.testing.assert_close(column.reshape(-1), torch.stack(rows), rtol=1e-12, atol=1e-12)
