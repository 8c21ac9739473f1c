"""Two architectures of keras.applications; `make corpus` runs all of them."""

import pytest

from corpus.keras_applications import ARCHITECTURES, compare


@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50V2"])
def test_one_element_of_an_architecture_equals_a_plain_tape(name: str) -> None:
    outcome = compare(name)
    assert outcome.equal, str(outcome)
    assert outcome.operations > 500


def test_at_least_ten_architectures_are_in_the_corpus() -> None:
    assert len(ARCHITECTURES) >= 10
