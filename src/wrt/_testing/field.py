"""`assert_receptive_field`: an output position sees as much of the input as it should, no more and no less."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import wrt
from wrt._testing.verdict import Failed, Proven, assertion


@assertion
def assert_receptive_field(
    model: Callable[..., Any],
    x: Any,
    *more: Any,
    at: int | Sequence[int],
    size: int | Sequence[int],
    axes: Sequence[int] | None = None,
    **keywords: Any,
) -> Proven:
    """The output at a position can see exactly `size` positions of the input along each axis.

    >>> import torch
    >>> bool(assert_receptive_field(torch.nn.Conv2d(1, 1, 3), torch.zeros(1, 1, 9, 9), at=(3, 3), size=3))
    True
    """
    field = wrt.receptive_field(model, x, at, *more, axes=axes, **keywords)
    sizes = field.theoretical
    expected = (size,) * len(sizes) if isinstance(size, int) else tuple(size)
    if sizes != expected:
        layers = "".join(f"\n    {one}" for one in field.layers)
        raise Failed(
            f"output {list(field.at)} can see {_words(sizes)} of the input, not {_words(expected)}",
            f"from the output back:{layers}",
            "look for the layer whose kernel, stride, dilation or padding is not what you meant",
        )
    proof = f"layer by layer through {len(field.layers) - 1} places, at random inputs"
    return Proven(f"output {list(field.at)} can see {_words(sizes)} of the input", proof, len(field.layers))


def _words(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
