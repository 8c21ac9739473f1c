"""The cost model: rates from a file, fitted to timed passes."""

from dataclasses import replace

import pytest
import torch

from wrt import d
from wrt._backends.torch.arrays import TorchArrays
from wrt._plan import cache, cost, plans
from wrt._plan.cost import Rates, read_rates, write_rates


@pytest.mark.parametrize(("device", "used"), [("cpu", cost.CPU), ("cuda", cost.GPU)])
def test_the_rates_that_are_shipped_are_those_in_use(device, used):
    rates = read_rates(device)
    assert rates == used
    assert all(value > 0 for value in rates.to_dict().values())


def test_rates_are_written_where_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "FILE", tmp_path / "rates.json")
    (tmp_path / "rates.json").write_text("{}")
    written = Rates(1e-6, 2e-11, 3e-10, 1.5, 2.5)
    write_rates("cpu", cost.CPU)
    write_rates("cuda", written)
    assert read_rates("cuda") == written
    assert read_rates("cpu") == cost.CPU


def test_a_fit_finds_the_rates_behind_the_times():
    fit = pytest.importorskip("benchmarks.fit")
    true = Rates(5e-6, 2e-11, 3e-10, 1.2, 3.0)
    lines = []
    for operations, products, elements in ((5, 2e5, 1e3), (40, 0, 4e4), (12, 6e4, 2e4), (3, 9e6, 5e3)):
        for k in (8, 64, 256):
            each = products * true.product + elements * true.element
            base = operations * true.operation
            lines.append(
                {
                    "passes": k,
                    "operations": operations,
                    "products": products,
                    "elements": elements,
                    "pull": base + k * each,
                    "push": base * true.push_operations + k * each * true.push,
                }
            )
    found = fit.fit(lines).to_dict()
    assert found == pytest.approx(true.to_dict(), rel=1e-2)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(400, 128), torch.nn.Tanh(), torch.nn.Linear(128, 16), torch.nn.Linear(16, 400))


def test_starting_operations_is_what_small_passes_cost_on_a_device():
    x = torch.randn(400, requires_grad=True)
    ask = (d(network()(x)) / d(x)).ask
    flow = ask.y.record.flow(ask.y, ask.x.values)
    passed = flow.between(frozenset({0}), frozenset(flow.xs))
    on_a_device = replace(flow, accelerated=True)
    assert cost.seconds(on_a_device, passed, 400) < 2 * cost.seconds(on_a_device, passed, 1)
    assert cost.seconds(flow, passed, 400) > 2 * cost.seconds(flow, passed, 1)


def test_a_device_is_done_before_planning_could_gain_anything(monkeypatch):
    """The same question has a waist that pays on a CPU; where sweeps are launch-bound nothing is sampled or cut."""
    monkeypatch.setattr(plans, "QUICK_SECONDS", 2e-4)
    monkeypatch.setattr(plans, "QUICK_SECONDS_DEVICE", 4e-3)
    x = torch.randn(400, requires_grad=True)
    y = network()(x)
    J = d(y) / d(x)
    slow = J.value
    assert J.explain().strategy == "cut"
    cache.forget()
    monkeypatch.setattr(TorchArrays, "accelerated", lambda self, value: True)
    monkeypatch.setattr(cost, "rates_on", lambda flow: cost.GPU)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, slow)
    assert J.explain().strategy == "direct"
    assert len(J.explain().steps) == 2  # the rows and their proof


def test_a_tall_jacobian_is_pushed_on_a_device_as_on_a_cpu(monkeypatch):
    """To decide for rows, begun as the weights of the last layer, took a device longer than they gain there."""
    monkeypatch.setattr(plans, "QUICK_SECONDS", 2e-3)
    monkeypatch.setattr(plans, "QUICK_SECONDS_DEVICE", 4e-3)
    torch.manual_seed(0)
    f = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2100)).double()
    x = torch.randn(16, dtype=torch.float64, requires_grad=True)
    y = f(x)
    J = d(y) / d(x)
    columns = J.value
    assert [(step.what, step.way) for step in J.explain().steps] == [("independent check", "pull"), ("columns", "push")]
    monkeypatch.setattr(TorchArrays, "accelerated", lambda self, value: True)
    monkeypatch.setattr(cost, "rates_on", lambda flow: cost.GPU)
    for _ in range(2):
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, columns, rtol=1e-12, atol=1e-14)
        assert [(step.what, step.way) for step in J.explain().steps] == [("independent check", "pull"), ("columns", "push")]
        assert J.certificate


def test_convolutions_on_a_device_are_not_sampled_where_a_walk_through_the_graph_tells_that_they_are_quick(monkeypatch):
    monkeypatch.setattr(plans, "QUICK_SECONDS", 2e-3)
    monkeypatch.setattr(plans, "QUICK_SECONDS_DEVICE", 4e-3)
    monkeypatch.setattr(TorchArrays, "accelerated", lambda self, value: True)
    monkeypatch.setattr(cost, "rates_on", lambda flow: cost.GPU)
    torch.manual_seed(0)
    f = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3, padding=1), torch.nn.Tanh(), torch.nn.Conv2d(3, 1, 3, padding=1)).double()
    x = torch.randn(1, 1, 9, 9, dtype=torch.float64, requires_grad=True)
    y = f(x)
    J = d(y) / d(x)
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0].reshape(-1) for one in y.reshape(-1)]
    torch.testing.assert_close(J.value.reshape(81, 81), torch.stack(rows))
    assert J.explain().strategy == "direct"
    assert [step.what for step in J.explain().steps] == ["rows", "independent check"]
