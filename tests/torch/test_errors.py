"""Every refusal has three lines: what happened, where things stand, what to write. The words are part of the product."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import wrt
from tests._snapshot import unchanged
from wrt import d
from wrt import errors as e


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, requires_grad=True)


def no_grad_at_all() -> tuple[Any, ...]:
    weights = torch.ones(3)
    loss = weights.sum()
    return lambda: d(loss) / d(weights), loss, weights


def x_without_grad() -> tuple[Any, ...]:
    model, images = nn.Linear(3, 1), torch.ones(2, 3)
    loss = model(images).sum()
    return lambda: d(loss) / d(images), loss, images


def under_no_grad() -> tuple[Any, ...]:
    x = leaf(3)
    with torch.no_grad():
        y = x * 2
    return lambda: d(y) / d(x), x, y


def detached() -> tuple[Any, ...]:
    x, bias = leaf(3), leaf(3)
    loss = (x.detach() * 2 + bias).sum()
    return lambda: (d(loss) / d(x)).value, x, loss


def through_item() -> tuple[Any, ...]:
    x, scale = leaf(3), leaf(1)
    loss = x.sum().item() * scale
    return lambda: (d(loss) / d(x)).value, x, loss


def freed() -> tuple[Any, ...]:
    x = leaf(3)
    loss = (x**2).sum()
    torch.autograd.grad(loss, x)
    return lambda: (d(loss) / d(x)).value, x, loss


def integers() -> tuple[Any, ...]:
    tokens = torch.tensor([1, 2])
    return lambda: d(tokens), tokens


def booleans() -> tuple[Any, ...]:
    mask = torch.tensor([True])
    return lambda: d(mask), mask


def inference() -> tuple[Any, ...]:
    with torch.inference_mode():
        y = torch.ones(3)
    return lambda: d(y), None


def inference_run() -> tuple[Any, ...]:
    with torch.inference_mode():
        t = wrt.trace(lambda x: 2 * x, torch.ones(3, requires_grad=True))
    return lambda: d(t.output) / d(t.inputs[0]), None


def filled_unrecorded() -> tuple[Any, ...]:
    h = torch.zeros(3)
    h[0] = 1.0
    h[1] = 3 * h[0].clone()
    return lambda: (d(h)[1] / d(h)[0]).value, h


def filled_in_the_graph() -> tuple[Any, ...]:
    x = torch.ones(3, requires_grad=True)
    h = torch.zeros(3)
    h[0] = x[0]
    h[1] = 3 * h[0].clone()
    return lambda: (d(h)[1] / d(h)[0]).value, x


def sparse() -> tuple[Any, ...]:
    y = torch.eye(2).to_sparse()
    return lambda: d(y), None


def other_framework() -> tuple[Any, ...]:
    jax = pytest.importorskip("jax.numpy")
    y = leaf(2) * 2
    x = jax.ones(2)
    return lambda: d(y) / d(x), y


def reentrant() -> tuple[Any, ...]:
    x, layer = leaf(2, 3), nn.Linear(3, 3)
    y = checkpoint(layer, x, use_reentrant=True)
    return lambda: (d(y) / d(x)).value, x, y, layer


def reentrant_parameter() -> tuple[Any, ...]:
    x, layer = leaf(2, 3), nn.Linear(3, 3)
    y = checkpoint(layer, x, use_reentrant=True)
    return lambda: (d(y) / d(layer.weight)).value, x, y, layer


def changed_in_place() -> tuple[Any, ...]:
    x = leaf(3)
    h = x * 2
    y = h**2
    h.add_(1)
    return lambda: (d(y) / d(x)).value, x, h, y


def wrong_v() -> tuple[Any, ...]:
    x = leaf(3)
    y = torch.stack([x.sum(), x.prod()])
    return lambda: (d(y) / d(x)) @ torch.ones(2), x, y


def wrong_u() -> tuple[Any, ...]:
    x = leaf(3)
    y = torch.stack([x.sum(), x.prod()])
    return lambda: torch.ones(3) @ (d(y) / d(x)), x, y


def not_one_number() -> tuple[Any, ...]:
    x = leaf(3)
    y = x * 2
    return lambda: float(d(y) / d(x)), x, y


def no_diagonal() -> tuple[Any, ...]:
    x = leaf(3)
    y = x[:2] * 2
    return lambda: (d(y) / d(x)).diagonal(), x, y


def a_string() -> tuple[Any, ...]:
    return lambda: d("loss"), None


def bare_x() -> tuple[Any, ...]:
    x = leaf(3)
    y = x * 2
    return lambda: d(y) / x, x, y


def bare_y() -> tuple[Any, ...]:
    x = leaf(3)
    y = x * 2
    return lambda: y.detach().numpy() / d(x), x, y


def too_large() -> tuple[Any, ...]:
    x = leaf(1000)
    y = x * 2

    def ask() -> Any:
        with wrt.options(memory=10**6):
            return (d(y) / d(x)).value

    return ask, x, y


def second_order_of_a_stranger() -> tuple[Any, ...]:
    x, stranger = leaf(3), leaf(3)
    y = (x**3).sum()
    return lambda: (d(y) / d(x) / d(stranger)).value, x, y


CASES: dict[Callable[[], tuple[Any, ...]], tuple[type[Exception], type[Exception], str]] = {
    no_grad_at_all: (e.NotRecorded, RuntimeError, """\
loss does not require grad, so torch kept no history of it
  it is a leaf with requires_grad=False: nothing before it, or everything before it, was cut off
  weights.requires_grad_() before computing loss, or run the code inside `with wrt.record():`"""),
    x_without_grad: (e.NotRecorded, RuntimeError, """\
images does not require grad, so torch kept no path to it
  it is a leaf with requires_grad=False: nothing before it, or everything before it, was cut off
  images.requires_grad_() before computing loss, or run the code inside `with wrt.record():`"""),
    under_no_grad: (e.NotRecorded, RuntimeError, """\
y does not require grad, so torch kept no history of it
  it is a leaf with requires_grad=False: nothing before it, or everything before it, was cut off
  x.requires_grad_() before computing y, or run the code inside `with wrt.record():`"""),
    detached: (e.NoPath, RuntimeError, """\
no gradient path from x to loss
  torch's graph of loss does not contain x: a line between them cuts it, or loss never used this tensor
  run the code inside `with wrt.record():` and ask wrt.why(loss, x); J.connected tells without an error"""),
    through_item: (e.NoPath, RuntimeError, """\
no gradient path from x to loss
  torch's graph of loss does not contain x: a line between them cuts it, or loss never used this tensor
  run the code inside `with wrt.record():` and ask wrt.why(loss, x); J.connected tells without an error"""),
    freed: (e.GraphFreed, RuntimeError, """\
the graph of y was freed by an earlier backward
  torch drops what backward needs after y.backward() or autograd.grad(y, ...) without retain_graph=True
  ask before that call, pass retain_graph=True to it, or compute y again"""),
    integers: (e.NotDifferentiable, TypeError, """\
d() of a tensor of int64
  whole numbers and booleans have no derivative; the path ends where the value was made so
  ask for the floating-point tensor it was computed from, for example the embedding of token ids"""),
    booleans: (e.NotDifferentiable, TypeError, """\
d() of a tensor of bool
  whole numbers and booleans have no derivative; the path ends where the value was made so
  ask for the floating-point tensor it was computed from, for example the embedding of token ids"""),
    inference: (e.NotRecorded, RuntimeError, """\
d() of an inference tensor
  it was made under torch.inference_mode(), which keeps no history and can never get one
  compute it outside of torch.inference_mode(), with gradients switched on"""),
    inference_run: (e.NotRecorded, RuntimeError, """\
y does not require grad, so torch kept no history of it
  it was made under torch.inference_mode()
  compute y outside of torch.inference_mode()"""),
    filled_unrecorded: (e.NotRecorded, RuntimeError, """\
d(h)[i] / d(h)[j] of a tensor that was written in place
  which of its elements was computed from which is not known: no recording saw the writes
  run the code that fills it inside `with wrt.record():`"""),
    filled_in_the_graph: (e.NotRecorded, RuntimeError, """\
d(h)[i] / d(h)[j] of a tensor that was written in place
  which of its elements was computed from which is not known: no recording saw the writes
  run the code that fills it inside `with wrt.record():`"""),
    sparse: (e.NotDifferentiable, TypeError, """\
d() of a tensor of layout sparse_coo
  the elements of a sparse tensor have no fixed positions
  ask for d(tensor.values()), or make it dense with tensor.to_dense()"""),
    reentrant: (e.EngineRefused, RuntimeError, """\
a reentrant checkpoint lies on the path
  torch.utils.checkpoint with use_reentrant=True hides its graph from everything but .backward()
  write checkpoint(..., use_reentrant=False)"""),
    reentrant_parameter: (e.EngineRefused, RuntimeError, """\
a reentrant checkpoint lies on the path
  torch.utils.checkpoint with use_reentrant=True hides its graph from everything but .backward()
  write checkpoint(..., use_reentrant=False)"""),
    changed_in_place: (e.EngineRefused, RuntimeError, """\
a tensor that backward needs was changed in place
  [torch.FloatTensor [3]], which is output 0 of Add, is at version 1; expected version 0 instead
  ask before that write, or record it too: `with wrt.record() as t:` keeps what backward needs"""),
    wrong_v: (e.WrongShape, ValueError, """\
J @ v: v has shape (2,)
  J maps (3,) to (2,)
  give v the shape (3,) of x, or (3, k) for k of them"""),
    wrong_u: (e.WrongShape, ValueError, """\
u @ J: u has shape (3,)
  J maps (3,) to (2,)
  give u the shape (2,) of y, or (k, 2) for k of them"""),
    not_one_number: (e.WrongShape, ValueError, """\
a derivative of shape (3, 3) is not one number
  it has 9 entries
  index it down to one, for example J[0, 0], or take J.value"""),
    no_diagonal: (e.WrongShape, ValueError, """\
a Jacobian of 2 x 3 has no diagonal
  y has shape (2,), x has shape (3,)
  ask for elements of both sides that match, for example d(y)[:n] / d(x)[:n]"""),
    a_string: (e.NotATensor, TypeError, """\
d() of a str
  it is not a tensor, a parameter, a module, or a dict, list or tuple of them
  write d(tensor), or d(model) for all parameters of a model"""),
    bare_x: (e.NotATensor, TypeError, """\
d(y) / Tensor
  a derivative is taken with respect to d(x), not to x
  write d(y) / d(x)"""),
    bare_y: (e.NotATensor, TypeError, """\
ndarray / d(x)
  only d(y) can be divided by d(x)
  write d(y) / d(x)"""),
    too_large: (e.TooLarge, MemoryError, """\
the Jacobian has 1000 x 1000 entries: 3.8 MiB
  976.6 KiB are free for it
  ask for rows J[i], products J @ v or u @ J, J.sparse() if most of it is zero, or send it to disk with J.to_zarr(path)"""),
    second_order_of_a_stranger: (e.NoPath, RuntimeError, """\
no gradient path from stranger to y
  torch's graph of y does not contain stranger: a line between them cuts it, or y never used this tensor
  run the code inside `with wrt.record():` and ask wrt.why(y, stranger); J.connected tells without an error"""),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_refusal_says_what_where_and_what_to_write(case: Callable[[], tuple[Any, ...]]) -> None:
    kind, builtin, words = CASES[case]
    ask, *things = case()
    with unchanged(*(thing for thing in things if thing is not None)):
        with pytest.raises(kind) as caught:
            ask()
    assert str(caught.value).replace("Backward0", "") == words
    assert isinstance(caught.value, builtin)
    assert isinstance(caught.value, e.WrtError)
    assert str(caught.value).split("\n  ") == [caught.value.what, caught.value.where, caught.value.write]


def test_two_frameworks_in_one_question() -> None:
    ask, _ = other_framework()
    with pytest.raises(e.WrtError) as caught:
        ask()
    assert str(caught.value).count("\n") == 2


def test_connected_tells_without_an_error() -> None:
    x, bias = leaf(3), leaf(3)
    loss = (x.detach() * 2 + bias).sum()
    assert not (d(loss) / d(x)).connected
    assert (d(loss) / d(bias)).connected
