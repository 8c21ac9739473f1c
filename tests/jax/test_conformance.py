import jax
import pytest

from tests.conformance.frameworks import framework
from tests.conformance.ways import CASES, IDS, refuses_a_real_of_a_complex, run


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(("scenario", "way"), CASES, ids=IDS)
def test_scenario(scenario, way):
    backend = framework("jax")
    if sentence := backend.cannot(way):
        pytest.skip(sentence)
    run(backend, scenario, way)


def test_not_holomorphic_is_refused():
    refuses_a_real_of_a_complex(framework("jax"))


@pytest.mark.parametrize(("scenario", "way"), CASES[::9], ids=IDS[::9])
def test_arrays_that_numpy_cannot_see(scenario, way, monkeypatch):
    """The paths taken on an accelerator, where nothing may be fetched to be looked at."""
    for module in ("arrays", "engine"):
        monkeypatch.setattr(f"wrt._backends.jax.{module}.on_cpu", lambda: False)
    run(framework("jax"), scenario, way)
