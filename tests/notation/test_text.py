"""The repr and the explanation are the interface: their words are held here."""

import torch

from wrt import d


def question() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    return torch.stack([x.sum(), (x**2).sum()]), x


def test_the_repr_says_what_it_is_what_it_costs_and_whether_it_was_computed() -> None:
    y, x = question()
    J = d(y) / d(x)
    assert repr(J) == "Derivative  y[2] wrt x[3]   2 passes (pull)   not computed"
    assert repr(J[1, 2]) == "Derivative  y wrt x   1 pass (pull)   not computed"
    element = J[1, 2]
    assert float(element) == 6.0
    assert repr(element) == "Derivative  y wrt x = 6"
    J.value
    assert repr(J) == "Derivative  y[2] wrt x[3]   computed in 3 passes"
    assert repr(d(x)) == "d(tensor)  shape (3,)"
    assert repr(d([x, y])) == "d(tree of 2 tensors)"
    assert repr(d(y) / d(y)) == "Derivative  y[2] wrt x[2]   the identity, no pass   not computed"
    assert repr(d(y) / d(x) / d(x)) == "Derivative  y[2] wrt x[3] wrt z[3]   2 x differentiated again   not computed"
    far = torch.ones(1, requires_grad=True)
    later = far * 2
    zeros = d(far) / d(later)
    zeros.value
    assert repr(zeros) == "Derivative  y[1] wrt x[1]   not connected: exact zeros"


def test_explain_before_and_after() -> None:
    y, x = question()
    J = d(y) / d(x)
    assert str(J.explain()) == (
        "question     2 x 3 entries, shape (2, 3), 48 bytes\n"
        "strategy     direct, pull, because 2 rows asked for, 3 columns\n"
        "passes       2 expected; not computed yet"
    )
    row = J[0]
    row.value
    assert str(row.explain()) == (
        "question     1 x 3 entries, shape (3,), 24 bytes\n"
        "strategy     direct, because one row is one pass\n"
        "passes       1\n"
        "  rows: 1 by pull, one by one, 1 call\n"
        "certificate  the engine's own plain pass"
    )
    assert repr(row.explain()) == str(row.explain())
    assert row.explain().to_dict()["passes"] == 1
    same = d(y) / d(y)
    same.value
    assert str(same.explain()) == (
        "question     2 x 2 entries, shape (2, 2), 32 bytes\n"
        "strategy     none needed, because y and x are the same tensor: the identity\n"
        "passes       0\n"
        "certificate  y and x are the same tensor: the identity"
    )


def test_explain_of_products() -> None:
    y, x = question()
    J = d(y) / d(x)
    torch.ones(2) @ J
    assert "  u @ J: 1 by pull, one by one, 1 call" in str(J.explain())
    J @ torch.ones(3)
    told = str(J.explain())
    assert "  independent check: 1 by pull, one by one, 1 call" in told
    assert "  J @ v: 1 by push, double backward, one by one, 1 call" in told
    assert "certificate  checked against an independent backward pass: largest difference " in told
