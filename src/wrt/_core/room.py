"""How much memory this process may still take by the limits set for it: address space, and its control group."""

from __future__ import annotations

import math
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
SELF = Path("/proc/self")


def available() -> int:
    """Bytes free in the memory of this machine."""
    import psutil

    return int(psutil.virtual_memory().available)


def allowed() -> float:
    """Bytes left under every limit that is set; infinity where none is."""
    return min(_address_space(), _control_group())


def _address_space() -> float:
    """What `ulimit -v` leaves; each thread and library counts there too."""
    try:
        import resource
    except ImportError:  # not on Windows
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return math.inf
    pages = _words(SELF / "statm")
    return max(0.0, limit - int(pages[0]) * resource.getpagesize()) if pages else math.inf


def _control_group() -> float:
    """What a container leaves; pages of files that can be dropped count as free."""
    left = math.inf
    for line in _lines(SELF / "cgroup"):
        kinds, path = line.split(":", 2)[1:]
        if kinds == "":  # version 2
            left = min(left, _in_groups(GROUPS / path.lstrip("/"), GROUPS, "memory.max", "memory.current", "inactive_file"))
        elif "memory" in kinds.split(","):
            top = GROUPS / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            left = min(left, _in_groups(top / path.lstrip("/"), top, *names))
    return left


def _in_groups(folder: Path, top: Path, limit: str, usage: str, droppable: str) -> float:
    """The tightest limit on the way up; a container sees its own group at the top."""
    left = math.inf
    for group in (folder, *folder.parents):
        most, taken = _words(group / limit), _words(group / usage)
        if most and taken and most[0].isdigit() and int(most[0]) < 2**60:
            spare = sum(int(line.split()[1]) for line in _lines(group / "memory.stat") if line.startswith(f"{droppable} "))
            left = min(left, max(0, int(most[0]) - int(taken[0]) + spare))
        if group == top:
            break
    return left


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
