"""The table of scenarios in every way of asking, in TensorFlow; a gap is a sentence of its capabilities."""

import pytest

from tests.conformance.frameworks import framework
from tests.conformance.scenarios import Scenario
from tests.conformance.ways import CASES, IDS, refuses_a_real_of_a_complex, run


@pytest.mark.parametrize(("scenario", "way"), CASES, ids=IDS)
def test_scenario(scenario: Scenario, way: str) -> None:
    tensorflow = framework("tensorflow")
    if sentence := tensorflow.cannot(way):
        pytest.skip(sentence)
    run(tensorflow, scenario, way)


def test_not_holomorphic_is_refused() -> None:
    refuses_a_real_of_a_complex(framework("tensorflow"))
