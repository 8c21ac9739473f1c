"""Which accelerator a process computes on: one for each worker, where there are any."""

from __future__ import annotations

import sys
import zlib

from wrt._beyond.pack import travel


def device_here(wanted: str, frameworks: list[str]) -> str | None:
    """`wanted`, or for "auto" this worker's share of the accelerators; None leaves it to the framework."""
    if wanted != "auto":
        return wanted
    for name in frameworks:
        found = travel(name).devices()
        if found:
            return share(found, worker_number())
    return None


def share(devices: list[str], number: int) -> str:
    """The device of the worker with this number.

    >>> share(["cuda:0", "cuda:1"], 3)
    'cuda:1'
    """
    return devices[number % len(devices)]


def worker_number() -> int:
    """Which worker of its machine this process is: by its name where that is a number, otherwise by its address."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return 0
    try:
        worker = distributed.get_worker()
    except ValueError:
        return 0
    digits = "".join(c for c in str(worker.name) if c.isdigit()) if "://" not in str(worker.name) else ""
    return int(digits) if digits else zlib.crc32(str(worker.address).encode())
