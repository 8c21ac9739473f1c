"""Leaks are found at their exact position, in float32 and bfloat16; healthy models are left in peace."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.testing import models
from wrt.testing import Failed, Undecided, assert_causal


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def tokens() -> torch.Tensor:
    return torch.randint(0, 20, (2, 9))


def signal(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 10, 3, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_mask_that_reaches_one_too_far_is_found_through_the_embedding(dtype: torch.dtype) -> None:
    with pytest.raises(Failed) as caught:
        assert_causal(models.Language(reach=1).to(dtype), tokens())
    assert caught.value.output is not None
    assert caught.value.input is not None
    assert (caught.value.output[1], caught.value.input[1]) == (0, 1)
    assert "output position 0 depends on input position 1 (through the embedding embed)" in str(caught.value)
    assert "first seen in scores in second" in str(caught.value)
    assert "weights = scores.masked_fill(~allowed" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_leak_of_a_millionth_is_found_where_it_is(dtype: torch.dtype) -> None:
    with pytest.raises(Failed) as caught:
        assert_causal(models.padding_leak, signal(dtype))
    assert (caught.value.output[1], caught.value.input[1]) == (3, 7)
    assert caught.value.value == pytest.approx(1e-6, rel=1e-2)
    assert "late = F.pad" in caught.value.where


def test_a_convolution_padded_on_both_sides_is_found() -> None:
    with pytest.raises(Failed, match="output position 0 depends on input position 1"):
        assert_causal(models.Convolution(both=True), signal())


def test_a_gather_that_depends_on_the_data_is_found() -> None:
    x = signal()
    with pytest.raises(Failed) as caught:
        assert_causal(models.sorted_by_data, x)
    b, t, _ = caught.value.output
    assert caught.value.input[1] == x[b, :, 0].argsort()[t]  # the very row it took


def test_a_decision_without_derivative_is_found_by_value() -> None:
    with pytest.raises(Failed, match=r"a decision \(a mask, argmax, sorting, rounding\)"):
        assert_causal(models.decided_by_the_last, signal())


def test_a_leak_above_the_roundoff_of_a_dense_path_is_found() -> None:
    def leaking(x: torch.Tensor) -> torch.Tensor:
        y = models.fourier(x)
        return torch.cat([y[:, :3], y[:, 3:4] + 1e-4 * x[:, 7:8], y[:, 4:]], 1)

    with pytest.raises(Failed) as caught:
        assert_causal(leaking, signal())
    assert (caught.value.output[1], caught.value.input[1]) == (3, 7)


def test_roundoff_is_no_leak() -> None:
    assert "roundoff" in repr(assert_causal(models.fourier, signal()))


HEALTHY = {
    "attention": (models.Attention(3), signal),
    "two blocks": (models.Language(), tokens),
    "left-padded convolution": (models.Convolution(), signal),
    "running sum": (lambda x: x.cumsum(1), signal),
    "running maximum": (lambda x: x.cummax(1).values, signal),
    "pointwise": (nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2)), signal),
    "layer norm": (nn.LayerNorm(3), signal),
    "recurrent": (nn.GRU(3, 4, batch_first=True), signal),
    "lstm": (nn.LSTM(3, 4, batch_first=True), signal),
    "shifted": (lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1), signal),
    "constant": (lambda x: torch.zeros_like(x) + 1, signal),
    "encoder layer": (
        lambda x: nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
        signal,
    ),
    "dropout": (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)), signal),
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_healthy_model_passes(name: str, dtype: torch.dtype) -> None:
    model, data = HEALTHY[name]
    x = data()
    model = model.to(dtype) if isinstance(model, nn.Module) else model
    assert assert_causal(model, x if x.dtype is torch.int64 else x.to(dtype))


def test_nothing_of_the_model_changes(unchanged: object) -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)), signal()
    with unchanged(model, x):  # type: ignore[operator]
        before = torch.random.get_rng_state()
        assert_causal(model, x)
        assert torch.equal(before, torch.random.get_rng_state())


def test_many_positions_are_sampled_and_it_says_so() -> None:
    proven = assert_causal(lambda x: x.cumsum(1), torch.randn(1, 200, 1))
    assert "20 of 199 boundaries at the first: all pairs at least 12 apart" in proven.by
    assert proven.passes < 40


def far(distance: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Output 100 sees one later input, and nothing else is wrong."""
    step = torch.zeros(200)
    step[100] = 1e-3
    return lambda x: x.cumsum(1) + (step[:, None] * x[:, 100 + distance : 101 + distance])


def test_a_single_leak_over_more_than_the_gap_is_found_for_certain() -> None:
    for distance in range(12, 100, 7):
        with pytest.raises(AssertionError, match=f"output position 100 depends on input position {100 + distance}"):
            assert_causal(far(distance), torch.randn(1, 200, 1))


def test_a_single_leak_to_the_next_position_takes_all_boundaries() -> None:
    with pytest.raises(AssertionError, match="output position 100 depends on input position 101"):
        assert_causal(far(1), torch.randn(1, 200, 1), positions="all")
    assert "all 199 boundaries" in assert_causal(lambda x: x.cumsum(1), torch.randn(1, 200, 1), positions="all").by


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_millionth_deep_inside_a_model_is_found(dtype: torch.dtype) -> None:
    class Leaking(models.Language):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            h = self.first(self.embed(tokens))
            late = nn.functional.pad(1e-6 * h[:, 7:8], (0, 0, 3, h.shape[1] - 4))
            h = self.second(h + late)
            return self.head(self.norm(h))

    with pytest.raises(Failed) as caught:
        assert_causal(Leaking().to(dtype), tokens())
    output, sees = caught.value.output, caught.value.input
    assert (output[1], sees[1] <= 7, sees[1] > 3) == (3, True, True)
    assert "late = nn.functional.pad" in caught.value.where


DECISIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "the largest, detached": lambda x: x / x.detach().abs().max(),
    "a rounded mean": lambda x: x + x.mean(1, keepdim=True).round(),
    "the sign of the last": lambda x: x * x[:, -1:].sign(),
    "a few that are kept": lambda x: torch.where(x >= x.topk(2, dim=1).values[:, -1:], x, 0 * x),
    "an alarm": lambda x: torch.where((x.abs() > 4).any(1, keepdim=True), x * 2, x),
    "a NaN that spreads": lambda x: x + (x.detach().abs().amax(1, keepdim=True) - 4).clamp_min(0).mul(-1).sqrt(),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_of_many_kinds_are_found_wherever_they_lie(name: str) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        with pytest.raises(Failed, match="when inputs after"):
            assert_causal(DECISIONS[name], torch.randn(2, 8))


def test_a_sequence_of_one_position_cannot_tell() -> None:
    with pytest.raises(Undecided, match="give at least two positions"):
        assert_causal(lambda x: x, torch.randn(2, 1))
