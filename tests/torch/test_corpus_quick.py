"""One sample of every operator of torch's own test database; `make corpus` takes all of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_one_sample_of_every_operator_agrees_with_the_row_loop() -> None:
    pytest.importorskip("expecttest")
    ran = subprocess.run(
        [sys.executable, "-m", "corpus.opinfo", "--quick"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "       0  unexpected" in ran.stdout
