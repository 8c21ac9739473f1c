"""Nothing is tried that cannot fit: estimates, limits of the process, and a ladder from 10⁴ to 10¹² entries."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import wrt
from tests.torch._rows import row_loop
from wrt import d
from wrt._backends.torch.engine import TorchEngine
from wrt._core import room
from wrt._run import memory
from wrt._run.memory import call_bytes, lines_per_call
from wrt.errors import TooLarge

ROOT = Path(__file__).parents[2]
STEPS = [10**k for k in range(4, 13)]
LIMIT = 1500  # megabytes beyond what Python and torch take
ALWAYS = ("dense J[5]", "dense J @ v", "dense u @ J", "stencil J[5]", "stencil J.sparse()", "stencil J.diagonal()",
          "the identity")  # fmt: skip
DENSE = ("dense J.value", "stencil J.value", "the identity's value")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are Linux's")
def test_a_ladder_from_ten_thousand_to_a_trillion_entries_under_a_limit() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "MALLOC_ARENA_MAX": "2"}
    command = [sys.executable, "-m", "tests.run._ladder", str(LIMIT)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr  # nothing raised, nothing killed
    seen = dict[tuple[int, str], str]()
    for line in result.stdout.splitlines():
        cells, name, outcome = line.split(" | ")
        seen[int(float(cells)), name] = outcome
    for cells in STEPS:
        for name in ALWAYS:
            assert seen[cells, name] == "answered", (cells, name)
        for name in DENSE:
            expected = "answered" if 4 * cells < LIMIT * 2**20 else "refused"
            assert seen[cells, name] == expected, (cells, name)
    assert [seen[cells, "dense J.sparse()"] for cells in STEPS] == ["answered"] * 4 + ["refused"] * 5


def dense(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(0, 1, n).requires_grad_()
    return torch.sin(x * x.sum()), x


def wide_inside(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor 500 times as large as both ends lies between them."""
    x = torch.linspace(0, 1, n).requires_grad_()
    return torch.sin(x[:, None] * torch.ones(500)).sum(1) * x.sum(), x


def free_is(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("wrt._backends.torch.arrays.TorchArrays.free_memory", lambda self, value: count)


def test_the_peak_is_refused_although_the_answer_alone_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    y, x = wide_inside(8192)
    free_is(monkeypatch, int(300 * 2**20 / 0.9))
    with pytest.raises(TooLarge) as caught:
        (d(y) / d(x)).value
    assert str(caught.value) == (
        "the Jacobian has 8192 x 8192 entries: 256.0 MiB\n"
        "  about 326.3 MiB at the peak of computing it, 300.0 MiB are free\n"
        "  ask for rows J[i], products J @ v or u @ J, J.sparse() if most of it is zero, or send it to disk with J.to_zarr(path)"
    )


def test_calls_shrink_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    y, x = dense(8192)
    free_is(monkeypatch, 2**40)
    plenty = lines_per_call((d(y) / d(x)).ask, 8192)
    free_is(monkeypatch, int(260 * 2**20 / 0.9))
    ask = (d(y) / d(x)).ask
    assert 1 <= lines_per_call(ask, 8192) < plenty
    assert call_bytes(ask) <= 2**20


def test_an_answer_looks_at_the_memory_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    y, x = dense(4200)
    J = d(y) / d(x)
    free_is(monkeypatch, 2**40)
    J.explain()
    free_is(monkeypatch, int(66 * 2**20 / 0.9))  # less than the 67.3 MiB of the answer
    with pytest.raises(TooLarge, match=r"66\.0 MiB are free"):
        J.value


def test_a_hidden_tensor_that_dwarfs_both_ends_counts() -> None:
    y, x = wide_inside(4096)
    narrow, end = dense(4096)
    wide, plain = (d(y) / d(x)).ask, (d(narrow) / d(end)).ask
    lines = [lines_per_call(ask, 4096) for ask in (wide, plain)]
    assert lines[0] < lines[1]
    assert call_bytes(wide) / lines[0] > 400 * call_bytes(plain) / lines[1]  # 500 times as much for a line


def test_small_questions_ask_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "allowed", lambda: pytest.fail("asked how much memory is free"))
    y, x = dense(1000)
    assert (d(y) / d(x)).value.shape == (1000, 1000)


def test_limits_of_the_process_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    group = tmp_path / "groups" / "user" / "job"
    group.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/user/job\n")
    monkeypatch.setattr(room, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(room, "SELF", tmp_path / "self")
    assert room._control_group() == float("inf")
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("500\n")
    assert room._control_group() == float("inf")
    (group / "memory.max").write_text("2000\n")
    (group / "memory.stat").write_text("anon 400\ninactive_file 100\n")
    assert room._control_group() == 2000 - 500 + 100
    (tmp_path / "groups" / "user" / "memory.max").write_text("1000\n")
    (tmp_path / "groups" / "user" / "memory.current").write_text("900\n")
    assert room._control_group() == 100  # the tightest on the way up


def test_an_older_control_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    group = tmp_path / "groups" / "memory" / "job"
    group.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/job\n2:cpu,cpuacct:/\n")
    (group / "memory.limit_in_bytes").write_text("3000\n")
    (group / "memory.usage_in_bytes").write_text("1000\n")
    monkeypatch.setattr(room, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(room, "SELF", tmp_path / "self")
    assert room._control_group() == 2000


def test_nonzeros_that_outgrow_the_memory_are_refused_as_soon_as_it_shows() -> None:
    y, x = dense(6000)
    with wrt.options(memory=50 * 2**20), pytest.raises(TooLarge) as caught:
        (d(y) / d(x)).sparse()
    first, second, third = str(caught.value).splitlines()
    assert first.startswith("the nonzeros of 6000 x 6000 entries: about ")
    assert second.endswith("50.0 MiB were free")
    assert third == "  ask for rows J[i], products J @ v or u @ J, or a region J[a:b, c:d]"


def test_what_the_system_refuses_is_said_in_words() -> None:
    y, x = dense(100)
    ask = (d(y) / d(x)).ask
    with pytest.raises(TooLarge, match="the system refused memory on the way to it: can't allocate"):
        memory.refuse_if_no_memory(RuntimeError("can't allocate memory: you tried to allocate 4 bytes"), ask)
    memory.refuse_if_no_memory(RuntimeError("another error"), ask)  # which is left to whoever caught it


@pytest.mark.parametrize("way", ["pull", "push"])
def test_calls_that_the_system_refuses_are_made_smaller(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, tried = getattr(TorchEngine, way), []

    def refuse(self: TorchEngine, lines: Any, *, batched: bool = True) -> Any:
        tried.append(len(lines if way == "pull" else lines[0]))
        if tried[-1] > 30:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(self, lines, batched=batched)

    monkeypatch.setattr(TorchEngine, way, refuse)
    y, x = dense(100)
    with wrt.options(way=way):
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, row_loop(y, x))
    assert J.certificate
    assert tried == [100, 25, 25, 25, 25]


def test_what_the_system_refuses_inside_of_a_sweep_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, seeds: object, *, batched: bool = True) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes")

    monkeypatch.setattr("wrt._backends.torch.engine.TorchEngine.pull", refuse)
    y, x = dense(100)
    with pytest.raises(TooLarge, match="the system refused memory on the way to it"):
        (d(y) / d(x)).value
