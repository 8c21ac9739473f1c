"""Nothing global may change here either, but for the threads that zarr and dask keep for their own use."""

from collections.abc import Iterator

import pytest

from tests import _snapshot


@pytest.fixture(autouse=True)
def nothing_global_changes() -> Iterator[None]:
    before = _but_threads()
    yield
    _snapshot.require_same(before, _but_threads())


def _but_threads() -> dict[str, object]:
    return {name: fact for name, fact in _snapshot.ambient().items() if name != "threads"}
