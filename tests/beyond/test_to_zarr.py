"""`J.to_zarr(path)`: block by block to disk; what is there is right, what is not is said, and only that is computed again."""

import errno
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

import wrt
from tests.beyond import _models
from tests.beyond._models import fails_at_row_seven, jacobian, model, stencil, truth, weights
from wrt import d
from wrt._beyond import to_zarr as to_zarr_file
from wrt.errors import Unfinished, WrongQuery, WrongShape

zarr = pytest.importorskip("zarr")
pytest.importorskip("dask")
EXPECTED = truth(20, 30, 40)


def near(found, expected) -> bool:
    return bool(np.allclose(found, expected, rtol=1e-12, atol=1e-14))


def test_what_is_on_disk_is_the_jacobian(tmp_path) -> None:
    stored = jacobian(model(20, 30, 40)).to_zarr(tmp_path / "j", chunks=(10, -1))
    assert near(stored, EXPECTED)
    assert near(zarr.open_array(tmp_path / "j", mode="r")[...], EXPECTED)
    assert (stored.blocks, stored.computed, stored.found) == (4, 4, 0)
    assert repr(stored).splitlines()[0] == f"Stored  40 x 20 in 4 blocks at {tmp_path / 'j'}"


def test_the_bits_are_those_of_the_same_blocks_computed_here(tmp_path) -> None:
    J = jacobian(model(20, 30, 40))
    stored = J.to_zarr(tmp_path / "j", chunks=(10, -1))
    assert np.array_equal(stored, J.dask(chunks=(10, -1)).compute(scheduler="synchronous"))


def test_only_missing_blocks_are_computed_again(tmp_path) -> None:
    J = jacobian(model(20, 30, 40))
    first = np.asarray(J.to_zarr(tmp_path / "j", chunks=(10, 10)))
    (tmp_path / "j" / "c" / "2" / "1").unlink()
    (tmp_path / "j" / "c" / "0" / "0").rename(tmp_path / "j" / "c" / "0" / "0.abc.partial")  # killed while writing
    assert np.isnan(zarr.open_array(tmp_path / "j", mode="r")[20:30, 10:]).all()  # never a silent zero
    before = wrt.Model.counts()["blocks"]
    again = J.to_zarr(tmp_path / "j")
    assert (again.computed, again.found, wrt.Model.counts()["blocks"] - before) == (2, 6, 2)
    assert np.array_equal(first, again)


def test_a_block_of_zeros_is_there_once_it_is_written(tmp_path) -> None:
    run = wrt.Model(lambda: lambda x: (x * 0)[:4] + x[4:8], None, torch.ones(8)).trace()
    J = d(run.output) / d(run.inputs[0])
    J.to_zarr(tmp_path / "j", chunks=(2, 4))
    assert J.to_zarr(tmp_path / "j").computed == 0


@pytest.mark.parametrize("other", ["state", "question", "foreign"])
def test_another_answer_is_never_mixed_in(tmp_path, other: str) -> None:
    if other == "foreign":
        zarr.create_array(str(tmp_path / "j"), shape=(40, 20), chunks=(10, 20), dtype="float64")
    else:
        jacobian(model(20, 30, 40)).to_zarr(tmp_path / "j", chunks=(10, -1))
    J = jacobian(model(20, 30, 40, seed=1)) if other == "state" else jacobian(model(20, 30, 40))[::-1]
    with pytest.raises(WrongQuery) as error:
        J.to_zarr(tmp_path / "j")
    what = "holds the answer to another question"
    stands = "it was written for d(output) / d(input), for another model, state or input"
    if other == "foreign":
        what, stands = "is there already", "wrt did not write it: it is neither overwritten nor believed"
    assert str(error.value).splitlines() == [
        f"{tmp_path / 'j'} {what}",
        f"  {stands}",
        "  give another path, or remove it",
    ]


def test_other_blocks_than_it_was_begun_with_are_refused(tmp_path) -> None:
    J = jacobian(model(20, 30, 40))
    J.to_zarr(tmp_path / "j", chunks=(10, -1))
    with pytest.raises(WrongShape, match=r"was begun in blocks of \(10, 20\)"):
        J.to_zarr(tmp_path / "j", chunks=(5, -1))


def test_a_full_disk_is_told_and_the_rest_is_computed_later(tmp_path, monkeypatch) -> None:
    J = jacobian(model(20, 30, 40))
    write, room = to_zarr_file.write, 2

    def limited(array, region, numbers) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(array, region, numbers)

    monkeypatch.setattr(to_zarr_file, "write", limited)
    with pytest.raises(Unfinished) as error:
        J.to_zarr(tmp_path / "j", chunks=(10, -1))
    assert str(error.value).splitlines() == [
        f"2 of 4 blocks are missing in {tmp_path / 'j'}",
        "  block [20:30, 0:20]: OSError: [Errno 28] No space left on device",
        "  mend that and run it again: only what is missing is computed",
    ]
    monkeypatch.undo()
    again = J.to_zarr(tmp_path / "j")
    assert (again.computed, again.found) == (2, 2)
    assert near(again, EXPECTED)


def test_a_file_that_cannot_grow_is_told_by_the_system_itself(tmp_path) -> None:
    """A limit on file size is the nearest thing to a full disk that needs no rights."""
    program = f"""
import resource, signal
from tests.beyond._models import jacobian, model
J = jacobian(model(20, 30, 40))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200))
J.to_zarr({str(tmp_path / "j")!r}, chunks=(10, -1))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Unfinished: 4 of 4 blocks are missing" in run.stderr
    assert "File too large" in run.stderr
    assert near(jacobian(model(20, 30, 40)).to_zarr(tmp_path / "j"), EXPECTED)


def test_a_poisoned_block_is_named_and_the_others_are_there(tmp_path) -> None:
    state = weights(6, 12)[0]
    run = wrt.Model(fails_at_row_seven, state, torch.linspace(0, 1, 6, dtype=torch.float64)).trace()
    J = d(run.output) / d(run.inputs[0])
    with wrt.options(way="pull"), pytest.raises(Unfinished) as error:
        J.to_zarr(tmp_path / "j", chunks=(3, -1))
    told = str(error.value).splitlines()
    assert told[0] == f"1 of 4 blocks are missing in {tmp_path / 'j'}"
    assert told[1].startswith("  block [6:9, 0:6]: ")
    assert "row 7 is poisoned" in told[1]
    there = zarr.open_array(tmp_path / "j", mode="r")[...]
    expected = _models.by_loop(lambda x: torch.tanh(x @ state), torch.linspace(0, 1, 6, dtype=torch.float64))
    assert np.isnan(there[6:9]).all()
    assert near(there[[0, 1, 2, 3, 4, 5, 9, 10, 11]], expected[[0, 1, 2, 3, 4, 5, 9, 10, 11]])


def test_where_nothing_works_the_error_itself_is_raised(tmp_path) -> None:
    def build():
        class Refuses(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, g):
                raise ValueError("never")

        return lambda x: Refuses.apply(x)

    run = wrt.Model(build, None, torch.ones(6)).trace()
    with pytest.raises(Exception, match="never"):
        (d(run.output) / d(run.inputs[0])).to_zarr(tmp_path / "j", chunks=(1, -1))


def test_a_damaged_block_is_noticed_when_it_is_read(tmp_path) -> None:
    jacobian(model(20, 30, 40)).to_zarr(tmp_path / "j", chunks=(10, -1))
    block = tmp_path / "j" / "c" / "1" / "0"
    content = bytearray(block.read_bytes())
    content[100] ^= 1
    block.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        zarr.open_array(tmp_path / "j", mode="r")[...]


def test_memory_bounds_the_blocks(tmp_path) -> None:
    stored = jacobian(model(40, 30, 20)).to_zarr(tmp_path / "rows", memory=2 * 14 * 8 * 40 * 3)
    assert stored.array.chunks == (3, 40)
    assert near(stored, truth(40, 30, 20))
    columns = jacobian(model(20, 30, 40)).to_zarr(tmp_path / "columns", memory=2 * 14 * 8 * 40 * 3)
    assert columns.array.chunks == (40, 3)


def test_an_answer_goes_on_with_the_plan_it_was_begun_with(tmp_path) -> None:
    """What may be kept in memory decides between a waist and direct sweeps, and so the last bits."""
    J = jacobian(model(500, 1000, 16, 1000, 500))
    small = np.asarray(J.to_zarr(tmp_path / "j", memory=2**16, chunks=(200, -1)))
    (tmp_path / "j" / "c" / "1" / "0").unlink()
    again = J.to_zarr(tmp_path / "j")
    assert np.array_equal(again, small)
    assert again.how.startswith("direct")
    larger = J.to_zarr(tmp_path / "more")
    assert larger.how.startswith("cut")
    assert np.allclose(small, larger, rtol=1e-9, atol=1e-12)


def test_live_tensors_go_to_disk_and_are_known_again(tmp_path) -> None:
    x = torch.linspace(-1, 1, 12, dtype=torch.float64, requires_grad=True)
    first = (d(torch.tanh(x) * x.sum()) / d(x)).to_zarr(tmp_path / "j", chunks=(4, -1))
    assert first.computed == 3
    assert (d(torch.tanh(x) * x.sum()) / d(x)).to_zarr(tmp_path / "j").computed == 0
    with pytest.raises(WrongQuery, match="another question"):
        (d(torch.tanh(x) * x.sum() * 2) / d(x)).to_zarr(tmp_path / "j")


def test_nonzeros_alone_go_to_disk_without_a_dense_block(tmp_path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    n = 20_000  # the dense matrix would take 3 GB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = wrt.Model(stencil, None, torch.linspace(0, 1, n, dtype=torch.float64)).trace()
    stored = (d(run.output) / d(run.inputs[0])).to_zarr(tmp_path / "s", layout="csr")
    group = zarr.open_group(tmp_path / "s", mode="r")
    found = sparse.csr_array((group["data"][:], group["indices"][:], group["indptr"][:]), shape=group.attrs["shape"])
    assert (stored.shape, found.nnz) == ((n, n), 3 * n - 1)  # x[0] = 0 has no slope
    v = np.random.default_rng(0).normal(size=n)
    x = np.linspace(0, 1, n)
    assert np.allclose(found @ v, 2 * x * v + 3 * np.roll(v, 1) - np.roll(v, -1), atol=1e-12)
    assert (d(run.output) / d(run.inputs[0])).to_zarr(tmp_path / "s", layout="csr").computed == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB that the peak of this process grew by


def test_another_layout_is_told(tmp_path) -> None:
    with pytest.raises(WrongQuery, match="a Jacobian is stored dense or by its nonzeros"):
        jacobian(model(4, 6, 5)).to_zarr(tmp_path / "j", layout="coo")
