"""Numbers on their way to a GPU and back: those of the moment, in one transfer, and whatever is wrong with them is seen."""

import numpy as np
import pytest
import torch

from tests.torch._rows import row_loop
from tests.torch.test_cuda_host import burgers, samples, waits
from wrt import d
from wrt._backends.torch import transfers

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
              pytest.mark.usefixtures("planned_from_the_start")]
CUDA = torch.device("cuda")


@pytest.mark.parametrize("count", [12, 5_000, 1_000_000])
def test_what_is_sent_is_what_was_there(count):
    """Although the device is busy, and the host writes to the array at once."""
    busy = torch.empty(2**28, device=CUDA)
    for k in range(10):
        busy.fill_(k)
        here = np.full(count, k)
        there = transfers.sent(here, CUDA)
        here[:] = -1
        assert bool((there == k).all())


def test_the_host_does_not_wait_to_send():
    here = np.arange(100_000)
    transfers.sent(here, CUDA)
    assert waits(lambda: transfers.sent(here, CUDA)) == 0


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, device=CUDA, generator=torch.Generator(CUDA).manual_seed(0)).requires_grad_()


@pytest.mark.parametrize(("f", "shape"), [(burgers, (400,)), (samples, (40, 8))], ids=["stencil", "samples"])
def test_rows_of_a_loop_first_and_again(f, shape):
    x = random(*shape)
    y = f(x)
    expected = row_loop(y, x)
    for _ in range(3):
        J = d(y) / d(x)
        torch.testing.assert_close(J.value.reshape(expected.shape), expected, rtol=1e-11, atol=1e-13)
        assert J.explain().strategy == "structured"
        assert J.certificate


@pytest.mark.parametrize(("f", "shape"), [(burgers, (400,)), (samples, (40, 8))], ids=["stencil", "samples"])
def test_nonzeros_of_a_loop_first_and_again(f, shape):
    """Also where others are zero than last time, and where the host has written to what it got."""
    for k in range(5):
        mask = torch.ones(shape, dtype=torch.float64, device=CUDA)
        mask.view(-1)[: 7 * (k % 2)] = 0
        x = random(*shape)
        y = f(x) * mask
        found = (d(y) / d(x)).sparse()
        expected = mask.reshape(-1, 1).cpu() * torch.func.jacrev(f)(x).reshape(y.numel(), -1).detach().cpu()
        torch.testing.assert_close(torch.from_numpy(found.toarray()), expected, rtol=1e-11, atol=1e-13)
        assert found.nnz == torch.count_nonzero(expected)
        found.data[:], found.indices[:] = 7, 0


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_an_entry_outside_the_pattern_is_found(size):
    x = random(400)
    y = burgers(x)
    y = y + size * torch.zeros_like(x).index_fill(0, torch.tensor([217], device=CUDA), 1.0).detach() * x[33]
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-13)
    assert "column 33 swept alone" in str(J.certificate)
    assert J.certificate


def test_an_entry_that_is_no_number_stays_alone():
    x = random(400)
    with torch.no_grad():
        x[50] = 0.0
    found = (d(burgers(x) + x.abs().sqrt()) / d(x)).value
    expected = row_loop(burgers(x), x) + torch.diag(x.sign() / (2 * x.abs().sqrt())).detach()
    rest = torch.arange(400, device=CUDA) != 50  # what torch says of row 50 is 0 * inf
    torch.testing.assert_close(found[rest], expected[rest], rtol=1e-11, atol=1e-13)
    assert not found[50, 50].isfinite()
