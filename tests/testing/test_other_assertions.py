"""Batches, single pairs, parameters and backwards: what fails names its place, what is healthy passes."""

import pytest
import torch
from torch import nn

import wrt
from tests.testing import models
from wrt import d
from wrt.errors import UnknownName
from wrt.testing import (
    Failed,
    Undecided,
    assert_all_parameters_learn,
    assert_backward_correct,
    assert_batch_independent,
    assert_depends,
    assert_independent,
)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


# ---- batches ----


def test_batch_norm_in_train_mode_mixes_and_the_message_says_so() -> None:
    model = models.Normalized()
    with pytest.raises(Failed) as caught:
        assert_batch_independent(model, torch.randn(6, 4))
    assert caught.value.output[0] != caught.value.input[0]
    assert "first seen in norm" in str(caught.value)
    assert "norm is a BatchNorm1d in train mode, which mixes the batch by its design" in str(caught.value)


def test_running_statistics_are_put_back() -> None:
    model = models.Normalized()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with pytest.raises(Failed):
        assert_batch_independent(model, torch.randn(6, 4))
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_batch_norm_in_eval_mode_passes() -> None:
    assert "eval mode" in assert_batch_independent(models.Normalized().eval(), torch.randn(6, 4)).claim


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_samples_of_many_that_touch_are_found(dtype: torch.dtype) -> None:
    with pytest.raises(Failed) as caught:
        assert_batch_independent(models.neighbors, torch.randn(8, 3, dtype=dtype))
    assert (caught.value.output[0], caught.value.input[0]) == (2, 5)
    assert caught.value.value == pytest.approx(1e-6, rel=1e-2)


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(4, 2),
        nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)),
        nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.Flatten()),
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3)),
        models.Normalized().eval(),
        lambda x: x.softmax(1),
        lambda x: x / x.norm(dim=1, keepdim=True),
        lambda x: torch.einsum("bi,bj->bij", x, x),
    ],
)
def test_a_healthy_batch_passes(model: object) -> None:
    assert assert_batch_independent(model, torch.randn(5, 4))


def test_a_batch_of_one_cannot_tell() -> None:
    with pytest.raises(Undecided, match="a batch of one sample"):
        assert_batch_independent(nn.Linear(4, 2), torch.randn(1, 4))


def test_every_pair_costs_few_passes() -> None:
    assert assert_batch_independent(nn.Linear(4, 2), torch.randn(64, 4), points=1).passes <= 2 * 6 + 6


# ---- single pairs ----


def test_independence_of_elements_and_its_failure_with_the_pair() -> None:
    x = torch.randn(4, 5, requires_grad=True)
    y = x.cumsum(1)
    assert assert_independent(d(y)[:, :2], d(x)[:, 2:])
    with pytest.raises(Failed) as caught:
        assert_independent(d(y)[:, :3], d(x)[:, 2:])
    b, i = caught.value.output
    assert (i, caught.value.input) == (2, (b, 0))
    assert caught.value.value == 1.0


def test_no_path_is_a_structural_proof() -> None:
    t = wrt.trace(lambda x: (x[0] * 2, x[1] * 3), torch.ones(2))
    u = wrt.trace(lambda x, z: x * 2, torch.ones(2), torch.ones(2))
    assert "structurally" in assert_independent(u.output, u.inputs[1]).by
    assert t


def test_depends_fails_for_a_zero_and_for_a_cut() -> None:
    x = torch.randn(3, requires_grad=True)
    assert assert_depends(x.exp(), x)
    with pytest.raises(Failed, match="every derivative is 0"):
        assert_depends((-(x.abs()) - 1).relu(), x)
    with pytest.raises(Failed, match="does not depend on"):
        assert_depends(x.detach().exp(), x)


def test_a_nan_is_undecided_not_a_leak() -> None:
    x = torch.zeros(2, requires_grad=True)
    y = (x.sqrt() * 0).sum()
    with pytest.raises(Undecided, match="not finite"):
        assert_independent(y, x)


# ---- parameters ----


def test_a_parameter_that_the_loss_does_not_use_is_named() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "forgotten": nn.Linear(3, 2)})
    loss = model["used"](torch.ones(1, 3)).sum()
    with pytest.raises(Failed, match=r"forgotten.weight does not learn"):
        assert_all_parameters_learn(loss, model)
    assert assert_all_parameters_learn(loss, model, frozen=["forgotten.*"]).notes == ("2 were named frozen",)


def test_a_dead_layer_is_named() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].bias.fill_(-100)
    with pytest.raises(Failed, match=r"0.weight does not learn: its gradient is zero everywhere"):
        assert_all_parameters_learn(model(torch.ones(1, 3)).sum(), model)


def test_a_parameter_behind_a_detach_is_named() -> None:
    first, last = nn.Linear(3, 2), nn.Linear(2, 1)
    loss = last(first(torch.ones(1, 3)).detach()).sum()
    with pytest.raises(Failed, match=r"0.weight does not learn"):
        assert_all_parameters_learn(loss, nn.Sequential(first, last))


# ---- backwards ----


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        factor = torch.full_like(x, 3.0)
        factor[1] = 2.5  # wrong for one element
        return g * factor * x**2


def test_a_wrong_backward_is_found_at_its_element() -> None:
    x = torch.tensor([0.5, 1.5, -1.0, 2.0], dtype=torch.float64)
    with pytest.raises(Failed) as caught:
        assert_backward_correct(lambda x: Wrong.apply(x), x)
    assert caught.value.input == (1,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("f", [torch.sin, torch.softmax, nn.Linear(6, 4), models.Normalized().eval()])
def test_a_right_backward_passes(f: object, dtype: torch.dtype) -> None:
    more = (1,) if f is torch.softmax else ()
    size = 4 if isinstance(f, models.Normalized) else 6
    f = f.to(dtype) if isinstance(f, nn.Module) else f
    assert assert_backward_correct(f, torch.randn(3, size, dtype=dtype), *more)


def test_a_difference_of_running_sums_is_independent_up_to_roundoff() -> None:
    x = torch.randn(40, requires_grad=True)
    total = torch.cat([torch.zeros(1), x.cumsum(0)])
    windows = total[3:] - total[:-3]  # every sum of three neighbors, by way of all that came before
    assert assert_independent(d(windows)[20:], d(x)[:19])
    with pytest.raises(Failed):
        assert_independent(d(windows)[20:], d(x)[:21])


@pytest.mark.parametrize("seed", range(5))
def test_decisions_over_the_batch_are_found(seed: int) -> None:
    torch.manual_seed(seed)
    for mixes in (
        lambda x: x / x.detach().abs().max(),
        lambda x: x * x.sum().sign(),
        lambda x: x - x.detach().median(0).values,
        lambda x: x + (x[:, :1] == x[:, :1].max()),
    ):
        with pytest.raises(Failed, match="when only other samples change"):
            assert_batch_independent(mixes, torch.randn(4, 3))


def test_a_frozen_name_that_fits_nothing_is_refused() -> None:
    model = nn.Linear(2, 1)
    loss = model(torch.ones(1, 2)).sum()
    with pytest.raises(UnknownName) as raised:
        assert_all_parameters_learn(loss, model, frozen=["wieght"])
    assert raised.value.what == "frozen='wieght' fits no parameter"
    assert raised.value.where == "there is weight, bias"


def test_a_parameter_that_rests_unnamed_is_called_by_its_name() -> None:
    model = nn.Linear(2, 1)
    model.weight.requires_grad_(False)
    with pytest.raises(Failed, match="weight does not learn: it does not require grad"):
        assert_all_parameters_learn(model(torch.ones(1, 2)).sum(), model)


@pytest.mark.parametrize("f", [torch.relu, lambda x: x.clamp(0, 1), nn.functional.leaky_relu])
def test_a_kink_is_no_wrong_backward(f) -> None:
    x = torch.tensor([0.4, 0.0, -0.3], dtype=torch.float64)
    with pytest.raises(Undecided, match=r"f has a kink at x\[1\]"):
        assert_backward_correct(f, x)


def test_a_backward_outside_of_both_slopes_of_a_kink_is_wrong() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.abs()

        @staticmethod
        def backward(ctx, g):
            return 3 * g

    with pytest.raises(Failed, match="the backward is wrong"):
        assert_backward_correct(Wrong.apply, torch.zeros(1, dtype=torch.float64))
