"""`d(something)`: one side of a derivative, before it meets the other."""

from __future__ import annotations

from typing import Any

from wrt import _backends
from wrt._core.index import Elements, Shape
from wrt._core.protocol import Backend
from wrt._core.value import Value
from wrt._notation.derivative import Derivative
from wrt._notation.tree import Tree, further, tree_of
from wrt.errors import DifferentRuns, NotATensor


class Differential:
    """Elements of one tensor, as it is now; dividing two of them gives a lazy `Derivative`."""

    __slots__ = ("elements", "value")
    __array_ufunc__ = None  # NumPy leaves `array / d(x)` to us, where it is refused in words

    def __init__(self, value: Value, elements: Elements) -> None:
        self.value = value
        self.elements = elements

    @property
    def shape(self) -> Shape:
        return self.elements.shape

    def __getitem__(self, index: Any) -> Differential:
        return Differential(self.value, self.elements.pick(index))

    def __truediv__(self, x: Any) -> Any:
        if type(x) is Differential:
            of, by = self.value, x.value
            record = of.record if of.record is by.record else _common_record(of, by)
            side = record.side(by, x.elements)
            record.ready(of, side)  # raises at once where there is no history at all
            return Derivative(of, self.elements, (side,))
        if isinstance(x, Tree):
            return x.answers(self._unchecked)
        raise NotATensor(
            f"d(y) / {type(x).__name__}", "a derivative is taken with respect to d(x), not to x", "write d(y) / d(x)"
        )

    def _unchecked(self, x: Differential) -> Derivative:
        """Leaves of a tree may have no history: each of them says so when it is asked."""
        of, by = self.value, x.value
        record = of.record if of.record is by.record else _common_record(of, by)
        return Derivative(of, self.elements, (record.side(by, x.elements),))

    def __rtruediv__(self, y: Any) -> Any:
        """A tree of derivatives goes on leaf by leaf: `d(loss) / d(model) / d(x)`."""
        again = further(y, self)
        if again is not None:
            return again
        raise NotATensor(
            f"{type(y).__name__} / d(x)", "only d(y) can be divided by d(x)", "write d(y) / d(x)"
        )

    def __repr__(self) -> str:
        return f"d({self.value.name or 'tensor'})  shape {self.shape}"


def d(obj: Any) -> Any:
    """One side of a derivative: a tensor, a model, or a dict, list or tuple of them.

    >>> import torch
    >>> x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> y = x**2
    >>> float(d(y)[2] / d(x)[2])
    6.0
    """
    known = _TENSORS.get(type(obj))
    if known is not None:
        value = known.lift(obj)
        return Differential(value, Elements.all(value.shape))
    if isinstance(obj, (Differential, Tree)):
        return obj
    if _is_handle(obj):
        return Differential(*obj.__wrt_differential__())
    for backend in _backends.loaded():
        if backend.owns(obj):
            tree = backend.tree(obj)
            if tree is None:
                _TENSORS[type(obj)] = backend
                value = backend.lift(obj)
                return Differential(value, Elements.all(value.shape))
            return tree_of(tree, d)
    for backend in _backends.loaded():
        tree = backend.tree(obj)
        if tree is not None and tree[0] and all(backend.owns(leaf) or _is_side(leaf) for leaf in tree[0]):
            return tree_of(tree, d)
    raise _backends.not_a_tensor(obj)


_TENSORS: dict[type, Backend] = {}  # types that were met already: no backend has to be asked again whose they are


def _is_handle(obj: Any) -> bool:
    """Whether it is a value of a recording. Its class is asked: an object may answer anything, or raise."""
    return hasattr(type(obj), "__wrt_differential__")


def _is_side(leaf: Any) -> bool:
    return isinstance(leaf, Differential) or _is_handle(leaf)


def _common_record(y: Value, x: Value) -> Any:
    joined = y.record.join(x.record)
    if joined is not None:
        return joined
    if y.record.backend is not x.record.backend:
        raise DifferentRuns(
            f"y is of {y.record.backend.name} and x of {x.record.backend.name}",
            "no framework follows a value into another one",
            "ask within one framework, and multiply the two Jacobians yourself where they meet",
        )
    raise DifferentRuns(
        "y and x come from two different recordings",
        "each recording knows its own run only",
        "compute both inside one `with wrt.record():`, or in one wrt.trace(f, x)",
    )
