"""All parameters of a model as one axis: the leaves of the tree side by side."""

import numpy as np
import pytest
import torch

import wrt
from tests.operators._problems import generator
from tests.torch._rows import row_loop
from wrt import d
from wrt.errors import NotATensor, WrongShape


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).double()


def truth_of(y: torch.Tensor, model: torch.nn.Module) -> np.ndarray:
    blocks = [row_loop(y, p).reshape(y.numel(), -1) for p in model.parameters()]
    return np.asarray(torch.cat(blocks, 1).numpy())


def test_the_leaves_stand_side_by_side(model: torch.nn.Module) -> None:
    y = model(torch.randn(5, 4, dtype=torch.float64, generator=generator(0)))
    J, split = wrt.joined(d(y) / d(model))
    truth = truth_of(y, model)
    assert J.shape == (5, 3, 51)
    np.testing.assert_allclose(J.numpy().reshape(truth.shape), truth, rtol=1e-12, atol=1e-14)
    parts = split(torch.arange(51.0))
    assert {name: tuple(part.shape) for name, part in parts.items()} == {
        name: tuple(p.shape) for name, p in model.named_parameters()
    }
    assert torch.cat([part.reshape(-1) for part in parts.values()]).tolist() == list(range(51))
    assert split(J.value)["0.weight"].shape == (5, 3, 6, 4)


def test_operators_of_all_parameters(model: torch.nn.Module) -> None:
    y = model(torch.randn(5, 4, dtype=torch.float64, generator=generator(0)))
    truth = truth_of(y, model)
    J, _ = wrt.joined(d(y) / d(model))
    np.testing.assert_allclose(J.operator() @ np.ones(51), truth.sum(1), rtol=1e-12)
    np.testing.assert_allclose(J.operator().T @ np.ones(15), truth.sum(0), rtol=1e-10)
    np.testing.assert_allclose(J.T.gram().numpy().reshape(15, 15), truth @ truth.T, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(J.singular_values(2).values, np.linalg.svd(truth)[1][:2], rtol=1e-9)


def test_a_gauss_newton_step_lowers_the_loss(model: torch.nn.Module) -> None:
    x = torch.randn(30, 4, dtype=torch.float64, generator=generator(0))
    target = torch.sin(x[:, :3])
    losses = []
    for _ in range(8):
        residual = model(x) - target
        losses.append(float(residual.detach().square().sum()))
        J, split = wrt.joined(d(residual) / d(model))
        step = split(J.solve(residual.detach(), damping=0.3).value)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p -= step[name]
    assert losses[-1] < 0.02 * losses[0]


def test_one_derivative_is_a_tree_of_one_leaf() -> None:
    x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    J, split = wrt.joined(d(x.sum(0)) / d(x))
    assert J.shape == (3, 6)
    assert split(J.value).shape == (3, 2, 3)


def test_what_cannot_be_joined_is_refused(model: torch.nn.Module) -> None:
    y = model(torch.ones(4, dtype=torch.float64))
    with pytest.raises(NotATensor, match=r"write J, split = wrt.joined\(d\(y\) / d\(model\)\)"):
        wrt.joined(y)
    a, b = d(y) / d(model[0].bias), d(y**2) / d(model[2].bias)
    with pytest.raises(WrongShape, match="different tensors"):
        wrt.joined([a, b])
    with pytest.raises(WrongShape, match="only first derivatives"):
        wrt.joined([a.T])
    _, split = wrt.joined(d(y) / d(model))
    with pytest.raises(WrongShape, match="last axis counts 51"):
        split(torch.ones(50))
