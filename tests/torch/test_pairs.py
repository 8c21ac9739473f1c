"""Which elements meet in an operation, read off its own backward: what is claimed holds every nonzero."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.plan.problems import row_loop
from wrt import d
from wrt._plan.patterns.irregular import compose

INDEX = torch.tensor([3, 0, 0, 5, 2, 4, 1, 3])


def weights(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


EXACT = {
    "gather": lambda x: x.gather(0, INDEX[:, None].expand(8, 4)),
    "index": lambda x: x[INDEX],
    "two indices": lambda x: x[INDEX, INDEX % 4],
    "mask": lambda x: x[x.detach() > 0],
    "index_select": lambda x: x.index_select(0, INDEX),
    "index_add": lambda x: torch.zeros(7, 4, dtype=x.dtype).index_add(0, INDEX[:6], x),
    "index_add into x": lambda x: x.index_add(0, INDEX, x[INDEX]),
    "scatter_add": lambda x: torch.zeros(6, 4, dtype=x.dtype).scatter_add(0, INDEX[:6, None].expand(6, 4), x),
    "index_put": lambda x: torch.zeros(6, dtype=x.dtype).index_put((INDEX[:4],), x[0], accumulate=True),
    "cat": lambda x: torch.cat([x, x[:2].sin()]),
    "stack": lambda x: torch.stack([x, x.cos()], 1),
    "slice": lambda x: x[1:5:2, 1:],
    "select": lambda x: x[:, -1],
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll((1, 2), (0, 1)),
    "transpose": lambda x: x.T.reshape(-1),
    "permute": lambda x: x.reshape(2, 3, 4).permute(2, 0, 1),
    "expand": lambda x: x[:, :1].expand(6, 5),
    "broadcast": lambda x: x * x[:1].sin(),
    "repeat": lambda x: x.repeat(2, 1),
    "unbind": lambda x: x.unbind(0)[2] + x.unbind(0)[4],
    "split": lambda x: torch.cat(x.split(2)[::-1]),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "diagonal": lambda x: x.diagonal(),
    "embedding": lambda x: F.embedding(INDEX[:5], x),
    "unfold": lambda x: x.unfold(0, 3, 1),
    "product": lambda x: x @ weights(4, 3),
    "product from the left": lambda x: weights(3, 6) @ x,
    "products in a batch": lambda x: x.reshape(2, 3, 4) @ weights(2, 4, 2),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, (4,)),
    "layer norm of two axes": lambda x: F.layer_norm(x.reshape(2, 3, 4), (3, 4)),
    "finite elements": lambda x: torch.zeros(6, dtype=x.dtype).index_add(
        0, INDEX[:6], (x[INDEX[:6]] @ weights(4, 4)).pow(2).sum(1)
    ),
}


def claimed(f, at=0):
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(at)).requires_grad_()
    y = f(x)
    ask = (d(y) / d(x)).ask
    local = ask.y.record.local_maps(ask.y, ask.x.values[0])
    return None if local is None else compose(local, np.arange(ask.m), np.arange(ask.n), most=1.0), row_loop(y, x)


@pytest.mark.parametrize("name", EXACT)
def test_the_pattern_that_operations_tell_is_that_of_the_row_loop(name):
    pattern, truth = claimed(EXACT[name])
    assert pattern is not None
    np.testing.assert_array_equal(pattern.toarray(), truth.numpy() != 0)


MASKED = {"tril": lambda x: x.tril(), "where": lambda x: torch.where(torch.arange(4) > 1, x, x.flip(0))}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_leaves_more_in_the_pattern_than_there_is(name):
    pattern, truth = claimed(MASKED[name])
    assert not np.any((truth.numpy() != 0) & ~pattern.toarray())
    assert pattern.sum(1).max() <= 2


@pytest.mark.parametrize("f", [F.relu, torch.abs, F.hardtanh, lambda x: x.clamp(min=0)])
def test_a_slope_that_happens_to_be_zero_stays_in_the_pattern(f):
    pattern, _ = claimed(f)
    np.testing.assert_array_equal(pattern.toarray(), np.eye(24, dtype=bool))


@pytest.mark.parametrize(
    "f",
    [lambda x: torch.linalg.inv(x[:4]), lambda x: x.cumprod(0), lambda x: torch.fft.fft(x).real, lambda x: x.softmax(0)],
)
def test_nothing_is_claimed_of_an_operation_that_mixes_in_its_own_way(f):
    assert claimed(f)[0] is None
