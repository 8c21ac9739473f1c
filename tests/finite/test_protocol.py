"""Everything that the protocol asks for is there, in every object of the backend; nothing is sniffed."""

from typing import Any

import numpy as np
import pytest

from tests.finite.reference.backend import BACKEND
from wrt._core import protocol


def members(asked: type) -> set[str]:
    """The names that a protocol asks for, its own and those it takes over."""
    kinds = [one for one in asked.__mro__ if one.__module__ == protocol.__name__]
    return {name for one in kinds for name in (*vars(one), *one.__annotations__) if not name.startswith("_")}


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    backend = BACKEND
    recording = backend.trace(np.sin, (np.ones(3),), {})
    engine = recording.engine(recording.output, recording.inputs)
    sheet = backend.arrays.sheet((2, 2), recording.output)
    return {"Backend": backend, "Arrays": backend.arrays, "Recording": recording, "Engine": engine, "Sheet": sheet}


@pytest.mark.parametrize("name", ["Backend", "Arrays", "Recording", "Engine", "Sheet"])
def test_every_member_is_there(name: str, parts: dict[str, Any]) -> None:
    assert {member for member in members(getattr(protocol, name)) if not hasattr(parts[name], member)} == set()
