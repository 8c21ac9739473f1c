"""`J.dask()`: a dask array whose blocks are computed when they are needed, and no others."""

import pickle

import numpy as np
import pytest
import torch

import wrt
from tests.beyond._models import by_loop, jacobian, model, stencil, truth
from wrt import d
from wrt._beyond import solve
from wrt._beyond.source import source_of
from wrt._operators.vectors import of_gradient
from wrt.errors import CannotTravel, WrongShape

da = pytest.importorskip("dask.array")
HERE = {"scheduler": "synchronous"}


def blocks() -> int:
    return wrt.Model.counts()["blocks"]


@pytest.mark.parametrize("chunks", ["auto", 7, (10, -1), (-1, 5), (8, 6), ((30, 10), (20,))])
def test_blocks_of_any_size_make_up_the_jacobian(chunks) -> None:
    found = jacobian(model(20, 30, 40)).dask(chunks=chunks)
    assert (found.shape, found.dtype) == ((40, 20), np.float64)
    assert np.allclose(found.compute(**HERE), truth(20, 30, 40), rtol=1e-12, atol=1e-14)


def test_only_the_blocks_that_a_slice_touches_are_computed() -> None:
    found = jacobian(model(20, 30, 40)).dask(chunks=(10, 10))
    before = blocks()
    part = found[15:25, :3].compute(**HERE)
    assert blocks() - before == 2
    assert np.allclose(part, truth(20, 30, 40)[15:25, :3], rtol=1e-12, atol=1e-14)
    found[39, 19].compute(**HERE)
    assert blocks() - before == 3


def test_blocks_of_the_same_largest_size_are_not_mixed_up() -> None:
    J = jacobian(model(20, 30, 40))
    one, other = J.dask(chunks=((30, 10), -1)), J.dask(chunks=((10, 30), -1))
    assert one.name != other.name
    assert np.allclose((one.rechunk(5) - other.rechunk(5)).compute(**HERE), 0, atol=1e-14)


def test_a_million_blocks_cost_nothing_until_they_are_touched() -> None:
    run = wrt.Model(stencil, None, torch.linspace(0, 1, 10_000, dtype=torch.float64)).trace()
    J = (d(run.output) / d(run.inputs[0])).dask(chunks=(10, 10))
    before = blocks()
    found = J[5_000:5_003, 5_000:5_003].compute(**HERE)
    assert (J.npartitions, blocks() - before) == (10**6, 1)
    x = np.linspace(0, 1, 10_000)[5_000:5_003]
    assert np.allclose(found, np.diag(2 * x) + 3 * np.eye(3, k=-1) - np.eye(3, k=1))


def test_what_dask_does_with_arrays_just_works(tmp_path) -> None:
    J, expected = jacobian(model(20, 30, 40)).dask(chunks=(10, -1)), truth(20, 30, 40)
    assert np.isclose(float((J**2).sum().compute(**HERE)), (expected**2).sum(), rtol=1e-12)
    assert np.allclose((J.T @ J).compute(**HERE), expected.T @ expected, rtol=1e-10)
    largest = da.linalg.svd_compressed(J, 4, n_power_iter=6, seed=0)[1].compute(**HERE)
    assert np.allclose(largest, np.linalg.svd(expected, compute_uv=False)[:4], rtol=1e-4)
    J.to_zarr(str(tmp_path / "j.zarr"), compute=True)
    assert np.allclose(da.from_zarr(str(tmp_path / "j.zarr")).compute(**HERE), expected, rtol=1e-12, atol=1e-14)


def test_the_same_block_has_the_same_bits_whoever_computes_it_and_after_whatever() -> None:
    one = model(20, 30, 40)
    first = jacobian(one).dask(chunks=(10, -1)).compute(**HERE)
    jacobian(one).numpy()  # plans of other questions are known from here on
    jacobian(one)[10:20].numpy()
    wrt.trace(lambda x: x * 2, torch.ones(3))
    again = jacobian(pickle.loads(pickle.dumps(one))).dask(chunks=(10, -1)).compute(scheduler="threads")
    assert np.array_equal(first, again)


def test_axes_of_both_sides_are_kept_and_cut() -> None:
    weight = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(2, 2, 3, 3)

    def build(state: torch.Tensor):
        return lambda x: torch.tanh(torch.nn.functional.conv2d(x[None], state, padding=1))[0]

    x = torch.linspace(0, 1, 72, dtype=torch.float64).reshape(2, 6, 6)
    run = wrt.Model(build, weight, x).trace()
    J = d(run.output) / d(run.inputs[0])
    expected = by_loop(build(weight), x)
    assert np.allclose(J.dask(chunks=(1, 3, -1, -1, -1, -1)).compute(**HERE), expected, atol=1e-14)
    turned = J.T.dask()
    assert turned.shape == J.T.shape
    assert np.allclose(turned.compute(**HERE), expected.transpose(3, 4, 5, 0, 1, 2), atol=1e-14)


def test_a_structure_is_swept_once_for_all_blocks() -> None:
    calls = []

    class Counted(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            calls.append(1)
            return g

    n = 6000
    x = torch.linspace(0, 1, n, dtype=torch.float64)
    run = wrt.Model(lambda: lambda x: Counted.apply(stencil()(x)), None, x).trace()
    J = (d(run.output) / d(run.inputs[0])).dask(chunks=(50, -1))
    J[:50].compute(**HERE)
    swept = len(calls)
    for k in (1000, n - 50):
        row = np.arange(k, k + 50)
        expected = np.zeros((50, n))
        expected[np.arange(50), row] = 2 * x.numpy()[row]
        expected[np.arange(50), row - 1] = 3
        expected[np.arange(50), (row + 1) % n] = -1
        assert np.allclose(J[k : k + 50].compute(**HERE), expected, atol=1e-14)
    assert len(calls) == swept


def test_a_narrow_waist_is_swept_once_for_all_blocks() -> None:
    J = jacobian(model(300, 600, 8, 600, 300))
    assert source_of(J).solver().how.startswith("cut")
    found = J.dask(chunks=(50, -1)).compute(**HERE)
    assert np.allclose(found, truth(300, 600, 8, 600, 300), rtol=1e-10, atol=1e-14)


def test_a_block_of_a_local_map_is_computed_from_what_lies_between(monkeypatch) -> None:
    weight = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(1, 1, 3, 3)

    def build(state: torch.Tensor):
        def f(x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = torch.tanh(torch.nn.functional.conv2d(x, state, padding=1))
            return x

        return f

    x = torch.linspace(0, 1, 96 * 96, dtype=torch.float64).reshape(1, 1, 96, 96).sin()
    run = wrt.Model(build, weight, x).trace()
    monkeypatch.setattr(solve, "worth_planning", lambda ask: False)  # its stencil would answer every block
    J = (d(run.output) / d(run.inputs[0])).dask(chunks=(1, 1, 8, 8, 1, 1, 8, 8))
    block = J[0, 0, 40:48, 40:48, 0, 0, 48:56, 40:48].compute(**HERE)
    y = build(weight)(x.requires_grad_())
    for i, j in ((7, 0), (7, 7), (3, 3), (0, 0)):
        row = torch.autograd.grad(y[0, 0, 40 + i, 40 + j], x, retain_graph=True)[0][0, 0, 48:56, 40:48]
        assert np.allclose(block[i, j], row.numpy(), rtol=1e-12, atol=1e-16)


def test_independence_is_zeros_and_the_identity_is_the_identity() -> None:
    run = wrt.Model(lambda: lambda x, z: (x * 2, z), None, (torch.ones(3), torch.ones(2))).trace()
    unreached = d(run.output[0]) / d(run.inputs[1])
    assert np.array_equal(unreached.dask(chunks=2).compute(**HERE), np.zeros((3, 2)))
    assert np.array_equal((d(run.inputs[0]) / d(run.inputs[0])).dask(chunks=2).compute(**HERE), np.eye(3))


# ---------------------------------------------------------------- live tensors


def test_live_tensors_are_answered_by_the_threads_of_this_process(watched) -> None:
    x = torch.linspace(-1, 1, 12, dtype=torch.float64, requires_grad=True)
    watched(x)
    y = torch.tanh(x) * x.sum()
    found = (d(y) / d(x)).dask(chunks=(4, -1)).compute(scheduler="threads")
    assert np.allclose(found, by_loop(lambda x: torch.tanh(x) * x.sum(), x), rtol=1e-12)


def test_live_tensors_cannot_travel() -> None:
    x = torch.ones(3, requires_grad=True)
    J = (d(x * 2) / d(x)).dask()
    with pytest.raises(CannotTravel) as error:
        pickle.dumps(J)
    assert str(error.value).splitlines() == [
        "J.dask(): the graph of live tensors stays in this process",
        "  the workers are other processes, and a live graph cannot be sent",
        "  write t = wrt.Model(build, state, x).trace(), then d(t.output) / d(t.inputs[0])",
    ]


def test_chunks_that_do_not_fit_are_told() -> None:
    with pytest.raises(WrongShape) as error:
        jacobian(model(4, 6, 5)).dask(chunks=(1, 2, 3))
    told = str(error.value).splitlines()
    assert told[0] == "chunks=(1, 2, 3) do not fit a derivative of shape (5, 4)"
    assert told[2] == '  give one size for each of its 2 axes, -1 for a whole axis, or "auto"'


@pytest.mark.parametrize(
    "f", [lambda u: u**2 - torch.roll(u, 1) * torch.roll(u, -1), lambda u: torch.sin(u * u.sum())], ids=["stencil", "dense"]
)
def test_blocks_without_matrix_products_have_the_bits_of_the_value(f) -> None:
    run = wrt.Model(lambda: f, None, torch.linspace(-1, 1, 600)).trace()
    J = d(run.output) / d(run.inputs[0])
    assert np.array_equal(J.dask(chunks=(130, -1)).compute(**HERE), J.numpy())


def test_blocks_behind_a_matrix_product_are_the_value_to_rounding() -> None:
    J = jacobian(model(20, 30, 40))
    found, value = J.dask(chunks=(7, -1)).compute(**HERE), J.numpy()
    assert np.abs(found - value).max() <= 16 * np.finfo(np.float64).eps * np.abs(value).max()


def bowl(state: torch.Tensor):
    def f(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(x @ state)
        loss = (hidden**2).sum() * x.sum()
        return loss

    return f


def bowl_run(start: float = -1.0):
    of = torch.linspace(start, 1, 12, dtype=torch.float64)
    state = torch.randn(12, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return wrt.Model(bowl, state, of).trace(), torch.autograd.functional.hessian(bowl(state), of).numpy()


def test_the_blocks_of_a_second_derivative_make_up_the_hessian() -> None:
    t, expected = bowl_run()
    H = d(t.output) / d(t.inputs[0]) / d(t.inputs[0])
    source = pickle.loads(pickle.dumps(source_of(H)))  # as a worker gets it
    found = np.concatenate([source.block((slice(k, k + 4), slice(0, 12))) for k in (0, 4, 8)])
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert np.array_equal(H.dask(chunks=(4, -1)).compute(scheduler="synchronous"), found)
    assert np.allclose(H.dask()[3:5, 2].compute(scheduler="synchronous"), expected[3:5, 2], rtol=1e-12, atol=1e-13)


def test_a_gradient_is_pulled_once_for_all_blocks_of_a_hessian(monkeypatch) -> None:
    pulled = []
    monkeypatch.setattr(solve, "of_gradient", lambda *asked: pulled.append(1) or of_gradient(*asked))
    t, _ = bowl_run(start=-2.0)
    (d(t.output) / d(t.inputs[0]) / d(t.inputs[0])).dask(chunks=(3, 5)).compute(scheduler="synchronous")
    assert len(pulled) == 1


def test_a_sparse_hessian_is_swept_once_for_all_blocks() -> None:
    x = torch.linspace(0, 1, 1500, dtype=torch.float64)
    t = wrt.Model(lambda: lambda x: ((x[1:] - x[:-1] ** 2) ** 2).sum(), None, x).trace()
    H = d(t.output) / d(t.inputs[0]) / d(t.inputs[0])
    found, a, k = H.dask(chunks=(500, -1)).compute(scheduler="synchronous"), x.numpy(), np.arange(1500)
    inner = np.where(k < 1499, 12 * a**2 - 4 * np.roll(a, -1), 0) + np.where(k > 0, 2, 0)
    expected = np.diag(inner) + np.diag(-4 * a[:-1], 1) + np.diag(-4 * a[:-1], -1)
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert source_of(H).solver().how.startswith("structured")


def test_second_derivatives_of_several_numbers_and_by_two_values_go_to_blocks() -> None:
    t, _ = bowl_run()
    of_all, mixed = d(t["hidden"]) / d(t.inputs[0]) / d(t.inputs[0]), d(t.output) / d(t.inputs[0]) / d(t["hidden"])
    for asked, chunks in ((of_all, (3, 12, 12)), (mixed, (5, 4))):
        found = asked.dask(chunks=chunks).compute(scheduler="synchronous")
        assert np.allclose(found, asked.numpy(), rtol=1e-12, atol=1e-13)


def test_a_second_derivative_that_is_zero_is_zeros(tmp_path) -> None:
    t = wrt.Model(lambda: lambda x: 3 * x.sum(), None, torch.ones(4)).trace()
    H = d(t.output) / d(t.inputs[0]) / d(t.inputs[0])
    assert np.array_equal(H.dask(chunks=(2, -1)).compute(scheduler="synchronous"), np.zeros((4, 4)))


def test_live_second_derivatives_go_to_disk_and_are_known_again(tmp_path) -> None:
    x = torch.linspace(-1, 1, 5, dtype=torch.float64).requires_grad_()
    for number, y in enumerate(((x**4).sum(), x**3)):
        H, path = d(y) / d(x) / d(x), tmp_path / str(number)
        assert np.allclose(H.to_zarr(path), H.numpy(), rtol=1e-12)
        assert H.to_zarr(path).computed == 0


def test_scattered_entries_are_refused_in_words() -> None:
    t, _ = bowl_run()
    with pytest.raises(WrongShape) as error:
        (d(t["hidden"]) / d(t.inputs[0]))[[0, 1], [2, 3]].dask()
    assert str(error.value).splitlines() == [
        "scattered entries do not go to blocks",
        "  these have shape (2,)",
        "  take .value, or ask for d(y)[rows] / d(x)[columns]",
    ]
