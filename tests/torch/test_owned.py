"""An answer lives in memory of its own, also where a backward writes all its results to one place."""

import pytest
import torch

from wrt import d

CUDA = pytest.param("cuda", marks=[
    pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")])  # fmt: skip


class OnePlace(torch.autograd.Function):
    """What `torch.cuda.make_graphed_callables` makes of a module, in small: its backward replays into the same tensor."""

    place = torch.zeros(3, dtype=torch.float64)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2 + x.sum()

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        OnePlace.place.copy_(2 * x * cotangent + cotangent.sum())
        return OnePlace.place.detach()


def test_rows_from_one_place_stay_what_they_were():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    y = OnePlace.apply(x)
    rows = [(d(y)[i] / d(x)).value for i in range(3)]
    expected = torch.tensor([[3.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 7.0]], dtype=torch.float64)
    assert torch.equal(torch.stack(rows), expected)
    J = d(y) / d(x)
    assert torch.equal(J.value, expected)
    assert J.certificate
    assert torch.equal(torch.ones(3, dtype=torch.float64) @ J, expected.sum(0))


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_two_answers_of_a_view_share_nothing(device):
    x = torch.arange(6.0, device=device, requires_grad=True)
    y = x.view(2, 3)
    first, second = (d(y)[1, 2] / d(x)).value, (d(y)[1, 2] / d(x)).value
    first.zero_()
    assert second.tolist() == [0, 0, 0, 0, 0, 1]
    assert (d(y)[1, 2] / d(x)).value.tolist() == [0, 0, 0, 0, 0, 1]


def test_two_summands_have_gradients_of_their_own():
    a, b = (torch.zeros(3, requires_grad=True) for _ in range(2))
    found = d(a + b)[1] / d([a, b])
    found[0].value.zero_()
    assert found[1].value.tolist() == [0, 1, 0]
