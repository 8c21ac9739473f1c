"""The table of the README, row by row: the shape and the passes it names are those that `explain()` reports."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests._pages import blocks

README = (Path(__file__).parents[2] / "README.md").read_text()
ROW = re.compile(r"^\| `(?P<asks>.+?)` \| `(?P<shape>\(.*?\))` \| (?P<passes>\d+)", re.MULTILINE)
ROWS = {row["asks"]: (row["shape"], int(row["passes"])) for row in ROW.finditer(README)}


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the block above the table defines."""
    from wrt import d

    found: dict[str, Any] = {"d": d}
    setup = next(block for block in blocks(README) if "Sequential" in block.code.text)
    exec("import torch\n" + setup.code.text, found)
    return found


def test_the_table_is_there() -> None:
    assert len(ROWS) >= 8


@pytest.mark.parametrize("asks", ROWS)
def test_the_row_is_true(asks: str, names: dict[str, Any]) -> None:
    shape, passes = ROWS[asks]
    J = eval(asks, names)
    J.value
    assert str(J.shape) == shape
    assert J.explain().passes == passes
    assert J.certificate


def test_code_starts_by_line_five() -> None:
    assert any(line.startswith("```python") for line in README.splitlines()[:5])
