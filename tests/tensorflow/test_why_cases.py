"""Every labelled tensorflow failure gets its cause and its line."""

import pytest

from tests.why._programs import Program, cases, hold


@pytest.mark.parametrize("case", cases("tensorflow"), ids=str)
def test_the_cause_and_the_line(case: Program) -> None:
    hold("tensorflow", case)
