"""Programs of chance, with views, pieces, sums and tensors that are used again and again: rules say what a row loop says.

What a rule may write to, and what somebody else still reads, shows in how operations meet, not in one of them.
"""

import random

import pytest
import torch
import torch.nn.functional as F

from wrt._backends.torch.compat import edge_of
from wrt._backends.torch.rules import proof
from wrt._backends.torch.rules.families import Terms
from wrt._backends.torch.rules.program import program

ONES = torch.full((6, 6), 0.1, dtype=torch.float64)

OPERATIONS = [
    lambda a, b: torch.add(a, b, alpha=2), lambda a, b: a + b, lambda a, b: a.sin() + a, lambda a, b: a * 0.5 + b,
    lambda a, b: a - b[:1], lambda a, b: a * b,
    lambda a, b: a.tanh(), lambda a, b: a.relu(), lambda a, b: (0.1 * a).exp(), lambda a, b: a.reshape(3, 2).reshape(6),
    lambda a, b: a.t().reshape(6), lambda a, b: a @ b.t() @ a, lambda a, b: a[:1].expand(2, 3), lambda a, b: a.sum(0) + b,
    lambda a, b: torch.cat([a[:, 1:], b[:, :1]], 1), lambda a, b: torch.cat([a[:1], b[1:]]),
    lambda a, b: torch.stack([a.unbind(0)[1], b.unbind(0)[0]]), lambda a, b: torch.stack([a[0], b[1]]),
    lambda a, b: torch.cat([a.split([1, 2], 1)[1], b.split([1, 2], 1)[0]], 1),
    lambda a, b: a[:, torch.tensor([2, 0, 2])], lambda a, b: F.linear(a.reshape(6), ONES, b.reshape(6)),
]  # fmt: skip


def spot(tensor):
    edge = edge_of(tensor)
    return edge.node, edge.output_nr


def some_program(chance):
    """Every tensor of a run, the last of which is y, and one to three of them as x."""
    numbers = torch.Generator().manual_seed(chance.randrange(2**30))
    tensors = [torch.randn(2, 3, dtype=torch.float64, generator=numbers).requires_grad_() for _ in range(2)]
    for _ in range(chance.randint(4, 14)):
        a, b = (chance.choice(tensors[-4:]).reshape(2, 3) for _ in range(2))
        tensors.append(chance.choice(OPERATIONS)(a, b))
    spots = {spot(tensor): tensor for tensor in tensors[:-1] if spot(tensor) != spot(tensors[-1])}
    return tensors, chance.sample(list(spots.values()), chance.choice([1, 1, 2, 3]))


def agree(chance):
    """Whether rules and a row loop agree about one program, and everything that was there before is as it was."""
    tensors, xs = some_program(chance)
    y = tensors[-1]
    seeds = torch.randn(5, *y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = [tensor.detach().clone() for tensor in (*tensors, seeds)]
    rows = [torch.autograd.grad(y, xs, each, retain_graph=True, allow_unused=True) for each in seeds]
    expected = [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]
    found = program(spot(y), [spot(x) for x in xs])
    if found is None:
        return expected == [None] * len(xs)
    for answer in (found.pull(seeds), found.pull(seeds.clone(), spent=True)):
        for pulled, said in zip(answer, expected, strict=True):
            if pulled is None or said is None:
                if pulled is not said:
                    return False
            elif not torch.allclose(pulled, said, rtol=1e-10, atol=1e-10 * max(1.0, float(said.abs().max()))):
                return False
    return all(torch.equal(tensor, was) for tensor, was in zip((*tensors, seeds), before, strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_rules_equal_a_row_loop_and_write_to_nothing_of_others(seed):
    chance = random.Random(seed)
    assert all(agree(chance) for _ in range(20))


def test_a_gradient_that_is_written_to_while_somebody_reads_it_is_found(monkeypatch):
    """The programs are rich enough: forget that a gradient is shared, and they disagree."""

    right = Terms.carry
    monkeypatch.setattr(Terms, "carry", lambda *given: (right(*given)[0], True))
    chance = random.Random(0)
    try:
        assert not all(agree(chance) for _ in range(60))
    finally:
        proof.forget()  # what was found out with this fault
