"""Nonzeros of what is quickly swept as a whole: they are looked for where sifting all of it would take longer."""

import numpy as np
import pytest
import torch

from tests.torch._rows import row_loop
from wrt import d
from wrt._plan import cache, plans
from wrt._run import thresholds


@pytest.fixture(autouse=True)
def quickly_swept(monkeypatch):
    """As on a device: no sweep is long enough to be planned."""
    monkeypatch.setattr(plans, "QUICK_SECONDS", 0.1)
    monkeypatch.setattr(plans, "SIFT_SECONDS", 1e-5)
    cache.forget()
    yield
    cache.forget()


def stencil(u):
    return u.sin() + u.roll(1) * u - 2 * u.roll(-1)


def mixed(u):
    return torch.tanh(u * u.sum()).cumsum(0)


def random(n):
    return torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.mark.parametrize("order", ["dense sparse dense sparse", "sparse dense sparse dense", "sparse sparse sparse"])
def test_all_of_it_is_swept_and_nonzeros_are_found_by_structure(order):
    x = random(200)
    expected = row_loop(stencil(x), x).numpy()
    for form in order.split():
        J = d(stencil(x)) / d(x)
        found = J.sparse().toarray() if form == "sparse" else J.value.numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
        assert J.explain().strategy == ("structured" if form == "sparse" else "direct")
        assert J.certificate


def test_where_there_is_no_structure_it_is_looked_for_once():
    x = random(200)
    expected = row_loop(mixed(x), x).numpy()
    passes = []
    for _ in range(3):
        J = d(mixed(x)) / d(x)
        np.testing.assert_allclose(J.sparse().toarray(), expected, rtol=1e-11, atol=1e-13)
        passes.append(J.explain().passes)
    assert passes[1] == passes[2] < passes[0]


def test_small_answers_are_sifted(monkeypatch):
    monkeypatch.setattr(plans, "SIFT_SECONDS", 4e-9)
    x = random(200)
    J = d(stencil(x)) / d(x)
    np.testing.assert_allclose(J.sparse().toarray(), row_loop(stencil(x), x).numpy(), rtol=1e-12, atol=1e-13)
    assert J.explain().strategy == "direct"


def test_a_diagonal_in_blocks_where_the_whole_is_large(monkeypatch):
    """Proven block by block, never all at once."""
    monkeypatch.setattr(thresholds, "CHECKED_BYTES", 0)
    monkeypatch.setattr(thresholds, "FEW_NUMBERS", 0)
    monkeypatch.setattr(thresholds, "WHOLE_CALL_BYTES_CPU", 0)
    monkeypatch.setattr(thresholds, "CALL_LINES_CPU", (1, 64))
    x = random(200)
    J = d(mixed(x)) / d(x)
    torch.testing.assert_close(J.diagonal(), row_loop(mixed(x), x).diagonal(), rtol=1e-11, atol=1e-13)
    checks = [step.passes for step in J.explain().steps if step.what == "independent check"]
    assert sum(checks) == 4  # of 64, 64, 64 and 8 rows
    assert J.certificate
