import pytest

from tests.conformance.frameworks import framework
from tests.conformance.ways import CASES, IDS, refuses_a_real_of_a_complex, run


@pytest.mark.parametrize(("scenario", "way"), CASES, ids=IDS)
def test_scenario(scenario, way):
    finite = framework("finite")
    if sentence := finite.cannot(way):
        pytest.skip(sentence)
    run(finite, scenario, way)


def test_not_holomorphic_is_refused():
    refuses_a_real_of_a_complex(framework("finite"))
