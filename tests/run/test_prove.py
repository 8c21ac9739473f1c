"""The one proof: every column held to its own size, zeros that should not be, what is not finite, and doubt that is settled."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.problems import row_loop
from wrt import d
from wrt._backends.torch.engine import TorchEngine
from wrt._run.prove import compare, weights_of
from wrt._run.thresholds import FLOOR_ROUNDINGS, OWN_ROUNDINGS, OWN_ROUNDINGS_HALF

pytestmark = pytest.mark.usefixtures("planned_from_the_start")

DOUBLE, SINGLE, HALF = 2.0**-52, 2.0**-23, 2.0**-8

# ---------------------------------------------------------------- the comparison


def compare_matrices(handed_out, right, precision=DOUBLE):
    """The verdict on one matrix, where the independent pass goes through another."""
    weights = weights_of(len(right))
    return compare(weights @ handed_out, np.linalg.norm(handed_out, axis=0), weights @ right, precision)


def random_matrix(m, n, seed, spread=0.0):
    """Columns whose sizes differ by up to that many powers of ten."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, n)) * 10.0 ** (-spread * rng.random(n))


SIZES = st.tuples(st.integers(2, 60), st.integers(2, 30), st.integers(0, 10**6))


@settings(max_examples=100, deadline=None)
@given(SIZES, st.floats(0, 12))
def test_a_right_answer_holds_however_its_columns_differ(size, spread):
    m, n, seed = size
    right = random_matrix(m, n, seed, spread)
    rounded = right.astype(np.float32)
    found = compare_matrices(rounded.astype(np.float64), right, SINGLE)
    assert found.certificate
    assert not len(found.doubtful)


@settings(max_examples=100, deadline=None)
@given(SIZES, st.sampled_from([(DOUBLE, 1e-9), (SINGLE, 1e-3), (HALF, 0.5)]), st.data())
def test_a_column_that_is_scaled_is_found_and_named(size, held_to, data):
    """Where it is at least a thousandth of the largest."""
    m, n, seed = size
    precision, fault = held_to
    right = random_matrix(m, n, seed, 0.0 if precision == HALF else 3.0)
    column = data.draw(st.integers(0, n - 1))
    sizes = np.linalg.norm(right, axis=0)
    if abs(weights_of(m) @ right[:, column]) < 0.3 * sizes[column] or sizes[column] < 1e-3 * sizes.max():
        return  # a probe that nearly vanishes there sees less
    wrong = right.copy()
    wrong[:, column] *= 1 + fault
    found = compare_matrices(wrong, right, precision)
    assert not found.certificate
    assert found.doubtful.tolist() == [column]


@settings(max_examples=100, deadline=None)
@given(SIZES, st.sampled_from(["columns", "rows", "a block", "the layout", "a shift"]), st.data())
def test_entries_in_the_wrong_place_are_found(size, what, data):
    m, n, seed = size
    if what == "the layout":
        n = m
    right = random_matrix(m, n, seed)
    wrong = right.copy()
    if what == "columns":
        a, b = data.draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=2, unique=True))
        wrong[:, [a, b]] = wrong[:, [b, a]]
    elif what == "rows":
        a, b = data.draw(st.lists(st.integers(0, m - 1), min_size=2, max_size=2, unique=True))
        wrong[[a, b]] = wrong[[b, a]]
    elif what == "a block":
        wrong[m // 2 :, n // 2 :] = 0
    elif what == "the layout":
        wrong = wrong.T.copy()
    else:
        wrong = np.roll(wrong, 1, axis=1)
    assert not compare_matrices(wrong, right).certificate


@pytest.mark.parametrize("probe", [1e-300, 1e-30, 1.0])
def test_zeros_with_a_probe_that_is_not_zero_always_fail(probe):
    right = np.array([[1e6, probe], [1e6, 0.0]])
    wrong = right.copy()
    wrong[:, 1] = 0
    found = compare_matrices(wrong, right)
    assert not found.certificate
    assert found.doubtful.tolist() == [1]


def test_what_is_allowed_does_not_grow_with_the_rows():
    few, many = (compare(np.zeros(1), np.ones(1), np.zeros(1), SINGLE) for _ in (10, 10**6))
    assert few.allowed == many.allowed == SINGLE * (OWN_ROUNDINGS + FLOOR_ROUNDINGS)


def test_half_precision_says_how_small_a_fault_would_show():
    found = compare_matrices(np.eye(3), np.eye(3), HALF).certificate
    assert found
    assert found.resolution == HALF * (OWN_ROUNDINGS_HALF + FLOOR_ROUNDINGS)
    assert "a fault below 6 % of a column would not show" in str(found)
    assert "would not show" not in str(compare_matrices(np.eye(3), np.eye(3), SINGLE).certificate)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_column_that_is_not_finite_is_left_out_and_told_and_the_others_are_held(number):
    right = random_matrix(5, 4, 0)
    right[2, 1] = number
    found = compare_matrices(right, right)
    assert found.certificate
    assert not found.finite
    assert "1 of 4 columns are not finite and were not compared" in str(found.certificate)
    wrong = right.copy()
    wrong[0, 3] += 1e-9
    found = compare_matrices(wrong, right)
    assert not found.certificate
    assert found.doubtful.tolist() == [3]


def test_where_nothing_is_finite_nothing_is_proven():
    found = compare_matrices(np.full((2, 2), np.nan), np.full((2, 2), np.nan)).certificate
    assert found.passed  # nothing speaks against it,
    assert not found  # and nothing for it


def test_the_weights_of_two_rows_are_never_the_same_and_never_small():
    for count in (2, 3, 1000):
        weights = np.abs(weights_of(count))
        assert len(np.unique(weights_of(count))) == count
        assert 0.5 <= weights.min() <= weights.max() <= 1.5


# ---------------------------------------------------------------- doubt is settled


def asked(strays, n=400, dtype=torch.float64):
    """A stencil with entries outside of it: (row, column, slope)."""
    x = torch.randn(n, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = (x.sin() + 0.5 * x.roll(1)).clone()
    for row, column, slope in strays:
        y[row] = y[row] + slope * x[column]
    return y, x


@pytest.mark.parametrize(
    "strays",
    [
        [(137, 211, 1e-3)],
        [(137, 211, 1e-3), (138, 211, 2.0), (9, 300, -1.0)],
        [(50, 52, 1.0), (52, 50, 1.0)],
        [(row, 77, 1.0) for row in range(100, 160)],
        [(130, column, 0.1) for column in range(20, 36)],
    ],
)
def test_only_the_columns_that_disagree_are_swept_alone(strays):
    y, x = asked(strays)
    truth = row_loop(y, x)
    for _ in range(2):  # cold, then warm
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, truth, rtol=1e-12, atol=1e-12)
        assert J.explain().strategy == "structured"
        assert J.explain().passes < 40
        assert J.certificate
        assert "swept alone" in str(J.certificate)
    np.testing.assert_allclose((d(y) / d(x)).sparse().toarray(), truth.numpy(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close((d(y) / d(x)).diagonal(), truth.diagonal(), rtol=1e-12, atol=1e-12)


def test_the_columns_are_named():
    y, x = asked([(137, 211, 1e-3), (9, 300, -1.0)])
    J = d(y) / d(x)
    _ = J.value
    assert str(J.certificate).endswith("2 columns (211, 300) swept alone")


def test_a_guess_that_is_wrong_in_many_columns_is_dropped():
    y, x = asked([(row, (7 * row) % 400, 0.3) for row in range(3, 390, 9)])
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.certificate
    assert "DISAGREES with an independent backward pass" in J.explain().fallbacks[0] or "check" in J.explain().fallbacks[0]


def test_single_precision_is_settled_too():
    y, x = asked([(137, 211, 0.5)], dtype=torch.float32)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-5, atol=1e-6)
    assert J.explain().strategy == "structured"


def uneven(stray, large, n=400, seed=0):
    """A stencil whose first half is large, and one entry outside of it in the other half, in single precision."""
    scale = torch.ones(n)
    scale[: n // 2] = large
    x = torch.randn(n, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    y = (scale * x.sin() * x.roll(1)).clone()
    y[137] = y[137] + stray * x[250]
    return y, x


@pytest.mark.parametrize("large", [1.0, 1e4, 2e5])
def test_a_column_is_held_to_its_own_size_not_to_the_largest(large):
    for seed in range(4):  # cold, then warm
        y, x = uneven(1.0, large, seed=seed)
        J = d(y) / d(x)
        assert J.value[137, 250].item() == 1.0
        torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-5, atol=1e-6 * large)
        assert "column 250 swept alone" in str(J.certificate)
        assert (d(y) / d(x)).sparse()[137, 250] == 1.0


@pytest.mark.parametrize("count", [5, 200])
def test_roundoff_of_what_cancelled_in_small_columns_is_no_alarm(count):
    """Their entries are what is left of much larger numbers. A few are pushed alone, and seen to be right."""
    n = 400
    small = torch.arange(n) % (n // count) == 0
    scale, away = torch.where(small, 1.0, 1e4), torch.where(small, 3e5, 0.0)
    for seed in range(4):
        x = torch.randn(n, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        y = scale * x.sin() + away * x + 0.5 * x.roll(1) + 0.3 * x.roll(2) - away * x
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-5, atol=0.2)
        if count == 5:
            assert (J.explain().strategy, J.explain().fallbacks) == ("structured", ())
            assert J.certificate
        else:  # in so many columns that the rows themselves are all that is left
            assert J.explain().because.endswith("one plain pass a row")
            assert torch.equal(J.value, row_loop(y, x))
            assert J.certificate.kind == "engine"


def tall(m=300, n=20):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(m, n, dtype=torch.float64, generator=generator)
    x = torch.randn(n, dtype=torch.float64, generator=generator).requires_grad_()
    return torch.sin(matrix @ torch.tanh(x)), x


@pytest.mark.parametrize("size", [1e-9, 1e-4])
@pytest.mark.parametrize("row", [0, 111, 299])
def test_a_column_that_every_push_gives_wrong_in_one_place_is_found(monkeypatch, row, size):
    """Swept alone it is as wrong as before, and its largest entries are right: halving the rows leads to the one that is not."""
    right = TorchEngine.push

    def wrong(self, tangents, *, batched=True):
        swept = right(self, tangents, batched=batched)
        swept.arrays = [swept.arrays[0].clone()]
        swept.arrays[0][:, row] += size * tangents[0][:, 3]
        return swept

    monkeypatch.setattr(TorchEngine, "push", wrong)
    y, x = tall()
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-12, atol=1e-12)
    assert J.certificate
    assert J.explain().fallbacks == ("direct, push, batched: does not agree with the independent check",)


def test_columns_that_nobody_can_push_go_to_the_next_plan(monkeypatch):
    monkeypatch.setattr(TorchEngine, "can_push", False)
    y, x = uneven(1.0, 1e3)
    J = d(y) / d(x)
    assert J.value[137, 250].item() == 1.0
    assert J.explain().strategy != "structured"
    assert J.certificate


# ---------------------------------------------------------------- no false alarms


def deep(depth, size=12):
    torch.manual_seed(0)
    matrix = torch.randn(size, size) / size**0.5
    x = torch.randn(size, requires_grad=True)
    y = x
    for _ in range(depth):
        y = torch.sin(matrix @ y) + 0.3 * y
    return y, x


@pytest.mark.parametrize("depth", [1, 10, 100, 400])
def test_a_deep_program_raises_no_alarm(depth):
    y, x = deep(depth)
    J = d(y) / d(x)
    truth = row_loop(y, x)
    torch.testing.assert_close(J.value, truth, rtol=0, atol=float(truth.abs().max()) * 1e-4)
    assert J.certificate
    assert not J.explain().fallbacks


class Wavering(torch.autograd.Function):
    """A backward that is never the same twice."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        Wavering.turn += 1
        return g * (1 + 1e-3 * Wavering.turn)

    turn = 0


def test_an_engine_that_never_says_the_same_twice_is_not_vouched_for():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, dtype=torch.float64, generator=generator).requires_grad_()
    y = torch.randn(4, 6, dtype=torch.float64, generator=generator) @ Wavering.apply(x)
    J = d(y) / d(x)
    _ = J.value
    assert not J.certificate
    assert "DISAGREES with an independent backward pass" in str(J.certificate)
