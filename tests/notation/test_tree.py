"""Trees of tensors on either side: the answer has the user's own structure, and an unconnected leaf spoils nothing."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from tests._snapshot import unchanged
from tests.torch._rows import agree, row_loop
from wrt import Derivative, d
from wrt.errors import NoPath, NotATensor, NotRecorded


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def test_a_module_gives_one_derivative_for_each_parameter_by_its_name() -> None:
    net = model()
    x = torch.ones(5, 3, dtype=torch.float64)
    loss = net(x).pow(2).sum()
    with unchanged(net, x, loss):
        tree = d(loss) / d(net)
        assert list(tree) == [name for name, _ in net.named_parameters()]
        for name, parameter in net.named_parameters():
            assert isinstance(tree[name], Derivative)
            agree(tree[name].value, row_loop(loss, parameter))


def test_containers_keep_their_structure() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    y = a.sum() * b
    tree = d(y) / d({"pair": Pair(a, b), "list": [a, (b,)]})
    assert isinstance(tree["pair"], Pair)
    agree(tree["pair"].first.value, row_loop(y, a))
    agree(tree["list"][1][0].value, row_loop(y, b))
    many = d({"y": y, "z": y * 2}) / d(a)
    agree(many["z"].value, 2 * row_loop(y, a))
    both = d([y, y * 2]) / d((a, b))
    agree(both[1][1].value, 2 * row_loop(y, b))
    agree((d({"y": y})["y"][0] / d(a)).value, row_loop(y, a)[0])


def test_an_unconnected_or_frozen_leaf_is_marked_and_does_not_spoil_the_rest() -> None:
    net = model()
    net[0].bias.requires_grad_(False)
    stranger = nn.Parameter(torch.zeros(2))
    loss = net(torch.ones(5, 3, dtype=torch.float64)).sum()
    tree = d(loss) / d({"net": net, "stranger": stranger})
    agree(tree["net"]["0.weight"].value, row_loop(loss, net[0].weight))
    assert tree["net"]["0.weight"].connected
    assert not tree["stranger"].connected
    assert not tree["net"]["0.bias"].connected
    assert "not connected" in repr(tree["stranger"])
    assert "not connected" in repr(tree["net"]["0.bias"])
    with pytest.raises(NoPath):
        tree["stranger"].value
    with pytest.raises(NotRecorded):
        tree["net"]["0.bias"].value


def test_mixed_precision_leaves_share_a_pass_too() -> None:
    a = torch.ones(2, requires_grad=True)
    b = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y = (a.double() * b).sum()
    tree = d(y) / d([a, b])
    assert tree[0].value.dtype == torch.float32
    assert tree[1].value.dtype == torch.float64
    assert "shared with 1 other leaf of the tree" in str(tree[0].explain())


def test_a_leaf_with_infinite_slopes_answers_for_itself() -> None:
    a = torch.tensor([0.0, 1.0], requires_grad=True)
    b = torch.ones(2, requires_grad=True)
    y = torch.sqrt(a) * b
    tree = d(y)[1] / d([a, b])
    assert tree[0].value.tolist() == [0.0, 0.5]
    assert tree[1].value.tolist() == [0.0, 1.0]


def test_higher_order_over_trees() -> None:
    net = nn.Linear(2, 1).double()
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    loss = net(x).pow(2).sum()
    mixed = d(loss) / d(net) / d(x)
    weight, bias = net.weight.detach(), net.bias.detach()
    out = (weight @ x.detach() + bias)[0]
    expected = 2 * (x.detach()[:, None] * weight + torch.eye(2, dtype=torch.float64) * out)
    agree(mixed["weight"].value, expected.reshape(1, 2, 2))
    agree(mixed["bias"].value, 2 * weight)
    turned = d(loss) / d(x) / d(net)
    agree(turned["weight"].value, expected.T.reshape(2, 1, 2))
    hessian = d(loss) / d(net) / d(net)
    agree(hessian["bias"]["bias"].value, torch.full((1, 1), 2.0, dtype=torch.float64))


@pytest.mark.parametrize("thing", [{}, [], {"a": 1}, [torch.ones(1, requires_grad=True), "b"], None, 3.0])
def test_what_holds_no_tensors_is_refused(thing: object) -> None:
    with pytest.raises(NotATensor):
        d(thing)
