"""A product of arrays with named axes is what einsum makes of it, however large it is and however its axes lie."""

import pytest
import torch

from wrt._backends.torch import contract as under_test
from wrt._backends.torch.contract import contract

LENGTHS = dict(zip("abcdefg", (3, 4, 5, 2, 3, 4, 6), strict=True))


def made(names: str) -> torch.Tensor:
    return torch.randn([LENGTHS[name] for name in names], dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("large", [0, 2**16])
@pytest.mark.parametrize(
    "equation",
    ["ab,bc->ac", "abc,bcd->bad", "abcdef,defcg->eabcg", "abcd,cadef->abef", "abc,ad->abcd", "abcd,cbd->bacd", "ab,ab->ab"],
)
def test_it_is_what_einsum_makes(monkeypatch, equation, large):
    monkeypatch.setattr(under_test, "LARGE", large)
    given, _ = equation.split("->")
    one, other = map(made, given.split(","))
    torch.testing.assert_close(contract(equation, one, other), torch.einsum(equation, one, other), rtol=1e-14, atol=1e-14)
    turned = one.mT.contiguous().mT  # the same numbers, in another order in memory
    torch.testing.assert_close(contract(equation, turned, other), torch.einsum(equation, one, other), rtol=1e-14, atol=1e-14)
