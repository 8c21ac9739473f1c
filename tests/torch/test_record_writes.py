"""Elements of one tensor that was filled in place: every write is a version, and the last write is what is meant."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import wrt
from tests._snapshot import unchanged
from wrt import d
from wrt.errors import WrongIndex

T = 10
F64 = torch.float64


def tanh_chain(h, start):
    h[0] = start
    for t in range(1, T):
        h[t] = np.tanh(h[t - 1]) if isinstance(h, np.ndarray) else torch.tanh(h[t - 1])


def product_chain(h, start):
    h[0] = start
    h[1] = 2 * start
    for t in range(2, T):
        tanh = np.tanh if isinstance(h, np.ndarray) else torch.tanh
        h[t] = h[t - 1] * h[t - 2] + tanh(h[t - 1])


def central(chain, i, j, eps=1e-6):
    """d h[i] / d h[j] of a plain Python twin: every element is written once, and h[j] is nudged as it is written."""

    def run(nudge):
        class Nudged(np.ndarray):
            def __setitem__(self, at, value):
                super().__setitem__(at, value + (nudge if at == j else 0.0))

        h = np.zeros(T).view(Nudged)
        chain(h, 0.3)
        return float(h[i])

    return (run(eps) - run(-eps)) / (2 * eps)


@pytest.mark.parametrize("chain", [tanh_chain, product_chain])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_every_element_by_every_earlier_element_equals_central_differences(chain, requires_grad):
    start = torch.tensor(0.3, dtype=F64, requires_grad=requires_grad)
    with wrt.record() as t:
        h = torch.zeros(T, dtype=F64)
        chain(h, start)
    assert h.requires_grad is requires_grad
    J = (d(h) / d(h)).value
    by_name = (d(t["h"]) / d(t["h"])).value
    assert torch.equal(J, by_name)
    for i in range(T):
        for j in range(T):
            assert float(d(h)[i] / d(h)[j]) == pytest.approx(float(J[i, j]), abs=1e-14)
            assert float(J[i, j]) == pytest.approx(central(chain, i, j), rel=1e-6, abs=1e-6)


def test_tanh_recurrence_equals_the_closed_product():
    with wrt.record():
        h = torch.zeros(T, dtype=F64)
        tanh_chain(h, 0.3)
    for i in range(T):
        for j in range(i + 1):
            product = math.prod(1 - float(h[k]) ** 2 for k in range(j + 1, i + 1))
            assert float(d(h)[i] / d(h)[j]) == pytest.approx(product, abs=1e-12)


def test_second_derivative_inside_a_filled_tensor():
    with wrt.record():
        h = torch.zeros(3, dtype=F64)
        h[0] = 0.4
        h[1] = h[0] ** 3
        h[2] = h[1] ** 2
    # h2 = h0^6
    assert float(d(h)[2] / d(h)[0] / d(h)[0]) == pytest.approx(30 * 0.4**4, abs=1e-12)


def test_element_written_twice_means_the_last_write_and_at_reaches_both():
    x = torch.tensor(0.3, dtype=F64)
    with wrt.record() as t:
        h = torch.zeros(4, dtype=F64)
        h[0] = x
        h[1] = h[0] * 2
        h[0] = h[0] ** 2
        h[2] = h[0] * 3 + h[1]
    J = d(h)[2] / d(h)[0]
    assert float(J) == pytest.approx(3)
    assert "written more than once" in str(J.explain())
    first, second = d(t["h"].at(1))[0], d(t["h"].at(3))[0]
    assert float(d(h)[2] / first) == pytest.approx(3 * 2 * 0.3 + 2)
    assert float(d(h)[2] / second) == pytest.approx(3)
    assert [(w.k, w.region) for w in t["h"].writes] == [(1, "[0]"), (2, "[1]"), (3, "[0]"), (4, "[2]")]
    assert all(w.where.text.startswith("h[") for w in t["h"].writes)
    with pytest.raises(WrongIndex, match="there is no write 9"):
        t["h"].at(9)


# ---------------------------------------------------------------- every way to write


def slices(h, x):
    h[2:5] = x[:3] * 2
    h[0] = h[2] * h[3]
    h[5:] = h[:1] + h[4]


def views(h, x):
    v = h[2:6]
    v[0] = x[0] * 5
    h.view(2, 4)[1].add_(h[2])
    v.mul_(3)


def masks(h, x):
    h[:4] = x
    m = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1], dtype=torch.bool)
    h[m] = h[1] * 7
    h.masked_fill_(~m & (torch.arange(8) > 4), 2.0)


def index_puts(h, x):
    h.index_put_((torch.tensor([1, 6]),), x[:2] ** 2)
    h.index_add_(0, torch.tensor([1, 2]), x[2:] * h[6])
    h.index_fill_(0, torch.tensor([3]), 4.0)


def scatters(h, x):
    h.scatter_(0, torch.tensor([7, 2]), x[1:3].exp())
    h.scatter_add_(0, torch.tensor([2, 2]), h[7:8].expand(2))


def copies(h, x):
    h.copy_(torch.cat([x, x * 2]))
    h[3:].copy_(h[:5] ** 2)


def with_out(h, x):
    torch.mul(x, x, out=h[:4])
    torch.add(h[:4], 1.0, out=h[4:])


def augmented(h, x):
    h += 1
    h[:4] *= x
    h[1:5] -= h[0]
    h **= 2


WAYS = [slices, views, masks, index_puts, scatters, copies, with_out, augmented]


def nudged_run(way, x, k, where, eps):
    """The same program where, just after write k, one element of the memory is nudged; plain torch, no autograd."""
    h = torch.full((8,), 0.5, dtype=F64)
    count = 0

    class AfterWrites(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            nonlocal count
            before = h._version
            result = func(*args, **(kwargs or {}))
            if h._version != before:
                count += 1
                if count == k:
                    with torch._C.DisableTorchFunction():
                        h.data[where] += eps
            return result

    if k == 0:
        h[where] += eps
    with AfterWrites():
        way(h, x)
    return h


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_every_kind_of_write_equals_nudging_the_memory_right_after_it(way, requires_grad):
    if way is with_out and requires_grad:
        pytest.skip("torch itself refuses out= for tensors that require grad")
    x = torch.tensor([0.7, -0.4, 1.3, 0.2], dtype=F64, requires_grad=requires_grad)
    plain = torch.full((8,), 0.5, dtype=F64)
    way(plain, x.detach())
    with wrt.record() as t:
        h = torch.full((8,), 0.5, dtype=F64)
        way(h, x)
    assert torch.equal(h.detach(), plain)
    assert h._version == plain._version
    assert h.requires_grad is requires_grad
    J = (d(h) / d(h)).value
    writes = {w.k: w for w in t["h"].writes}
    eps = 1e-6
    owners = t._one.buffer_of(t["h"]._value.key.entry).owners()
    for j in range(8):
        k = int(owners[j])
        up = nudged_run(way, x.detach(), k, j, eps)
        down = nudged_run(way, x.detach(), k, j, -eps)
        assert torch.allclose(J[:, j], (up - down) / (2 * eps), atol=1e-6), (way.__name__, j, k, writes.get(k))


def test_input_changed_in_place_by_the_function():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=F64)

    def double_and_square(x):
        x *= 2
        return x**2

    t = wrt.trace(double_and_square, x)
    assert x.tolist() == [2.0, 4.0, 6.0], "the user's tensor changes as it would without us"
    assert (d(t.output) / d(t.inputs[0])).value.diagonal().tolist() == [4.0, 8.0, 12.0]
    before = t.inputs[0].at(0)
    assert (d(t.output) / d(before)).value.diagonal().tolist() == [8.0, 16.0, 24.0]


def test_code_that_torch_refuses_works_in_rows_columns_and_second_order_after_the_block():
    x = torch.tensor([0.5, 1.5], dtype=F64, requires_grad=True)
    with wrt.record():
        a = x.exp()
        b = a**2
        a += 1  # backward of a**2 needs the old a
        y = torch.cat([b, a])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z = x.exp()
        w = z**2
        z += 1
        torch.autograd.grad(w.sum(), x)
    e = x.detach().exp()
    truth = torch.cat([torch.diag(2 * e**2), torch.diag(e)])
    J = d(y) / d(x)
    assert torch.allclose(J.value, truth)
    assert torch.allclose((d(y)[0] / d(x)).value, truth[0])
    assert torch.allclose((d(y) / d(x)[1]).value, truth[:, 1])
    assert torch.allclose(J @ torch.ones(2, dtype=F64), truth.sum(1))
    assert float(d(y)[0] / d(x)[0] / d(x)[0]) == pytest.approx(float(4 * e[0] ** 2))


def test_user_tensors_keep_their_flags_versions_and_numbers():
    x = torch.randn(4, dtype=F64)
    model = torch.nn.Linear(4, 3).double()
    with unchanged(x, model), wrt.record() as t:
        y = model(x)
        z = x * 2
    with unchanged(x, model, y=y, z=z):
        (d(y) / d(x)).value
        (d(z) / d(x)).value
        t.graph
    assert not x.requires_grad
    assert not z.requires_grad
    assert z.is_leaf
    assert y.requires_grad


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("leave", ["detach", "data", "numpy"])
def test_memory_shared_with_a_detached_tensor_is_no_path(leave, requires_grad):
    x = torch.tensor([1.0, 2.0, 3.0], dtype=F64, requires_grad=requires_grad)
    with wrt.record():
        h = x * 2
        h[0] = 3 * h[1]
        if leave == "numpy":
            k = torch.from_numpy(h.detach().numpy())
        else:
            k = h.detach() if leave == "detach" else h.data
        loss = (k * 3).sum()
    assert not loss.requires_grad
    assert (d(loss) / d(k)).value.tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(wrt.errors.NoPath):
        (d(loss) / d(x)).value
    assert (d(h) / d(x)).value.tolist() == [[0.0, 6.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]


def test_a_view_taken_before_the_buffer_joins_a_graph_joins_it_too():
    x = torch.tensor(2.0, dtype=F64, requires_grad=True)
    with wrt.record():
        h = torch.zeros(4, dtype=F64)
        v = h[1:3]
        h[1] = x
        w = v * 5
    assert h.requires_grad
    assert v.requires_grad
    assert v._base is h
    assert (d(w) / d(x)).value.tolist() == [5.0, 0.0]


def test_a_write_without_gradients_is_a_new_beginning():
    x = torch.tensor([1.0, 2.0], dtype=F64)
    with wrt.record():
        h = x * 3
        with torch.no_grad():
            h[0] = 7.0
        y = h**2
    assert y.tolist() == [49.0, 36.0]
    assert (d(y) / d(h)).value.tolist() == [[14.0, 0.0], [0.0, 12.0]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(4).requires_grad_(),
        lambda: (torch.rand(4) * 2 - 1).requires_grad_(),
        lambda: torch.eye(4)[1].requires_grad_(),
        lambda: torch.zeros(4).index_fill_(0, torch.tensor([1]), 2.0).requires_grad_(),
        lambda: torch.zeros(3, 4).index_fill_(0, torch.tensor([1]), 2.0)[1].requires_grad_(),
    ],
    ids=["fresh", "computed", "a view", "written", "a view of what was written"],
)
def test_a_tensor_made_a_leaf_inside_the_recording_is_where_gradients_enter(make):
    with wrt.record() as t:
        x = make()
        h = x * 2
        y = (h * h).sum()
    assert torch.equal((d(y) / d(x)).value, 8 * x.detach())
    assert torch.equal((d(h)[1] / d(x)[1]).value, torch.tensor(2.0))
    assert not [finding for finding in t.why() if finding.certain and finding.cause != "mask"]


def test_a_view_written_without_gradients_keeps_its_base_a_leaf():
    with wrt.record() as t:
        table = torch.nn.Embedding(5, 3, padding_idx=0)  # zeroes a row through a view, without gradients
        y = (table(torch.tensor([1, 2, 0])) ** 2).sum()
    expected = 2 * table.weight.detach()
    expected[3:] = 0
    assert torch.equal((d(y) / d(table.weight)).value, expected)
    assert not t.why()
