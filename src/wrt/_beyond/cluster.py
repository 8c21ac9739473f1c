"""A cluster for one run on this machine: encrypted, for whoever holds its certificate, without any page."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from wrt.errors import NotInstalled

distributed: Any = import_module("distributed")


class Scheduler(distributed.Scheduler):  # type: ignore[misc]
    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Dask's own serves what it knows to anybody who asks, also where no dashboard is wanted."""


class Worker(distributed.Worker):  # type: ignore[misc]
    start_http_server = Scheduler.start_http_server


@contextmanager
def processes(workers: int, memory: str | int) -> Iterator[Any]:
    """The client of so many workers, each with one thread; they end with it."""
    # JAX would take most of a GPU for each process; workers of one machine may have to share one.
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "false")}
    alone = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    same = {"host": "127.0.0.1", "protocol": "tls://", "security": certificate()}
    of_each = {"nthreads": 1, "memory_limit": memory, "env": alone | shared, "silence_logs": 50, "worker_class": Worker}
    worker = {"cls": distributed.Nanny, "options": of_each | same}
    scheduler = {"cls": Scheduler, "options": {"port": 0, "dashboard": False, **same}}
    every: dict[str, Any] = {"workers": dict.fromkeys(range(workers), worker), "worker": worker, "scheduler": scheduler}
    every |= {"security": same["security"], "silence_logs": 50}
    with distributed.SpecCluster(**every) as cluster, distributed.Client(cluster) as client:
        yield client


def certificate() -> Any:
    """A key and a certificate made for this run, in memory alone: who has them belongs to it."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=wrt", "-days", "365"]
    if shutil.which("openssl") is None:
        if find_spec("cryptography") is not None:
            return distributed.Security.temporary()
        where = "neither the program openssl nor the package cryptography is here to make its certificate"
        raise NotInstalled("a cluster that nobody else can use needs openssl", where, "pip install cryptography")
    with tempfile.TemporaryDirectory(prefix="wrt-") as folder:  # for this user alone
        key, cert = Path(folder, "key"), Path(folder, "cert")
        subprocess.run([*made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
        both = {"key": key.read_text(), "cert": cert.read_text()}
    roles = {f"tls_{role}_{part}": text for role in ("client", "scheduler", "worker") for part, text in both.items()}
    return distributed.Security(require_encryption=True, tls_ca_file=both["cert"], **roles)
