"""The cost model: rates from a file, fitted to timed passes."""

import pytest

from wrt._planner import cost
from wrt._planner.rates import Rates, shipped


def test_the_rates_that_are_shipped_are_those_in_use():
    rates = shipped()
    assert rates == cost.RATES
    assert all(value > 0 for value in rates.to_dict().values())


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
