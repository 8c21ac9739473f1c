"""A small convolutional run to look at, and a stand-in for the built page where it is not what is tested."""

import pytest
import torch

import wrt
from wrt._microscope import assets

STAND_IN = assets.Bundle('export default {}; document.title = "</script><!-- </SCRIPT>";', "body { color: black }")


class Net(torch.nn.Module):
    """Two convolutions and a linear layer, in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 3, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(3, 4, 3, stride=2)
        self.fc = torch.nn.Linear(4 * 9, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.conv1(x))
        return self.fc(torch.tanh(self.conv2(h)).flatten(1))


def model_and_input(seed: int = 0) -> tuple[Net, torch.Tensor]:
    """The same numbers every time, without touching the random state of the test."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Net().double(), torch.randn(1, 1, 8, 8, dtype=torch.float64)


@pytest.fixture(scope="module")
def net() -> Net:
    return model_and_input()[0]


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return model_and_input()[1]


@pytest.fixture(scope="module")
def run(net: Net, x: torch.Tensor) -> wrt.Trace:
    return wrt.trace(net, x, values=True)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> assets.Bundle:
    """The hosts without the built front end."""
    monkeypatch.setattr(assets, "bundle", lambda: STAND_IN)
    return STAND_IN
