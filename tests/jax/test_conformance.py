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
