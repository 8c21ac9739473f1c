"""Tables by kinds of nodes: who is in them, and that they hold on to nothing of the user's."""

import gc
import weakref

import pytest
import torch

from wrt import d
from wrt._backends.torch import flow
from wrt._backends.torch.nodes import ByKind

TABLES = {"views": flow._VIEWS}


def tripled():
    """A Function of the user's, named so that its node is called as one of torch's own."""

    class Sin(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 3 * x

        @staticmethod
        def backward(ctx, g):
            return 3 * g

    return Sin


def test_a_kind_is_looked_up_by_name_once_and_an_unknown_one_is_none():
    named = {"SinBackward0": "sine"}
    kinds = ByKind(named)
    x = torch.ones(2, requires_grad=True)
    assert [kinds[type(y.grad_fn)] for y in (x.sin(), x.cos())] == ["sine", None]
    named["SinBackward0"] = "another"
    assert kinds[type(x.sin().grad_fn)] == "sine"
    kinds.clear()
    assert kinds[type(x.sin().grad_fn)] == "another"


@pytest.mark.parametrize("kinds", TABLES.values(), ids=list(TABLES))
def test_a_function_of_the_user_is_in_no_table_whatever_it_is_called(kinds):
    y = tripled().apply(torch.ones(2, requires_grad=True))
    assert type(y.grad_fn).__name__ == "SinBackward"
    named = ByKind({"SinBackward": "sine"})
    assert named[type(y.grad_fn)] is None
    assert kinds[type(y.grad_fn)] is None


@pytest.mark.parametrize("shape", [(20, 3), (3, 20), (3, 3)])
def test_a_function_is_freed_once_the_user_drops_it(shape):
    """Asked for rows, for columns and for both: every table has been looked into."""
    function = tripled()
    x = torch.ones(shape[1], requires_grad=True)
    value = (d(torch.ones(shape) @ function.apply(x).sin()) / d(x)).value
    torch.testing.assert_close(value, torch.full(shape, 3 * torch.tensor(3.0).cos().item()))
    held = weakref.ref(function), weakref.ref(function._backward_cls)
    assert all(one() is not None for one in held)
    for kinds in TABLES.values():
        assert function._backward_cls not in kinds
    del function, value
    gc.collect()
    assert [one() for one in held] == [None, None]
