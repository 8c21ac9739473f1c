"""What backward needs is copied before it is overwritten; what nobody saw overwritten is refused, never used."""

import pytest
import torch

import wrt
from wrt import d


def float64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def test_a_saved_result_is_copied_before_it_is_overwritten():
    x = float64(0.5, -1.0).requires_grad_()
    with wrt.record():
        h = torch.sigmoid(x)
        h += 1
        y = h.sum()
    s = torch.sigmoid(x.detach())
    assert torch.allclose((d(y) / d(x)).value, s * (1 - s), atol=1e-14, rtol=0)


def test_saved_tensors_of_nodes_inside_one_call_are_copied_too():
    x, w = float64(0.5, 2.0).requires_grad_(), float64(3.0, 4.0)
    with wrt.record():
        y = torch.nn.functional.mse_loss(x * w, float64(1.0, 1.0), reduction="sum")  # saves more than w
        w.zero_()
    w = float64(3.0, 4.0)
    assert torch.allclose((d(y) / d(x)).value, 2 * (x.detach() * w - 1) * w, atol=1e-12, rtol=0)


def test_what_a_write_into_a_view_saves_is_copied_when_overwritten_later():
    x, w = float64(0.5, 2.0).requires_grad_(), float64(3.0, 4.0).requires_grad_()
    with wrt.record():
        h = torch.ones(2, 2, dtype=torch.float64)
        v = w * 1
        h[0].mul_(x)
        h[0].mul_(v)
        v.zero_()
        y = h.sum()
    assert torch.equal((d(y) / d(x)).value, w.detach())
    assert torch.equal((d(y) / d(w)).value, x.detach())


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_what_a_write_saves_of_the_memory_it_writes_is_copied(required, later):
    x = float64(0.5, 2.0, 3.0, -1.0).requires_grad_(required)
    with wrt.record():
        h = x * 1
        h.view(2, 2)[0].mul_(h[3])  # needs h[3], which lies in the memory that is written
        if later:
            h[2:].add_(x[:2] * h[0])  # and so does this, of h[0]
    a, b, _, e = x.tolist()
    expected = torch.eye(4, dtype=torch.float64)
    expected[0, 0] = expected[1, 1] = e
    expected[0, 3], expected[1, 3] = a, b
    if later:  # h[2] = x2 + a * (a e), h[3] = e + b * (a e)
        expected[2] += float64(2 * a * e, 0, 0, a * a)
        expected[3] += float64(b * e, a * e, 0, a * b)
    assert torch.allclose((d(h) / d(x)).value, expected, atol=1e-14, rtol=0)


def test_why_tells_that_torch_alone_would_refuse_such_a_write():
    x = float64(0.5, 2.0).requires_grad_()
    with wrt.record():
        h = x * 1
        h[:1].mul_(h[1])
        y = h.sum()
    assert [finding.cause for finding in wrt.why(y, x)] == ["inplace_saved_tensor"]


def test_an_index_may_be_changed_after_its_use():
    x, k = float64(0.5, 2.0, 3.0).requires_grad_(), torch.tensor([0, 2])
    with wrt.record():
        y = (x[k] ** 2).sum()
        k += 0
        k.fill_(1)
    assert torch.equal((d(y) / d(x)).value, float64(1.0, 0.0, 6.0))


@pytest.mark.parametrize("inside", [False, True], ids=["nothing was written before", "after a write in the recording"])
def test_a_write_after_the_recording_is_refused_not_used(inside):
    x, w = float64(0.5, 2.0).requires_grad_(), float64(3.0, 4.0)
    with wrt.record():
        y = (x * w).sum()
        if inside:
            torch.zeros(2).add_(1)
    w.mul_(10)
    with pytest.raises(wrt.errors.WrtError, match="a tensor that backward needs was changed in place"):
        (d(y) / d(x)).value


def test_hooks_of_the_users_own_stay_in_charge():
    packed = []
    x = float64(0.5, 2.0).requires_grad_()
    with wrt.record(), torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t.clone(), lambda t: t):
        h = x * x
        k = torch.ones(2)
        k += 1
        y = h.sum()
    count = len(packed)
    assert count
    assert torch.equal((d(y) / d(x)).value, 2 * x.detach())
    assert len(packed) == count
