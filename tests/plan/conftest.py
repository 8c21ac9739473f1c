"""Every question here is planned."""

import pytest


@pytest.fixture(autouse=True)
def always_planned(planned_from_the_start: None) -> None:
    pass
