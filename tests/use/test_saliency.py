"""Saliency equals Captum's numbers on three models, and what no one else offers holds by its own law."""

import numpy as np
import pytest
import torch
from torch import nn

import wrt
from wrt import saliency
from wrt.errors import NotDifferentiable, WrongIndex

captum = pytest.importorskip("captum.attr")


class Branches(nn.Module):
    """A network with a skip connection and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.a(x)) + x
        return self.c(nn.functional.gelu(self.b(h))).softmax(-1)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(8 * 36, 5),
    )  # fmt: skip


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)), (4, 12)),
    "convolutional": (convolutional, (2, 3, 16, 16)),
    "branches": (Branches, (3, 12)),
}


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    make, shape = MODELS[request.param]
    return make(), torch.randn(shape)


OF = (slice(None), 3)


def near(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-5 * float(theirs.detach().abs().max()))


def test_gradient(case: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = case
    near(saliency.gradient(model, x, OF), captum.Saliency(model).attribute(x.clone().requires_grad_(), 3, abs=False))


def test_gradient_times_input(case: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = case
    theirs = captum.InputXGradient(model).attribute(x.clone().requires_grad_(), 3)
    near(saliency.gradient_times_input(model, x, OF), theirs)


def test_integrated_gradients(case: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = case
    theirs = captum.IntegratedGradients(model).attribute(x, torch.zeros_like(x), 3, n_steps=50)
    near(saliency.integrated_gradients(model, x, OF), theirs)


def test_integrated_gradients_add_up_to_the_difference(case: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = (one.double() for one in case)
    attributed = saliency.integrated_gradients(model, x, of=(0, 2), baseline=torch.zeros_like(x), steps=400)
    with torch.no_grad():
        difference = model(x)[0, 2] - model(torch.zeros_like(x))[0, 2]
    assert float(attributed.sum()) == pytest.approx(float(difference), rel=2e-3)
    assert not attributed[1:].any()  # other samples have no part in it


def test_smooth_grad_with_the_same_noise(case: tuple[nn.Module, torch.Tensor]) -> None:
    model, x = case
    noise = 0.1 * np.random.default_rng(0).standard_normal((7, *x.shape)).astype(np.float32)
    copies = [x + torch.from_numpy(one) for one in noise]
    engine = captum.Saliency(model)
    theirs = sum(engine.attribute(one.requires_grad_(), 3, abs=False) for one in copies) / len(copies)
    near(saliency.smooth_grad(model, x, OF, noise=noise), theirs)


def test_grad_cam() -> None:
    torch.manual_seed(0)
    model, x = convolutional(), torch.randn(2, 3, 16, 16)
    theirs = captum.LayerGradCam(model, model[3]).attribute(x, 3, relu_attributions=True)
    near(saliency.grad_cam(model, x, OF, layer="3"), theirs)


def test_a_hidden_unit_can_be_explained() -> None:
    torch.manual_seed(0)
    model, x = Branches().double(), torch.randn(2, 12, dtype=torch.float64)
    t = wrt.trace(model, x)
    expected = torch.autograd.functional.jacobian(lambda x: model.b(torch.tanh(model.a(x)) + x)[1, 7], x)
    for of in (t["b"][1, 7], lambda t: t["b"][1, 7]):
        torch.testing.assert_close(saliency.gradient(model, x, of), expected)
    whole = saliency.integrated_gradients(model, x, t["b"][1, 7], steps=60)
    difference = (model.b(torch.tanh(model.a(x)) + x) - model.b(torch.tanh(model.a(x * 0))))[1, 7]
    assert float(whole.sum()) == pytest.approx(difference.item(), rel=1e-6)


def test_token_ids_are_refused_in_words() -> None:
    with pytest.raises(NotDifferentiable, match="has no derivative"):
        saliency.gradient(nn.Embedding(4, 2), torch.tensor([1]), of=(0, 0))


def test_nothing_of_the_users_changes(case: tuple[nn.Module, torch.Tensor], unchanged: object) -> None:
    model, x = case
    with unchanged(model, x):  # type: ignore[operator]
        saliency.integrated_gradients(model, x, OF, steps=4)
        saliency.smooth_grad(model, x, OF, samples=3)
        saliency.gradient(model, x, OF)


def test_a_class_that_is_not_there_is_refused_in_words() -> None:
    model, x = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), torch.randn(2, 3, 4)
    for method in (saliency.gradient, saliency.gradient_times_input, saliency.integrated_gradients, saliency.smooth_grad):
        for of in (4, (slice(None), 9)):  # a class alone would be a sample
            with pytest.raises(WrongIndex) as raised:
                method(model, x, of)
            assert raised.value.what == f"of={of!r} is no index of the output"
            assert raised.value.where == "its shape is (2, 5), samples first where the model takes a batch"
