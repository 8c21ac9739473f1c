"""Passes that a GPU replays: the answers of a row loop in every run, with other numbers each time, and bounded memory."""

import threading

import pytest
import torch

import wrt
from tests.torch._rows import row_loop
from tests.torch.test_cuda_host import burgers, samples, waits
from wrt import d
from wrt._backends.torch import replay
from wrt._planner import warm
from wrt._run import planned

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def planned_and_recorded_soon(monkeypatch):
    monkeypatch.setattr(planned, "QUICK", 0.0)
    monkeypatch.setattr(replay, "OFTEN", 2)
    warm.forget()
    yield
    warm.forget()


def random(*shape, seed=0):
    chance = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, device=CUDA, generator=chance).requires_grad_()


def brusselator(z):
    u, v = z[0], z[1]

    def laplace(a):
        return a.roll(1, 0) + a.roll(-1, 0) + a.roll(1, 1) + a.roll(-1, 1) - 4 * a

    return torch.stack([1 + u * u * v - 4 * u + 0.1 * laplace(u), 3 * u - u * u * v + 0.1 * laplace(v)])


def reaction(u):
    return burgers(u) + torch.sigmoid(u) * u.tanh() - torch.where(u > 0, u * u, u.exp()) + u.relu()


def truth(f, x):
    """A row loop on the CPU: a row alone takes a GPU two milliseconds."""
    there = x.detach().cpu().requires_grad_()
    y = f(there)
    return row_loop(y, there).reshape(y.numel(), -1).to(CUDA)


def asked_often(f, *shape):
    """The last of several questions like it."""
    for k in range(8):
        x = random(*shape, seed=k)
        J = d(f(x)) / d(x)
        J.value
    return J


def rungs(J):
    return [step.rung for step in J.explain().steps]


def is_replayed(J):
    return any("replayed" in rung for rung in rungs(J))


@pytest.mark.parametrize(
    ("f", "shape"), [(burgers, (400,)), (brusselator, (2, 12, 12)), (reaction, (300,))], ids=["stencil", "two fields", "reaction"]
)
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_rows_of_a_loop_in_every_run(f, shape, form):
    seen = []
    for k in range(9):
        x = random(*shape, seed=k)
        J = d(f(x)) / d(x)
        expected = truth(f, x)
        found = torch.from_numpy(J.sparse().toarray()).to(CUDA) if form == "sparse" else J.value.reshape(expected.shape)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)
        assert J.certificate
        seen.append(is_replayed(J))
    assert seen[-4:] == [True] * 4
    assert not seen[0]


def test_an_answer_is_not_written_over_by_the_next_one():
    answers = []
    for k in range(8):
        x = random(300, seed=k)
        answers.append(((d(burgers(x)) / d(x)).diagonal(), truth(burgers, x).diagonal()))
    for found, expected in answers:
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


def test_the_host_waits_once_for_a_replay():
    assert is_replayed(asked_often(burgers, 400))
    x = random(400, seed=7)
    J = d(burgers(x)) / d(x)
    assert waits(lambda: J.value) == 1


def test_a_stray_dependency_is_found_in_a_replayed_plan():
    def strays(x, size):
        return burgers(x) + size * x.roll(37) * x.roll(100)

    asked_often(lambda u: strays(u, 0.0), 400)
    x = random(400, seed=9)
    expected = truth(lambda u: strays(u, 1.0), x)
    torch.testing.assert_close((d(strays(x, 1.0)) / d(x)).value, expected, rtol=1e-11, atol=1e-13)


def test_another_factor_is_another_answer():
    """Numbers in the code are part of the recording."""
    for k in range(12):
        x = random(400, seed=k)
        factor = 2.0 if k < 8 else float(k)
        J = d(burgers(x) * factor) / d(x)
        torch.testing.assert_close(J.value, factor * truth(burgers, x), rtol=1e-11, atol=1e-13)
        assert J.certificate


def test_a_number_on_the_device_may_change():
    for k in range(9):
        x, nu = random(400, seed=k), torch.full((), 0.1 * (k + 1), dtype=torch.float64, device=CUDA)
        J = d(burgers(x) * nu) / d(x)
        torch.testing.assert_close(J.value, nu * truth(burgers, x), rtol=1e-11, atol=1e-13)
    assert is_replayed(J)


def test_a_model_that_is_trained_meanwhile():
    nu = torch.nn.Parameter(torch.full((400,), 0.5, dtype=torch.float64, device=CUDA))
    for k in range(9):
        x = random(400, seed=k)
        J = d(burgers(x) * nu) / d(x)
        torch.testing.assert_close(J.value, nu.detach()[:, None] * truth(burgers, x), rtol=1e-11, atol=1e-13)
        with torch.no_grad():
            nu.add_(0.1)
    assert is_replayed(J)


def test_products_are_not_recorded():
    assert not is_replayed(asked_often(samples, 40, 8))


def test_it_can_be_switched_off_and_goes_with_the_plan():
    before = len(replay._RECORDINGS)
    with wrt.options(replay=False):
        for k in range(6):
            x = random(400, seed=k)
            J = d(burgers(x)) / d(x)
            J.value
        assert not is_replayed(J)
    assert len(replay._RECORDINGS) == before
    for k in range(6):
        x = random(400, seed=k)
        J = d(burgers(x)) / d(x)
        J.value
    assert is_replayed(J)
    assert len(replay._RECORDINGS) == before + 1
    del J
    warm.forget()
    assert len(replay._RECORDINGS) == before


def test_large_recordings_are_not_made(monkeypatch):
    monkeypatch.setattr(replay, "SHARE", torch.cuda.get_device_properties(0).total_memory // 2**16)
    assert not is_replayed(asked_often(burgers, 4000))


def test_a_hook_has_its_say():
    assert is_replayed(asked_often(burgers, 400))
    x = random(400, seed=9)
    h = x * 1.0
    handle = h.register_hook(lambda gradient: gradient * 10)
    J = d(burgers(h)) / d(x)
    torch.testing.assert_close(J.value, 10 * truth(burgers, x), rtol=1e-11, atol=1e-13)
    handle.remove()


def test_threads_and_streams_do_not_meet():
    for k in range(8):
        x = random(2000, seed=k)
        (d(burgers(x)) / d(x)).value
    wrong = []

    def asks(number, stream):
        with torch.cuda.stream(stream):
            for k in range(15):
                x = random(2000, seed=100 * number + k)
                y = burgers(x)
                found = (d(y) / d(x)).diagonal()
                u = x.detach()
                inner = -0.2 - (u[2:] - u[:-2])
                ones = torch.ones(1, dtype=u.dtype, device=CUDA)
                if not torch.allclose(found, torch.cat([ones, inner, ones]), rtol=1e-11, atol=1e-13):
                    wrong.append((number, k))

    default = torch.cuda.default_stream()
    streams = [default, default, torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    threads = [threading.Thread(target=asks, args=pair) for pair in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
