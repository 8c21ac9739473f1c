"""Gradient sizes equal those of plain backwards; what vanished, died or broke is named."""

import matplotlib
import numpy as np
import pytest
import torch
from torch import nn

import wrt
from wrt.errors import WrongShape

matplotlib.use("Agg")


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 3)
    )


@pytest.fixture
def data() -> torch.Tensor:
    return torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_parameters_and_feature_maps_equal_plain_backward(model: nn.Sequential, data: torch.Tensor) -> None:
    t = wrt.trace(lambda x: model(x).square().mean(), data)
    seen = wrt.flow(t.output, model)
    kept: dict[str, torch.Tensor] = {}
    h = data
    for name, layer in model.named_children():
        h = layer(h)
        h.retain_grad()
        kept[name] = h
    h.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert seen[name].max == pytest.approx(float(parameter.grad.abs().max()), rel=1e-5)
        assert seen[name].mean == pytest.approx(float(parameter.grad.abs().mean()), rel=1e-5)
    for name, value in kept.items():
        np.testing.assert_allclose(seen.maps(name), value.grad, rtol=1e-4, atol=1e-8)
        assert seen[name].zeros == pytest.approx(float((value.grad == 0).float().mean()))


def test_a_live_loss_shows_parameters(model: nn.Sequential, data: torch.Tensor) -> None:
    seen = wrt.flow(model(data).sum(), model)
    assert [layer.name for layer in seen] == [name for name, _ in model.named_parameters()]


def test_dead_units_are_counted(model: nn.Sequential, data: torch.Tensor) -> None:
    with torch.no_grad():
        model[0].bias[1] = -1e3
        model[0].bias[3] = -1e3
    t = wrt.trace(lambda x: model(x).square().mean(), data)
    assert wrt.flow(t.output, model).dead["0"] == 2


def test_vanishing_and_broken_spots_are_named() -> None:
    layers = [layer for _ in range(12) for layer in (nn.Linear(8, 8), nn.Sigmoid())]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for layer in model[::2]:
            layer.weight.mul_(0.1)
    seen = wrt.flow(model(torch.ones(1, 8)).sum(), model)
    assert "0.weight" in seen.vanishing
    assert "22.weight" not in seen.vanishing
    w = nn.Linear(2, 1)
    broken = wrt.flow((w(torch.ones(1, 2)) * float("inf")).sum(), w)
    assert broken.exploding == ["weight", "bias"]


def test_a_parameter_without_gradient_is_shown_as_such() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "idle": nn.Linear(2, 1)})
    seen = wrt.flow(model["used"](torch.ones(1, 2)).sum(), model)
    assert seen["idle.weight"].spot == "no gradient"


def test_to_dict_is_flat_numbers(model: nn.Sequential, data: torch.Tensor) -> None:
    told = wrt.flow(model(data).sum(), model).to_dict()
    assert set(map(type, told.values())) == {float}
    assert "flow/0.weight/max" in told


def test_a_vector_is_no_loss(model: nn.Sequential, data: torch.Tensor) -> None:
    with pytest.raises(WrongShape, match="not one number"):
        wrt.flow(model(data), model)


def test_pictures_take_and_return_axes(model: nn.Sequential, data: torch.Tensor) -> None:
    from matplotlib import pyplot

    t = wrt.trace(lambda x: model(x).square().mean(), data)
    seen = wrt.flow(t.output, model)
    _, ax = pyplot.subplots()
    assert seen.plot(ax=ax) is ax
    assert len(seen.plot_maps("0").axes) == 4 + 1
    pyplot.close("all")


def test_watch_looks_every_so_often_and_leaves_no_hook(model: nn.Sequential, data: torch.Tensor) -> None:
    logged: list[dict[str, float]] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with wrt.watch(model, every=3, log=logged.append) as w:
        for _ in range(7):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
    assert [step for step, _ in w.history] == [0, 3, 6]
    assert len(logged) == 3
    assert w.latest["0.weight"].max == pytest.approx(float(model[0].weight.grad.abs().max()))
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def test_watch_by_hand_takes_trees_and_losses(model: nn.Sequential, data: torch.Tensor) -> None:
    with wrt.watch(None, every=2) as w:
        for _ in range(4):
            w({"a": np.ones(3), "b": [np.zeros(2)]})
    assert len(w.history) == 2
    assert w.latest["b[0]"].spot == "zero"
