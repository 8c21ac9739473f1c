"""Step aside of every active mode, so that looking at a tensor is not itself recorded, counted or refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def aside(torch: Any) -> Iterator[None]:
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        yield
