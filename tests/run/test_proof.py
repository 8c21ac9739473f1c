"""What a proof sums up is the probe of the matrix; indices are the same wherever their tables are added up."""

from itertools import product

import numpy as np
import pytest
import torch

from tests.planner.problems import PROBLEMS, at_random, row_loop
from wrt import d
from wrt._backends.torch.arrays import TorchArrays
from wrt._core.plan import Compressed
from wrt._planner import warm
from wrt._run import compressed, proof, tables
from wrt._run.certify import signs

NAMES = ["burgers", "periodic", "three convolutions", "six readings of a grid", "batch of networks", "flattened", "strided"]


def plan_of(name):
    """A question, the plan that answered it, and the matrix by a row loop."""
    y, x = at_random(PROBLEMS[name])
    J = d(y) / d(x)
    _ = J.value
    (plan,) = (p for p in warm.kept_plans().values() if isinstance(p, Compressed))
    plan.kept.clear()
    return J.ask, plan, row_loop(y, x).numpy()


def passes_of(plan, matrix):
    """What the sweeps of a plan would return of a matrix."""
    owner, way = plan.compression.owner, plan.way
    spot = np.broadcast_to(np.arange(owner.shape[1]), owner.shape)
    line = np.maximum(owner, 0)
    return np.where(owner < 0, 0.0, matrix[line, spot] if way == "pull" else matrix[spot, line])


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_summed_up_as_the_probe_of_the_matrix(name, planned_from_the_start):
    ask, plan, matrix = plan_of(name)
    passes, expected = passes_of(plan, matrix), signs(ask.m)[0] @ matrix
    for way, sums in (("pull", expected), ("push", matrix @ signs(ask.n)[0])):
        at_hand = proof._at_hand(ask, plan, passes.dtype, way)
        np.testing.assert_allclose(at_hand.sums(at_hand.weighted(passes)), sums, rtol=1e-12, atol=1e-12)
        assert proof.compare_numbers(ask, plan, passes, sums, way, 1e-14)
    found, said = torch.from_numpy(passes), torch.from_numpy(expected[None])
    assert proof.compare(ask, plan, found, said, 1e-12)
    assert proof.as_a_whole(ask, plan, found, said, 1e-12).residual < 1e-14
    assert proof._by_columns(ask, plan, found, said, 1e-12, "").residual < 1e-13
    if plan.way == "pull":  # the probe as the last row
        assert proof.compare(ask, plan, torch.cat([found, said]), None, 1e-12)


@pytest.mark.parametrize("look", [True, False], ids=["at hand", "by the backend"])
@pytest.mark.parametrize("name", NAMES)
def test_no_number_can_be_wrong(monkeypatch, name, look, planned_from_the_start):
    """In an entry, in a slot that nobody owns, in what the engine said; by a little, or not a number at all."""
    ask, plan, matrix = plan_of(name)
    if not look:
        monkeypatch.setattr(TorchArrays, "at_hand", lambda self, *arrays: None)
    passes, expected = passes_of(plan, matrix), signs(ask.m)[0] @ matrix
    chance = np.random.default_rng(0)
    for size, where in product((1e-9, float("nan"), float("inf")), ("passes", "probe", "free")):
        wrong, said = passes.copy(), expected.copy()
        if where == "probe":
            said[chance.integers(len(said))] += size
        elif where == "passes":
            wrong.reshape(-1)[chance.integers(wrong.size)] += size
        elif len(plan.compression.free):
            wrong.reshape(-1)[chance.choice(plan.compression.free)] += size
        else:
            continue
        found, probe = torch.from_numpy(wrong), torch.from_numpy(said[None])
        together = [(torch.cat([found, probe]), None)] if plan.way == "pull" else []
        for passes_and_probe in [(found, probe), *together]:
            held = proof.compare(ask, plan, *passes_and_probe, 1e-12)
            assert not (held.passed and held.finite), (size, where)
        held = proof.compare_numbers(ask, plan, wrong, said, "pull", 1e-12)
        assert not (held.passed and held.finite), (size, where)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_and_indices_are_the_same_on_a_device(monkeypatch, name, planned_from_the_start):
    ask, plan, _ = plan_of(name)
    seeds, places = compressed.seeds_of(ask, plan), compressed.places_of(ask, plan)
    owners = tables.summed(ask, plan.compression.owners, ask.y)
    plan.kept.clear()
    monkeypatch.setattr(TorchArrays, "accelerated", lambda self, value: True)
    monkeypatch.setattr(tables, "SMALL", 0)
    assert torch.equal(compressed.seeds_of(ask, plan), seeds)
    assert torch.equal(compressed.places_of(ask, plan), places)
    assert torch.equal(tables.summed(ask, plan.compression.owners, ask.y), owners)
    lines = plan.compression.color
    assert np.array_equal(seeds.numpy(), lines == np.arange(plan.compression.passes)[:, None])


@pytest.mark.parametrize("name", NAMES)
def test_strides_are_those_of_the_places(name, planned_from_the_start):
    ask, plan, _ = plan_of(name)
    places, found = compressed.places_of(ask, plan).numpy(), plan.compression.strides
    apart = [np.diff(places.reshape(plan.compression.box), axis=k) for k in range(len(plan.compression.box))]
    even = all(len(np.unique(gaps)) <= 1 and (gaps >= 0).all() for gaps in apart)
    assert (found is not None) == even
    if found is not None:
        assert found == (places[0], tuple(int(gaps.flat[0]) if gaps.size else 0 for gaps in apart))
