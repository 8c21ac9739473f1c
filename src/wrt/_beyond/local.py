"""A cluster on this machine, for itself alone: loopback, one thread a worker, nothing to look at from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wrt._beyond.needs import needs

SHARED = "XLA_PYTHON_CLIENT_PREALLOCATE"
"""JAX would take most of a GPU for each process; workers of one machine may have to share one."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@contextmanager
def local_cluster(workers: int = 2, *, memory: str | int = "auto") -> Iterator[Any]:
    """`with wrt.local_cluster(4) as client:` starts processes that answer blocks and batches, and ends them afterwards.

    `memory` is the limit of each worker, in bytes or as "2GiB".
    """
    distributed = needs("distributed", "a cluster")
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=memory,
            env=ONE_THREAD | {SHARED: os.environ.get(SHARED, "false")},
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
