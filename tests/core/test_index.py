"""Indexing means what NumPy means: every form, any rank, empty and 0-d included."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from wrt._core.index import Elements, split
from wrt.errors import WrongIndex, WrtError

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def integers(length: int) -> st.SearchStrategy[Any]:
    """Valid and invalid positions, as Python and as NumPy numbers."""
    return st.integers(-length - 1, length).flatmap(lambda k: st.sampled_from([k, np.int64(k), np.int32(k)]))


def slices() -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-6, 6)
    return st.builds(slice, bound, bound, st.none() | st.integers(-3, 3).filter(bool))


def integer_arrays(length: int) -> st.SearchStrategy[Any]:
    low, high = (-length, length - 1) if length else (0, 0)
    shapes = st.sampled_from([(), (0,), (1,), (2,), (3,), (2, 1), (1, 2), (2, 2)])
    arrays = shapes.flatmap(lambda shape: npst.arrays(np.int64, shape, elements=st.integers(low, high)))
    return arrays | arrays.map(lambda a: a.tolist())


def booleans(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    masks = npst.arrays(np.bool_, shape)
    return masks | masks.map(lambda mask: mask.tolist())


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index that usually fits the shape, with every form NumPy knows."""
    items: list[Any] = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 7)):
        kind = draw(st.sampled_from(["integer", "slice", "slice", "none", "array", "mask", "wide", "0-d mask"]))
        if kind == "none":
            items.append(None)
        elif kind == "0-d mask":
            items.append(draw(st.sampled_from([True, False, np.bool_(True), np.array(False)])))
        elif kind == "wide":
            stop = draw(st.integers(axis + 1, len(shape)))
            items.append(draw(npst.arrays(np.bool_, shape[axis:stop])))
            axis = stop
        else:
            choices = {"integer": integers, "array": integer_arrays, "mask": lambda n: booleans((n,))}
            items.append(draw(slices() if kind == "slice" else choices[kind](shape[axis])))
            axis += 1
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    return tuple(items)


@st.composite
def picks(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Any]]:
    """A shape and up to three indices, each of which fits what the one before it left."""
    shape = draw(SHAPES)
    chain: list[Any] = []
    left = np.zeros(shape)
    for _ in range(draw(st.integers(1, 3))):
        index: Any = draw(indices(left.shape))
        if len(index) == 1 and draw(st.booleans()):
            index = index[0]
        chain.append(index)
        try:
            left = np.asarray(left[index])
        except IndexError:
            break
        if left.size > 4000:
            break
    return shape, chain


@settings(max_examples=1500, deadline=None)
@given(picks())
def test_every_index_form_picks_what_numpy_picks(case: tuple[tuple[int, ...], list[Any]]) -> None:
    shape, chain = case
    expected = np.arange(math.prod(shape)).reshape(shape)
    elements = Elements.all(shape)
    for index in chain:
        try:
            expected = np.asarray(expected[index])
        except IndexError:
            with pytest.raises(WrongIndex):
                elements.pick(index)
            return
        elements = elements.pick(index)
    assert elements.shape == expected.shape
    assert elements.size == expected.size
    assert elements.positions.tolist() == expected.reshape(-1).tolist()
    if elements.everything:
        assert expected.reshape(-1).tolist() == list(range(math.prod(shape)))


@settings(max_examples=800, deadline=None)
@given(st.data())
def test_an_index_of_a_jacobian_splits_into_one_of_each_side_or_says_that_it_cannot(data: st.DataObject) -> None:
    left, right = data.draw(SHAPES), data.draw(SHAPES)
    index = data.draw(indices(left + right))
    whole = np.arange(math.prod(left + right)).reshape(left + right)
    try:
        expected = whole[index]
    except IndexError:
        with pytest.raises(WrtError):
            halves = split(index, left, right)
            if halves is None:
                Elements.all(left + right).pick(index)
            else:
                Elements.all(left).pick(halves[0])
                Elements.all(right).pick(halves[1])
        return
    halves = split(index, left, right)
    if halves is None:
        return
    rows = Elements.all(left).pick(halves[0])
    columns = Elements.all(right).pick(halves[1])
    assert rows.shape + columns.shape == expected.shape
    picked = rows.positions[:, None] * max(1, math.prod(right)) + columns.positions[None, :]
    assert picked.reshape(-1).tolist() == expected.reshape(-1).tolist()


OUTSIDE = [
    ((3,), 3, "index 3 is out of bounds for axis 0 with size 3\n  the shape here is (3,)\n  valid indices of axis 0: -3 to 2"),
    ((3, 0), (0, -1), "index -1 is out of bounds for axis 1 with size 0\n  the shape here is (3, 0)\n"
                      "  valid indices of axis 1: none"),
    ((3,), (0, 0), "too many indices: 2 for 1 axis\n  the shape here is (3,)\n  give at most 1"),
    ((), 0, "too many indices: 1 for 0 axes\n  the shape here is ()\n  give at most 0"),
    ((3, 3), (..., ...), "an index can only have a single ellipsis ('...')\n  the shape here is (3, 3)\n"
                         "  use integers, slices, '...', None, boolean masks or integer arrays"),
]


@pytest.mark.parametrize(("shape", "index", "words"), OUTSIDE)
def test_an_index_that_does_not_fit_is_an_index_error_in_our_words(shape: Any, index: Any, words: str) -> None:
    with pytest.raises(IndexError) as caught:
        Elements.all(shape).pick(index)
    assert isinstance(caught.value, WrongIndex)
    assert str(caught.value) == words


WRONG = [1.0, "a", [0.5], np.array([1.5]), slice("a", None), slice(None, None, 0), {0}, [True, False]]


@pytest.mark.parametrize("index", WRONG, ids=repr)
def test_what_is_no_index_is_refused(index: Any) -> None:
    with pytest.raises(WrongIndex):
        Elements.all((3,)).pick(index)


def test_a_slice_of_a_huge_tensor_costs_nothing() -> None:
    huge = Elements.all((10**6, 10**6, 10**6))
    assert huge.pick((5, ..., slice(None, None, -3))).shape == (10**6, 333334)
    assert huge.pick((5, 6, 7)).positions.tolist() == [5000006000007]


def test_torch_tensors_are_indices() -> None:
    torch = pytest.importorskip("torch")
    elements = Elements.all((3, 4)).pick((torch.tensor([0, 2]), torch.tensor([True, False, False, True])))
    assert elements.positions.tolist() == [0, 11]
    assert Elements.all((3, 4)).pick(torch.tensor(1)).shape == (4,)
