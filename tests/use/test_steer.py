"""Steering moves what it is asked to move, or says that it did not; within its ball, and leaving the rest in peace."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import wrt
from wrt.errors import WrongQuery


class Net(nn.Module):
    """The usual example: an image of 28 x 28, two hidden layers, a unit of the second to be raised."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 64), nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.fc1(x.flatten(1)))
        return self.fc3(torch.relu(self.fc2(h)))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def image() -> torch.Tensor:
    return torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def unit(net: Net, x: torch.Tensor) -> float:
    """The unit, computed beside wrt."""
    return net.fc2(torch.relu(net.fc1(x.flatten(1))))[0, 10].item()


def test_one_signed_step_raises_a_hidden_unit(net: Net, image: torch.Tensor) -> None:
    t = wrt.trace(net, image)
    moved = wrt.steer(net, image, toward=t["fc2"][0, 10], eps=0.01)
    assert moved
    assert (moved.before, moved.after) == pytest.approx((unit(net, image), unit(net, moved.input)), rel=1e-5)
    assert unit(net, moved.input) > unit(net, image)
    assert (moved.input - image).abs().max() <= 0.01 + 1e-6
    slope = torch.autograd.functional.jacobian(lambda x: net.fc2(torch.relu(net.fc1(x.flatten(1))))[0, 10], image)
    torch.testing.assert_close(moved.input, image + 0.01 * slope.sign(), rtol=0, atol=1e-7)


def test_a_gradient_of_a_distance_lowers_it_which_is_the_usual_mistake(net: Net, image: torch.Tensor) -> None:
    x = image.clone().requires_grad_()
    (net.fc2(torch.relu(net.fc1(x.flatten(1))))[0, 10] - 100.0).pow(2).backward()
    assert unit(net, image + 0.01 * x.grad.sign()) < unit(net, image)


@pytest.mark.parametrize("norm", ["inf", 2, 1])
@pytest.mark.parametrize("to", ["up", "down"])
def test_iterations_stay_in_the_ball_and_the_bounds(net: Net, image: torch.Tensor, norm: object, to: str) -> None:
    t = wrt.trace(net, image)
    moved = wrt.steer(net, image, toward=t["fc2"][0, 10], to=to, eps=0.5, norm=norm, steps=8, bounds=(0, 1))
    change = (moved.input - image).flatten()
    assert moved
    assert (moved.after > moved.before) == (to == "up")
    assert float(change.norm(float("inf") if norm == "inf" else norm)) <= 0.5 * (1 + 1e-5)
    assert moved.input.min() >= 0
    assert moved.input.max() <= 1
    assert list(moved.path) == sorted(moved.path, reverse=to == "down")


def test_to_a_value(net: Net, image: torch.Tensor) -> None:
    t = wrt.trace(net, image)
    goal = unit(net, image) + 0.05
    moved = wrt.steer(net, image, toward=t["fc2"][0, 10], to=goal, eps=0.1, steps=20)
    assert unit(net, moved.input) == pytest.approx(goal, abs=1e-4)


def test_a_value_out_of_reach_is_said(net: Net, image: torch.Tensor) -> None:
    t = wrt.trace(net, image)
    moved = wrt.steer(net, image, toward=t["fc2"][0, 10], to=1e6, eps=1e-3, steps=5)
    assert moved
    assert "the value itself was not reached" in repr(moved)


def test_what_is_to_stay_moves_less(net: Net, image: torch.Tensor) -> None:
    t = wrt.trace(net, image)
    free = wrt.steer(net, image, toward=t["fc2"][0, 10], eps=0.1, norm=2, steps=10)
    held = wrt.steer(net, image, toward=t["fc2"][0, 10], eps=0.1, norm=2, steps=10, still=[t["fc2"][0, :5]])
    others = lambda x: net.fc2(torch.relu(net.fc1(x.flatten(1))))[0, :5]
    moved = {id(one): (others(one.input) - others(image)).abs().max().item() for one in (free, held)}
    assert held
    assert moved[id(held)] < 0.25 * moved[id(free)]
    assert held.others == pytest.approx(moved[id(held)], abs=1e-6)


def test_weights_of_several_values(net: Net, image: torch.Tensor) -> None:
    t = wrt.trace(net, image)
    moved = wrt.steer(net, image, toward={t["fc2"][0, 10]: 1.0, t["fc2"][0, 3]: -1.0}, eps=0.01)
    assert moved
    weights = torch.eye(32)[10] - torch.eye(32)[3]
    gap = lambda x: (net.fc2(torch.relu(net.fc1(x.flatten(1)))) @ weights)[0].item()
    assert gap(moved.input) > gap(image)


def test_a_dead_unit_cannot_be_moved_and_it_says_so() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    with torch.no_grad():
        model[0].bias.fill_(-100)
    moved = wrt.steer(model, torch.ones(1, 3), toward=(0, 1), steps=5)
    assert not moved
    assert "did NOT move as asked" in repr(moved)
    assert "gradient is zero" in repr(moved)


@pytest.mark.parametrize("seed", range(50))
def test_random_networks_move_as_asked_or_it_is_said(seed: int) -> None:
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    sizes = [int(n) for n in random.integers(3, 12, size=random.integers(2, 5))]
    kinds = [nn.Tanh, nn.ReLU, nn.Sigmoid, nn.GELU]
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), kinds[int(random.integers(4))]()]
    model = nn.Sequential(*layers).double()
    x = torch.randn(2, sizes[0], dtype=torch.float64)
    place = int(random.integers(len(layers)))
    which = (int(random.integers(2)), int(random.integers(model[: place + 1](x).shape[1])))
    to = ["up", "down"][seed % 2]
    t = wrt.trace(model, x)
    moved = wrt.steer(model, x, toward=t[str(place)][which], to=to, eps=0.05, steps=1 + 9 * (seed % 3 > 0))
    before, after = (float(model[: place + 1](one)[which]) for one in (x, moved.input))
    truly = after > before if to == "up" else after < before
    assert bool(moved) == truly
    assert truly or "did NOT move as asked" in repr(moved)


def test_nothing_of_the_users_changes(net: Net, image: torch.Tensor, unchanged: object) -> None:
    with unchanged(net, image):  # type: ignore[operator]
        wrt.steer(net, image, toward="fc2", steps=2)


def test_a_wrong_norm_and_wrong_bounds_are_refused(net: Net, image: torch.Tensor) -> None:
    with pytest.raises(WrongQuery):
        wrt.steer(net, image, toward="fc2", norm=3)  # type: ignore[arg-type]
    with pytest.raises(WrongQuery):
        wrt.steer(net, image, toward="fc2", bounds=(0.9, 1.0))
