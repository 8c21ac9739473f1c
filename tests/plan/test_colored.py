"""Irregular patterns: a mesh, gathers, a truss of finite elements; as few passes as colors, and a stray entry is found."""

import numpy as np
import pytest
import torch

from tests.plan.problems import row_loop
from wrt import d
from wrt._backends.torch.engine import TorchEngine


def mesh(nodes, seed=0):
    from scipy.spatial import Delaunay

    triangles = Delaunay(np.random.default_rng(seed).random((nodes, 2))).simplices.astype(np.int64)
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    return torch.from_numpy(np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0))


EDGES = mesh(600)


def diffusion(x):
    gathered = torch.zeros_like(x).index_add(0, EDGES[:, 0], x[EDGES[:, 1]].sin())
    return torch.tanh(x + 0.1 * gathered)


def two_layers(x):
    return diffusion(diffusion(x))


def features(x):
    h = x.reshape(300, 2)
    keep = (EDGES < 300).all(1)
    gathered = torch.zeros_like(h).index_add(0, EDGES[keep, 0], h[EDGES[keep, 1]])
    W = torch.tensor([[1.0, 0.5], [-0.3, 2.0]], dtype=torch.float64)
    return torch.tanh(h @ W + gathered @ W.T)


def springs(x):
    """Forces of springs between random pairs of points, assembled at both ends."""
    a, b = EDGES[EDGES[:, 0] < EDGES[:, 1]].T
    force = (x[a] - x[b]) ** 3
    return torch.zeros_like(x).index_add(0, a, -force).index_add(0, b, force)


MAPS = {"diffusion": diffusion, "two layers": two_layers, "features": features, "springs": springs}


def asked(f, seed=0):
    x = torch.randn(600, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    return f(x), x


@pytest.mark.parametrize("name", MAPS)
def test_lines_that_share_no_entry_travel_together(name):
    for seed in range(2):  # cold, then warm at another x
        y, x = asked(MAPS[name], seed)
        J = d(y) / d(x)
        truth = row_loop(y, x)
        torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-12, atol=1e-12)
        assert J.explain().strategy == "colored", J.explain()
        assert J.explain().passes < 120
        assert "entries a row" in J.explain().because
    np.testing.assert_allclose((d(y) / d(x)).sparse().toarray(), truth.numpy(), rtol=1e-12, atol=1e-12)


def test_a_dependency_that_appears_later_is_found():
    amount = {"of": 0.0}

    def f(x):
        y = diffusion(x).clone()
        y[7] = y[7] + amount["of"] * (x[500] if amount["of"] else x[7])
        return y

    y, x = asked(f)
    assert (d(y) / d(x)).value.isfinite().all()
    amount["of"] = 1e-4
    y, x = asked(f)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.certificate
    assert "column 500 swept alone" in str(J.certificate)


def arrow(x):
    """A chain of neighbors on a shuffled order, one element that meets all, and one that all meet."""
    order = torch.from_numpy(np.random.default_rng(1).permutation(600))
    back = torch.argsort(order)
    y = x[order].sin() * x[order].roll(1)
    y = y[back] + 0.3 * x[5] ** 2
    return torch.cat([y[:9], (y[9] + x.pow(2).sum()).reshape(1), y[10:]])


def test_an_arrow_takes_a_few_rows_and_a_column():
    for seed in range(2):
        y, x = asked(arrow, seed)
        J = d(y) / d(x)
        truth = row_loop(y, x)
        torch.testing.assert_close(J.value, truth, rtol=1e-12, atol=1e-12)
        assert J.explain().strategy == "colored", J.explain()
        assert "one column pushed apart" in J.explain().because
        assert J.explain().passes < 30
        assert J.certificate
    np.testing.assert_allclose((d(y) / d(x)).sparse().toarray(), truth.numpy(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close((d(y) / d(x)).diagonal(), truth.diagonal(), rtol=1e-12, atol=1e-12)


def hubs(x):
    """Neighbors in a shuffled order, three elements that every eighth one reads, and one that reads every eighth."""
    y = x[SHUFFLED].sin() * x[SHUFFLED].roll(1)
    read = torch.zeros_like(x)
    for hub in (17, 300, 431):
        read = read.index_add(0, torch.arange(hub % 8, 600, 8), x[hub].expand(75).sin())
    return (y + read).index_add(0, torch.full((75,), 50), x[::8].cos())


SHUFFLED = torch.from_numpy(np.random.default_rng(2).permutation(600))


def test_columns_are_pushed_apart_where_both_ways_together_take_less():
    for seed in range(2):
        y, x = asked(hubs, seed)
        J = d(y) / d(x)
        truth = row_loop(y, x)
        torch.testing.assert_close(J.value, truth, rtol=1e-12, atol=1e-12)
        assert "3 columns pushed apart" in J.explain().because, J.explain()
        assert J.explain().passes < 30  # 75 and more one way
        assert J.certificate
    np.testing.assert_allclose((d(y) / d(x)).sparse().toarray(), truth.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("entry", [(9, 5), (20, 5), (9, 100), (300, 300)])
def test_a_wrong_entry_of_an_arrow_is_found(monkeypatch, entry):
    y, x = asked(arrow)
    truth = row_loop(y, x)
    right_push, right_pull = TorchEngine.push, TorchEngine.pull

    def wrong_push(self, tangents, *, batched=True):
        swept = right_push(self, tangents, batched=batched)
        swept.arrays = [found.clone() for found in swept.arrays]
        if entry[1] == 5:
            swept.arrays[0][0, entry[0]] += 1e-5
        return swept

    def wrong_pull(self, seeds, *, batched=True):
        swept = right_pull(self, seeds, batched=batched)
        swept.arrays = [found.clone() for found in swept.arrays]
        if entry[1] != 5 and 1 < len(seeds) < 12:  # the colors, not the samples
            swept.arrays[0][0, entry[1]] += 1e-5
        return swept

    monkeypatch.setattr(TorchEngine, "push", wrong_push)
    monkeypatch.setattr(TorchEngine, "pull", wrong_pull)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, truth, rtol=1e-9, atol=1e-9)
    assert J.certificate
    assert J.explain().fallbacks or "swept alone" in str(J.certificate)
