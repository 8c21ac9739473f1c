"""Arrays as a page reads them."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from wrt._microscope.encode import WORDS


def decode(told: dict[str, Any]) -> np.ndarray:
    """The array that `encode.array` made these bytes of."""
    return np.frombuffer(base64.b64decode(told["base64"]), dtype=WORDS[told["dtype"]]).reshape(told["shape"])
