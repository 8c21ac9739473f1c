"""Through a narrow cut of a network: as few passes as it is narrow, and the same numbers as a row loop."""

from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.problems import row_loop
from wrt import d
from wrt._backends.torch.live import LiveRecord
from wrt._core.flow import Flow
from wrt._plan import cost, plans
from wrt._plan.cut import bottlenecks, narrowest


def network(*widths: int) -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for a, b in pairwise(widths):
        layers += [torch.nn.Linear(a, b), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1]).double()


def flow(sizes: list[int], made_from: list[list[int]], x: int) -> Flow:
    zeros = [0.0] * len(sizes)
    return Flow(sizes, made_from, zeros, zeros, (x,), False, 1.3, lambda tensor: None)


def test_an_autoencoder_takes_a_pass_for_each_number_of_its_code_and_each_way():
    net = network(200, 64, 8, 64, 200)
    x = torch.randn(200, dtype=torch.float64, requires_grad=True)
    y = net(x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.explain().strategy == "cut"
    assert J.explain().passes == 8 + 8 + 1
    assert "8 numbers" in J.explain().because


def test_a_second_run_of_the_same_network_goes_through_the_same_cut():
    net = network(200, 64, 8, 64, 200)
    for seed in range(3):
        x = torch.randn(200, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        y = net(x)
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
        assert J.explain().strategy == "cut"
        assert J.explain().passes == 8 + 8 + 1
        assert J.certificate


def test_what_is_not_finite_is_the_same_when_asked_again():
    """Nothing of it can be compared, and nothing is made up."""
    down, up = network(200, 8), network(8, 200)
    x = torch.randn(200, dtype=torch.float64, requires_grad=True)
    code = torch.relu(down(x))
    y = up(torch.sqrt(code))  # its slope at zero is infinite
    first, again = ((d(y) / d(x)).value for _ in range(2))
    torch.testing.assert_close(again, first, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(again, row_loop(y, x), rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_cut_of_two_tensors():
    a, b = network(900, 6), network(900, 5)
    up = network(6, 900), network(5, 900)
    x = torch.randn(900, dtype=torch.float64, requires_grad=True)
    y = up[0](torch.tanh(a(x))) * torch.sin(up[1](torch.tanh(b(x))))
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.explain().strategy == "cut"
    assert J.explain().passes <= 2 * 11 + 1


def test_with_a_path_around_it_a_narrow_tensor_cuts_nothing():
    net = network(200, 64, 8, 64, 200)
    x = torch.randn(200, dtype=torch.float64, requires_grad=True)
    y = net(x) + 1e-3 * x
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("change", ["a skip", "a shorter way", "another width"])
def test_a_cut_of_last_time_that_is_none_now_is_found(monkeypatch, change):
    """Programs that look the same to the planner; a known cut is followed to where it lay, and proven again."""
    monkeypatch.setattr(LiveRecord, "signature", lambda self, y, xs: ("everything looks the same",))
    net = network(200, 64, 8, 64, 200)
    x = torch.randn(200, dtype=torch.float64, requires_grad=True)
    y = net(x)
    J = d(y) / d(x)
    assert J.value is not None
    assert J.explain().strategy == "cut"
    if change == "a skip":
        h = net[:3](x)
        y = net[3:](h) + 0.1 * net[6](torch.tanh(net[0](x)))
    elif change == "a shorter way":
        y = 2 * x.sin()
    else:
        y = network(200, 64, 9, 64, 200)(x)
    torch.testing.assert_close((d(y) / d(x)).value, row_loop(y, x), rtol=1e-12, atol=1e-12)


def test_a_hook_on_a_narrow_tensor_is_not_applied_twice():
    first, last = network(200, 8), network(8, 200)
    x = torch.randn(200, dtype=torch.float64, requires_grad=True)
    code = torch.tanh(first(x))
    code.register_hook(lambda g: 3 * g)
    y = last(code)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)


def test_the_last_layer_is_not_multiplied_by_the_identity():
    net = network(100, 100, 100, 100)
    x = torch.randn(100, dtype=torch.float64, requires_grad=True)
    y = net(x)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert "y is a matrix times a tensor, where the rows start" in J.explain().because
    assert [(step.what, step.passes) for step in J.explain().steps][-2:] == [("rows carried on", 100), ("independent check", 1)]


def test_weights_that_depend_on_x_are_not_taken_for_constants():
    torch.manual_seed(0)
    base = torch.randn(100, 100, dtype=torch.float64)
    x = torch.randn(100, dtype=torch.float64, requires_grad=True)
    y = (base * x) @ torch.tanh(x)
    torch.testing.assert_close((d(y) / d(x)).value, row_loop(y, x), rtol=1e-12, atol=1e-12)


def test_bottlenecks_are_what_everything_passes():
    # 0 = y <- 1 <- (2, 3) <- 4 <- 5 = x
    chart = flow([9, 4, 3, 3, 5, 9], [[1], [2, 3], [4], [4], [5], []], 5)
    assert bottlenecks(chart) == [1, 4]
    assert narrowest(chart, below=9) == (1,)


def test_a_set_of_several_tensors_can_be_narrowest():
    chart = flow([9, 8, 2, 2, 8, 9], [[1], [2, 3], [4], [4], [5], []], 5)
    assert narrowest(chart, below=9) == (2, 3)
    assert narrowest(chart, below=4) is None


def _joined(made_from: list[list[int]], without: set[int], tensor: int = 0) -> bool:
    """Whether a way leads from y to the last tensor, x, that passes none of these."""
    if tensor == len(made_from) - 1:
        return True
    return any(_joined(made_from, without, source) for source in made_from[tensor] if source not in without)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_narrowest_set_is_the_least_of_all_sets_that_cut(data):
    count = data.draw(st.integers(2, 7))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=count, max_size=count))
    sources = [st.sets(st.integers(k + 1, count - 1), min_size=1, max_size=3) for k in range(count - 1)]
    made_from = [sorted(data.draw(each)) for each in sources] + [[]]
    inner = range(1, count - 1)
    sets = [set(each) for size in inner for each in combinations(inner, size) if not _joined(made_from, set(each))]
    least = min((sum(sizes[k] for k in each) for each in sets), default=None)
    for below in (1, 3, 6, 12):
        found = narrowest(flow(sizes, made_from, x=count - 1), below=below)
        if least is None or least >= below:
            assert found is None
        else:
            assert found is not None
            assert set(found) in sets
            assert sum(sizes[k] for k in found) == least


@pytest.mark.parametrize(("quick", "strategy"), [(1.0, "direct"), (3e-4, "cut")])
def test_a_cut_is_looked_for_where_samples_would_take_too_long(monkeypatch, quick, strategy):
    """A sweep that is over before samples would be: the graph tells without a pass, unless even that is not worth it."""
    monkeypatch.setattr(plans, "QUICK_SECONDS", quick)
    wide = torch.randn(500, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = wide @ torch.tanh(wide.T @ x / 9)
    for _ in range(9):
        y = torch.sin(y)
    monkeypatch.setattr(cost, "cheapest", lambda *given: 2e-4 if min(given[2:]) > 4 else 1e-5)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-11)
    assert J.explain().strategy == strategy
    assert not any("sampled" in step.what for step in J.explain().steps)
