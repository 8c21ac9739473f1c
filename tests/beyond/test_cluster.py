"""Two worker processes on loopback: the same bits as one process, whatever is killed on the way."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("zarr")
ROOT = Path(__file__).parents[2]


def test_a_cluster_answers_as_one_process_does(tmp_path: Path) -> None:
    """One test for all: starting processes takes longer than everything they do here."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.beyond._on_a_cluster", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert (tmp_path / "told.json").exists(), run.stderr
    told = json.loads((tmp_path / "told.json").read_text())

    assert told["same bits"] == {"bits": True}
    assert told["slices"]["blocks"] == 2
    assert max(told["slices"]["recorded"]) == 1  # a worker records once and answers many blocks
    assert told["sent once"] == {"right": True, "states": 2, "questions": 6}  # the scheduler, in the same process, pickles too
    assert told["mapped"] == {"bits": True, "computed": [4, 0]}
    assert told["worker killed"] == {"bits": True, "computed": 12}
    assert told["demo"]["agreed"]
    assert told["demo"]["lines"][0] == "a slice of shape (50, 10) computed 2 of 6 blocks"
    assert "asked again: 0 blocks computed, 6 were there" in told["demo"]["lines"]
    assert told["live"]["words"].startswith("J.dask(): the graph of live tensors stays in this process")
    assert told["poisoned"]["words"].splitlines() == [
        f"1 of 4 blocks are missing in {tmp_path / 'poisoned'}",
        "  block [6:9, 0:6]: ValueError: row 7 is poisoned",
        "  mend that and run it again: only what is missing is computed",
    ]
    assert told["second derivative"] == {"bits": True, "right": True}
    full = told["disk full"]
    assert full["words"].splitlines()[0] == f"4 of 4 blocks are missing in {tmp_path / 'full'}"
    assert "OSError: [Errno 27] File too large" in full["words"].splitlines()[1]
    assert (full["there"], full["computed"], full["bits"]) == (0, 4, True)
    again = told["restarted"]
    assert "blocks are missing in" in again["words"]
    assert "the scheduler lost the work" in again["words"].splitlines()[1]
    assert (again["there"] <= again["found"] < 12, again["bits"]) == (True, True)
    gone = told["scheduler gone"]
    assert 3 <= gone["there"] < 12
    assert "blocks are missing in" in gone["words"]
    assert "the scheduler" in gone["words"].splitlines()[1]
    assert gone["bits"]
    assert gone["there"] <= gone["found"] < 12  # a worker may still finish the block it had
