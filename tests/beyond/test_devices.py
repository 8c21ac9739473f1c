"""One accelerator for each worker, where there are any."""

import sys
from types import SimpleNamespace

import pytest

import wrt
from wrt._beyond import model, needs
from wrt._beyond.store import Stored
from wrt._beyond.workers import Note
from wrt.errors import NotInstalled


@pytest.mark.parametrize(("name", "device"), [(0, "cuda:0"), (1, "cuda:1"), (2, "cuda:0"), ("worker-3", "cuda:1")])
def test_workers_share_out_the_accelerators(monkeypatch, name, device: str) -> None:
    worker = SimpleNamespace(name=name, address="tcp://127.0.0.1:40000")
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(get_worker=lambda: worker))
    monkeypatch.setattr(model, "travel", lambda name: SimpleNamespace(devices=lambda: ["cuda:0", "cuda:1"]))
    assert model.device_here("auto", ["torch"]) == device


def test_a_worker_without_a_number_is_known_by_its_address(monkeypatch) -> None:
    worker = SimpleNamespace(name="tcp://127.0.0.1:40000", address="tcp://127.0.0.1:40000")
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(get_worker=lambda: worker))
    assert model.worker_number() == model.worker_number() > 0


def test_what_was_asked_for_is_taken_and_none_leaves_it_to_the_framework(monkeypatch) -> None:
    assert model.device_here("cpu", ["torch"]) == "cpu"
    monkeypatch.setattr(model, "travel", lambda name: SimpleNamespace(devices=list))
    assert model.device_here("auto", ["torch"]) is None


def test_a_missing_package_is_asked_for_in_words() -> None:
    with pytest.raises(NotInstalled) as error:
        needs("no_such_package.array", "J.dask()")
    assert str(error.value).splitlines() == [
        "J.dask() needs no_such_package",
        "  it is not installed (No module named 'no_such_package')",
        "  pip install 'wrt[dask]'",
    ]


def test_the_doors_list_what_stands_beyond() -> None:
    assert {"Model", "map", "local_cluster", "Stored"} <= set(dir(wrt))


def test_what_is_on_disk_tells_who_computed_on_what() -> None:
    note = Note("worker 1", 3 * 2**20, 1, "cuda:1")
    assert repr(Stored("j", None, (4, 4), 2, 2, 0.5, {"worker 1": note})).splitlines() == [
        "Stored  4 x 4 in 2 blocks at j",
        "  2 computed in 0.5 s, 0 were there already",
        "  peak memory of worker 1: 3.0 MiB, computing on cuda:1",
    ]
