"""Per-sample blocks: the diagonal blocks of the whole Jacobian, for the passes of one sample."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch

import wrt
from tests.operators._problems import batch, generator
from tests.operators.test_operator import swept
from tests.run.test_sweep import Sine
from tests.torch._rows import row_loop
from wrt import d
from wrt._backends.torch.live import LiveRecord
from wrt._operators import blocks
from wrt._planner import warm
from wrt._run import products
from wrt.errors import WrongShape

__all__ = ["swept"]


def own_blocks(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    whole = row_loop(y, x)  # (b, *p, b, *q)
    at = y.ndim
    return torch.stack([whole[b].select(at - 1, b) for b in range(len(y))])


def test_the_blocks_of_a_batch() -> None:
    y, x = batch()
    found = (d(y) / d(x)).block_diagonal()
    assert found.shape == (6, 3, 5)
    torch.testing.assert_close(found, own_blocks(y, x), rtol=1e-12, atol=1e-14)
    turned = (d(y) / d(x)).T.block_diagonal()
    torch.testing.assert_close(turned, own_blocks(y, x).transpose(1, 2), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("p", "q", "ways"), [(3, 8, {"pull": 4}), (8, 3, {"push": 3, "pull": 1})])
def test_all_samples_share_the_passes_of_one(p: int, q: int, ways: dict[str, int], swept: Counter[str]) -> None:
    weights = torch.randn(p, q, dtype=torch.float64, generator=generator(5))
    x = torch.randn(20, q, dtype=torch.float64, generator=generator(6)).requires_grad_()
    y = Sine.apply(x) @ weights.T
    J = d(y) / d(x)
    found = J.block_diagonal()
    assert dict(swept) == ways
    assert J.explain().passes == swept.total()
    assert J.certificate
    torch.testing.assert_close(found, own_blocks(y, x), rtol=1e-12, atol=1e-14)


def test_samples_that_mix_are_noticed_and_swept_row_by_row() -> None:
    warm.forget()
    norm = torch.nn.BatchNorm1d(5).double()
    x = torch.randn(6, 5, dtype=torch.float64, generator=generator(3)).requires_grad_()
    y = norm(x) ** 2
    J = d(y) / d(x)
    torch.testing.assert_close(J.block_diagonal(), own_blocks(y, x), rtol=1e-10, atol=1e-12)
    assert any("the samples mix" in words for words in J.explain().fallbacks)


def test_one_stray_dependence_of_one_sample_is_noticed() -> None:
    x = torch.randn(40, 3, dtype=torch.float64, generator=generator(3)).requires_grad_()
    y = torch.sin(x)
    y = torch.cat([y[:17], y[17:18] + 1e-9 * x[30:31], y[18:]])
    J = d(y) / d(x)
    torch.testing.assert_close(J.block_diagonal(), own_blocks(y, x), rtol=1e-12, atol=1e-14)
    assert any("the samples mix" in words for words in J.explain().fallbacks)


def test_samples_that_mixed_are_not_swept_together_again() -> None:
    warm.forget()
    norm = torch.nn.BatchNorm1d(5).double()
    x = torch.randn(6, 5, dtype=torch.float64, generator=generator(3)).requires_grad_()
    passes = []
    for _ in range(2):
        y = norm(x) ** 2
        J = d(y) / d(x)
        torch.testing.assert_close(J.block_diagonal(), own_blocks(y, x), rtol=1e-10, atol=1e-12)
        passes.append(J.explain().passes)
    assert passes[1] == 31 < passes[0]  # all rows and the probe
    assert not J.explain().fallbacks


def test_large_samples_that_mix_are_swept_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SMALL", 0)
    test_samples_that_mix_are_noticed_and_swept_row_by_row()


WIDE = torch.randn(300, 5, dtype=torch.float64, generator=generator(2))
WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a stencil": lambda x: x**2 - x.roll(1, 1) * x.roll(2, 0),
    "a waist": lambda x: torch.sin(WIDE @ torch.tanh(WIDE.T @ x.flatten() / 9)).reshape(x.shape),
    "one number each": lambda x: torch.exp(x**3),
}


@pytest.mark.parametrize("axes", [(0, 0), (1, 1)])
@pytest.mark.parametrize("name", WAYS)
def test_blocks_of_a_structure_take_the_passes_of_the_structure(
    name: str, axes: tuple[int, int], monkeypatch: pytest.MonkeyPatch, planned_from_the_start: None
) -> None:
    monkeypatch.setattr(blocks, "MANY", 2)
    x = torch.randn(15, 20, dtype=torch.float64, generator=generator(8)).requires_grad_()
    y = WAYS[name](x)
    whole = row_loop(y, x).movedim((axes[0], 2 + axes[1]), (0, 1))
    J = d(y) / d(x)
    found = J.block_diagonal(y_axis=axes[0], x_axis=axes[1])
    torch.testing.assert_close(found, torch.stack([whole[b, b] for b in range(len(whole))]), rtol=1e-11, atol=1e-12)
    assert J.explain().passes < 40
    assert J.certificate


def test_other_axes_and_more_of_them() -> None:
    x = torch.randn(4, 6, 2, dtype=torch.float64, generator=generator(3)).requires_grad_()
    y = (x**2).cumsum(0).sum(2).T.contiguous()  # (6, 4): axis 0 of y is axis 1 of x
    found = (d(y) / d(x)).block_diagonal(y_axis=0, x_axis=1)
    whole = row_loop(y, x)  # (6, 4, 4, 6, 2)
    truth = torch.stack([whole[b][:, :, b] for b in range(6)])
    assert found.shape == (6, 4, 4, 2)
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-14)


def test_of_the_identity() -> None:
    x = torch.randn(3, 2, dtype=torch.float64, generator=generator(3)).requires_grad_()
    torch.testing.assert_close((d(x) / d(x)).block_diagonal(), torch.eye(2, dtype=torch.float64).expand(3, 2, 2))


def test_without_proofs_a_guess_is_still_proven() -> None:
    norm = torch.nn.BatchNorm1d(5).double()
    x = torch.randn(6, 5, dtype=torch.float64, generator=generator(3)).requires_grad_()
    y = norm(x) ** 2
    with wrt.options(certify=False):
        torch.testing.assert_close((d(y) / d(x)).block_diagonal(), own_blocks(y, x), rtol=1e-10, atol=1e-12)


def test_axes_that_do_not_match_are_refused() -> None:
    y, x = batch()
    with pytest.raises(WrongShape) as caught:
        (d(y) / d(x)).block_diagonal(y_axis=1)
    assert str(caught.value) == (
        "block_diagonal() needs one axis of samples in y and in x\n"
        "  y has shape (6, 3), x has shape (6, 5): axis 1 of y counts 3, axis 0 of x counts 6\n"
        "  name the axes: J.block_diagonal(y_axis=..., x_axis=...)"
    )
    with pytest.raises(WrongShape, match="there is no axis 0 of y"):
        (d(y.sum()) / d(x)).block_diagonal()


def test_per_sample_gradients_of_parameters_come_from_one_copy_each() -> None:
    """Weights are shared by the samples; a copy for each sample makes their gradients blocks."""
    weights = torch.randn(3, 5, dtype=torch.float64, generator=generator(1)).expand(6, 3, 5).clone().requires_grad_()
    x = torch.randn(6, 5, dtype=torch.float64, generator=generator(2))
    y = torch.einsum("bpq,bq->bp", weights, torch.sin(x))
    found = (d(y) / d(weights)).block_diagonal()
    np.testing.assert_allclose(found.numpy(), own_blocks(y, weights).numpy(), rtol=1e-12, atol=1e-14)


def test_asked_again_the_probe_travels_with_the_samples() -> None:
    warm.forget()
    y, x = batch()
    for again in (False, True, True, True):  # from the third time on straight to the batch
        J = d(y) / d(x)
        torch.testing.assert_close(J.block_diagonal(), own_blocks(y, x), rtol=1e-12, atol=1e-14)
        assert J.certificate
        assert any("and the probe" in step.what for step in J.explain().steps) is again


@pytest.mark.parametrize("times", [1, 3])
def test_samples_that_mix_only_now_are_noticed(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same signature for another program: what was found out about the first must not be believed of the second."""
    monkeypatch.setattr(LiveRecord, "signature", lambda self, y, xs: ("everything looks the same",))
    warm.forget()
    x = torch.randn(40, 3, dtype=torch.float64, generator=generator(3)).requires_grad_()
    for _ in range(times):
        (d(torch.sin(x)) / d(x)).block_diagonal()
    y = torch.sin(x) * x.roll(1, 0)
    J = d(y) / d(x)
    torch.testing.assert_close(J.block_diagonal(), own_blocks(y, x), rtol=1e-12, atol=1e-14)
    assert any("the samples mix" in words for words in J.explain().fallbacks)
