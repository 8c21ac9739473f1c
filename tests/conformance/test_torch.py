import pytest

from tests.conformance.frameworks import framework
from tests.conformance.ways import CASES, IDS, refuses_a_real_of_a_complex, run


@pytest.mark.parametrize(("scenario", "way"), CASES, ids=IDS)
def test_scenario(scenario, way):
    pytest.importorskip("torch")
    torch = framework("torch")
    if sentence := torch.cannot(way):
        pytest.skip(sentence)
    run(torch, scenario, way)


def test_not_holomorphic_is_refused():
    pytest.importorskip("torch")
    refuses_a_real_of_a_complex(framework("torch"))
