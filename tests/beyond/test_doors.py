"""Answers on disk and clusters against those they are not for: nothing foreign is overwritten, believed, or let in."""

import copy
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wrt
from tests.beyond._models import jacobian, model, stencil, weights
from tests.core.test_graph_file import MALFORMED, load
from wrt import d
from wrt._cli.query import read
from wrt._microscope import assets
from wrt.errors import NotInstalled, WrtError

zarr = pytest.importorskip("zarr")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("distributed")
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("WRT_KILLS", "6"))


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def dense(path: Path) -> Any:
    return jacobian(model(20, 30, 40)).to_zarr(path, chunks=(10, -1), client=None)


def csr(path: Path) -> Any:
    run = wrt.Model(stencil, None, torch.linspace(0.5, 1, 50, dtype=torch.float64)).trace()
    return (d(run.output) / d(run.inputs[0])).to_zarr(path, layout="csr", client=None)


def mapped(path: Path) -> Any:
    xs = torch.linspace(-1, 1, 240, dtype=torch.float64).reshape(40, 6)
    of = wrt.Model(lambda state: lambda x: torch.tanh(x @ state[0]) @ state[1], weights(6, 8, 4))
    return wrt.map(lambda t: d(t.output) / d(t.inputs[0]), xs, model=of, to=path, batch=10, client=None)


WAYS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "dense": (dense, "answer"),
    "csr": (csr, "answer"),
    "map to zarr": (mapped, "answer"),
    "map to parquet": (mapped, "answer.parquet"),
}


def foreign_group(path: Path) -> None:
    group = zarr.open_group(path, mode="w")
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=np.arange(5))


def foreign_array(path: Path) -> None:
    zarr.create_array(str(path), data=np.zeros((40, 20)), chunks=(10, 20))


def foreign_folder(path: Path) -> None:
    (path / "c" / "0").mkdir(parents=True)
    (path / "c" / "0" / "0").write_bytes(b"mine")


def foreign_file(path: Path) -> None:
    path.write_bytes(b"mine")


def foreign_table(path: Path) -> None:
    import pyarrow

    path.mkdir()
    parquet.write_table(pyarrow.table({"sample": [0], "value": [1.0]}), path / "part-00000-abc.parquet")


def foreign_claim(path: Path) -> None:
    """A folder that says it is wrt's, in a form that wrt never writes."""
    zarr.open_group(path, mode="w").attrs["wrt"] = 7
    (path / "_wrt.json").write_text("[]")


FOREIGN = [foreign_group, foreign_array, foreign_folder, foreign_file, foreign_table, foreign_claim]


@pytest.mark.parametrize("make", FOREIGN)
@pytest.mark.parametrize("way", WAYS)
def test_what_somebody_else_wrote_is_refused_and_stays(tmp_path: Path, way: str, make: Callable[[Path], None]) -> None:
    write, name = WAYS[way]
    make(tmp_path / name)
    before = bytes_below(tmp_path)
    with pytest.raises(WrtError) as caught:
        write(tmp_path / name)
    assert len(str(caught.value).splitlines()) == 3
    assert bytes_below(tmp_path) == before


def blocks(way: str, path: Path) -> list[Path]:
    found = path.glob("*.parquet") if way == "map to parquet" else (path / "c").rglob("*")
    return sorted(one for one in found if one.is_file())


def truncated(block: Path, other: Path) -> None:
    block.write_bytes(block.read_bytes()[:-9])


def emptied(block: Path, other: Path) -> None:
    block.write_bytes(b"")


def garbage(block: Path, other: Path) -> None:
    block.write_bytes(bytes(range(256)) * (len(block.read_bytes()) // 256) + bytes(len(block.read_bytes()) % 256))


def of_another_place(block: Path, other: Path) -> None:
    shutil.copy(other, block)


@pytest.mark.parametrize("harm", [truncated, emptied, garbage, of_another_place])
@pytest.mark.parametrize("way", ["dense", "map to zarr", "map to parquet"])
def test_a_block_that_wrt_did_not_write_is_not_believed(tmp_path: Path, way: str, harm: Callable[[Path, Path], None]) -> None:
    write, name = WAYS[way]
    path = tmp_path / name
    write(path)
    truth = bytes_below(path)
    other, block, *_ = blocks(way, path)
    harm(block, other)
    before = bytes_below(path)
    with pytest.raises(WrtError) as caught:
        write(path)
    assert len(str(caught.value).splitlines()) == 3
    assert bytes_below(path) == before  # and not overwritten, either
    block.unlink()
    assert write(path).computed == 1
    assert bytes_below(path) == truth


PIPES = [(way, name) for way in WAYS for name in ("zarr.json", "block")] + [("dense", "seal"), ("map to parquet", "_wrt.json")]


@pytest.mark.parametrize(("way", "name"), [one for one in PIPES if one != ("map to parquet", "zarr.json")])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path: Path, way: str, name: str) -> None:
    write, called = WAYS[way]
    path = tmp_path / called
    write(path)
    inside = path / "data" if way == "csr" else path
    place = blocks(way, inside)[0] if name == "block" else path / "wrt" / "0-0" if name == "seal" else path / name
    place.unlink()
    os.mkfifo(place)
    told: list[bool] = []
    reader = threading.Thread(target=lambda: told.append(is_refused(lambda: write(path))), daemon=True)
    reader.start()
    reader.join(timeout=20)
    assert told == [True]


@pytest.mark.parametrize("write", [dense, csr, mapped])
def test_a_store_that_is_no_folder_follows_the_same_rules(write: Callable[[Any], Any]) -> None:
    store = zarr.storage.MemoryStore()
    assert write(store).computed > 0
    assert write(store).computed == 0
    for foreign in (foreign_group, lambda place: zarr.create_array(place, data=np.zeros((40, 20)))):
        taken = zarr.storage.MemoryStore()
        foreign(taken)
        before = {key: value.to_bytes() for key, value in taken._store_dict.items()}
        with pytest.raises(WrtError):
            write(taken)
        assert {key: value.to_bytes() for key, value in taken._store_dict.items()} == before


def test_nonzeros_that_were_changed_are_not_believed(tmp_path: Path) -> None:
    csr(tmp_path / "answer")
    assert csr(tmp_path / "answer").computed == 0
    zarr.open_group(tmp_path / "answer", mode="r+")["data"][3] = 5.0
    with pytest.raises(WrtError, match="not those that wrt wrote"):
        csr(tmp_path / "answer")


def test_a_foreign_table_within_a_folder_of_wrt_is_refused(tmp_path: Path) -> None:
    mapped(tmp_path / "answer.parquet")
    shutil.copy(tmp_path / "answer.parquet" / "part-000000000000.parquet", tmp_path / "answer.parquet" / "part-00000-x.parquet")
    with pytest.raises(WrtError, match=r"part-00000-x\.parquet"):
        mapped(tmp_path / "answer.parquet")


@pytest.mark.parametrize("way", WAYS)
def test_what_is_said_to_be_finished_is_on_the_disk(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, name = WAYS[way]
    synced: set[tuple[int, int]] = set()
    plain = os.fsync

    def fsync(file: int) -> None:
        found = os.fstat(file)
        synced.add((found.st_dev, found.st_ino))
        plain(file)

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path / name)
    places = [tmp_path, tmp_path / name, *(tmp_path / name).rglob("*")]
    left = [str(one) for one in places if (one.stat().st_dev, one.stat().st_ino) not in synced]
    assert left == []


@pytest.mark.parametrize("kind", ["dense", "csr", "parquet", "resume"])
def test_killed_at_any_moment_it_is_whole_or_absent(tmp_path: Path, kind: str, record_property: Any) -> None:
    command = [sys.executable, "-m", "tests.beyond._killed", kind, str(tmp_path), str(KILLS)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60 + 20 * KILLS)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    record_property("told", f"kill -9, {kind}: {told}")
    assert (told["torn"], told["other bits"], told["foreign bytes changed"]) == (0, 0, 0)
    assert told["kills"] > 0


# ---- clusters ----


CLUSTER = """
import os, sys, threading, wrt
if __name__ == "__main__":
    with wrt.local_cluster(1) as client:
        print(client.scheduler.address, *client.run(os.getpid).values(), flush=True)
        sys.stdin.readline()
"""
STRANGER = """
import os, sys, ssl, asyncio, distributed, distributed.comm.tcp, pickle, tornado, socket, encodings.idna
if {user}:
    os.setgroups([]); os.setgid({user}); os.setuid({user})
address = {address!r}
try:
    with distributed.Client(address, timeout=4, security={security}) as client:
        print("ran", client.submit(os.getuid).result(timeout=4))
except BaseException as error:
    print("refused", type(error).__name__)
os._exit(0)
"""


def ports_of(*processes: int) -> list[int]:
    """TCP ports on which these processes and their children listen."""
    import psutil

    found: set[int] = set()
    for process in processes:
        for one in (psutil.Process(process), *psutil.Process(process).children(recursive=True)):
            found |= {link.laddr.port for link in one.net_connections("tcp") if link.status == psutil.CONN_LISTEN}
    return sorted(found)


def speaks_http(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.settimeout(2)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        try:
            return connection.recv(5) == b"HTTP/"
        except (TimeoutError, ConnectionError):
            return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    script = tmp_path_factory.mktemp("cluster") / "cluster.py"
    script.write_text(CLUSTER)
    with subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            address, worker = program.stdout.readline().split()
            yield address, program.pid, int(worker)
            assert program.stdin is not None
            program.stdin.close()
            program.wait(timeout=30)
        finally:
            program.kill()


def stranger(address: str, user: int, security: str = "None") -> str:
    program = STRANGER.format(address=address, user=user, security=security)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    return (run.stdout.splitlines() or [run.stderr])[-1]


def test_no_process_of_a_cluster_serves_a_page(cluster: Any) -> None:
    _, process, _ = cluster
    found = ports_of(process)
    assert len(found) >= 3  # a scheduler, a nanny, a worker
    assert [port for port in found if speaks_http(port)] == []


@pytest.mark.parametrize("how", ["in the clear", "encrypted, without a certificate", "with a certificate of one's own"])
def test_nobody_without_the_certificate_of_the_run_runs_code(cluster: Any, how: str, tmp_path: Path) -> None:
    address, *_ = cluster
    security = "None"
    if how == "in the clear":
        address = address.replace("tls://", "tcp://")
    elif how == "encrypted, without a certificate":
        security = "distributed.Security(require_encryption=True)"
    else:
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-days", "2"]
        subprocess.run([*made, "-keyout", tmp_path / "key", "-out", tmp_path / "cert"], check=True, capture_output=True)
        files = {"tls_ca_file": "cert", "tls_client_cert": "cert", "tls_client_key": "key"}
        words = ", ".join(f"{name}={str(tmp_path / file)!r}" for name, file in files.items())
        security = f"distributed.Security(require_encryption=True, {words})"
    assert stranger(address, 0, security).startswith("refused")


def test_no_port_of_a_cluster_speaks_to_a_stranger(cluster: Any) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    found = ports_of(cluster[1])
    for port in found:
        with pytest.raises((ssl.SSLError, ConnectionError)), socket.create_connection(("127.0.0.1", port), timeout=5) as bare:
            with context.wrap_socket(bare) as connection:
                assert connection.recv(1) == b""  # closed
                raise ConnectionError
    assert len(found) >= 3


def test_another_user_of_the_machine_runs_no_code(cluster: Any) -> None:
    if os.getuid() != 0:
        pytest.skip("two users are two uids: only root can be both")
    assert stranger(cluster[0].replace("tls://", "tcp://"), 65534).startswith("refused")


def test_every_attempt_gets_what_the_page_says(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table in docs/beyond.md: each attempt once more, counted."""
    address, process, _ = cluster
    clear = address.replace("tls://", "tcp://")
    other_user = stranger(clear, 65534) if os.getuid() == 0 else "refused"  # only root can be two users
    rows = [
        ("code for the scheduler, from another program", stranger(clear, 0).split()[0]),
        ("code for the scheduler, from another user", other_user.split()[0]),
        ("HTTP on any port of a cluster", f"{sum(map(speaks_http, ports_of(process)))} answered"),
    ]
    for way, (write, name) in WAYS.items():
        tried = [refused_without_a_trace(tmp_path / f"{way}-{make.__name__}" / name, write, make) for make in FOREIGN]
        rows.append((f"{way}, over what somebody else wrote", f"{sum(tried)} of {len(tried)} refused, unchanged"))
    for harm in (truncated, emptied, garbage, of_another_place):
        tried = [not_believed(tmp_path / f"{way}-{harm.__name__}" / WAYS[way][1], way, harm) for way in WAYS if way != "csr"]
        rows.append((f"a block {harm.__name__.replace('_', ' ')}", f"{sum(tried)} of {len(tried)} refused, unchanged"))
    monkeypatch.setattr(assets, "bundle", lambda: assets.Bundle("", ""))
    monkeypatch.chdir(tmp_path)
    wrt.trace(lambda x: x * 2, torch.ones(2)).save("run.json")
    saved = json.loads(Path("run.json").read_text())
    tried = [is_refused(lambda one=one: load(one(copy.deepcopy(saved)) if callable(one) else one)) for one in MALFORMED.values()]
    rows.append(("a graph that is malformed", f"{sum(tried)} of {len(tried)} refused"))
    os.mkfifo("pipe")
    places = ("pipe", "/dev/zero", ".", "nowhere.json")
    tried = [is_refused(lambda one=one: wrt.load_graph(one)) for one in places]
    rows.append(("a graph that is a pipe, a device, a folder, missing", f"{sum(tried)} of 4 refused"))
    Path("own.py").write_text("import torch\n")
    t = wrt.trace(lambda x: x * 2, torch.ones(1))
    tried = [is_refused(lambda: t.save("own.py")), is_refused(lambda: t.save_html("own.py"))]
    rows.append(("a graph or a page over a script", f"{sum(tried)} of 2 refused, unchanged"))
    assert Path("own.py").read_text() == "import torch\n"
    asked = (f"y[{'9' * 5000}] / x", "y" + " / x" * 2000, "\x1b[31my / x", "y / __class__")
    tried = [is_refused(lambda one=one: read(one)) for one in asked]
    rows.append(("a question of 5,000 digits, of 8,000 signs, of escapes, of Python", f"{sum(tried)} of 4 refused"))
    width = max(len(what) for what, _ in rows)
    table = "\n".join(f"{what:{width}}  {said}" for what, said in rows)
    print(f"\n{table}")
    inside = re.search(r"<!-- doors -->\n+```text\n(.*?)```", (ROOT / "docs" / "beyond.md").read_text(), re.DOTALL)
    assert inside is not None
    assert inside[1].rstrip() == table


def is_refused(work: Callable[[], Any]) -> bool:
    try:
        work()
    except WrtError as error:
        return len(str(error).splitlines()) == 3
    return False


def refused_without_a_trace(path: Path, write: Callable[[Path], Any], make: Callable[[Path], None]) -> bool:
    path.parent.mkdir()
    make(path)
    before = bytes_below(path.parent)
    return is_refused(lambda: write(path)) and bytes_below(path.parent) == before


def not_believed(path: Path, way: str, harm: Callable[[Path, Path], None]) -> bool:
    path.parent.mkdir()
    WAYS[way][0](path)
    other, block, *_ = blocks(way, path)
    harm(block, other)
    before = bytes_below(path)
    return is_refused(lambda: WAYS[way][0](path)) and bytes_below(path) == before


def test_a_worker_that_was_started_again_serves_no_page_either(cluster: Any) -> None:
    _, process, worker = cluster
    before = set(ports_of(process))
    os.kill(worker, signal.SIGKILL)
    for _ in range(150):
        time.sleep(0.2)
        if set(ports_of(process)) - before:
            break
    time.sleep(1.0)
    found = ports_of(process)
    assert set(found) - before
    assert [port for port in found if speaks_http(port)] == []


def test_without_a_way_to_make_a_certificate_there_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("cryptography") is not None:
        pytest.skip("cryptography is installed, and makes one")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotInstalled) as caught, wrt.local_cluster(1):
        pass
    assert len(str(caught.value).splitlines()) == 3
