"""Every labelled tensorflow failure gets its cause and its line."""

from pathlib import Path

import pytest

from tests.why._cases import hold, paths


@pytest.mark.parametrize("path", paths("tensorflow"), ids=lambda path: path.stem)
def test_the_cause_and_the_line(path: Path) -> None:
    hold(path, "tensorflow")
