"""A derivative that is not there: exact zeros, a named line, or a sentence about what is not known."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d


def test_independence_is_exact_zeros() -> None:
    t = wrt.trace(lambda a, b: a * 2, tf.constant([1.0, 2.0]), tf.constant([3.0]))
    J = d(t.output) / d(t.inputs[1])
    assert J.numpy().tolist() == [[0.0], [0.0]]
    assert not J.connected


def test_what_is_computed_later_cannot_matter() -> None:
    x = tf.constant([1.0, 2.0])
    with wrt.record():
        y = x * 2
        z = y + 1
    J = d(y) / d(z)
    assert not J.numpy().any()
    assert not J.connected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tf.stop_gradient(h)", "remove tf.stop_gradient"),
        ("tf.cast(tf.cast(h, tf.int32), tf.float32)", "cast to whole numbers"),
        ("tf.one_hot(tf.argmax(h), 2)", "ArgMax"),
        ("tf.round(h)", "Round"),
        ("tf.cast(h > 1.0, tf.float32)", "Greater"),
    ],
)
def test_a_cut_is_named_with_its_line(line: str, words: str) -> None:
    source = f"def f(x):\n    h = x * 3\n    k = {line}\n    return k * 2\n"
    import linecache

    name = f"<cut {words}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope: dict[str, object] = {"tf": tf}
    exec(compile(source, name, "exec"), scope)
    t = wrt.trace(scope["f"], tf.constant([0.2, 0.7]))
    with pytest.raises(wrt.errors.GradientCut) as caught:
        (d(t.output) / d(t.inputs[0])).value
    assert f":3  k = {line}" in str(caught.value)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_a_cut_on_one_of_two_branches_is_no_cut() -> None:
    x = tf.constant([1.0, 2.0])
    with wrt.record():
        y = x * tf.stop_gradient(x)
    assert np.array_equal(d(y) / d(x), np.diag([1.0, 2.0]))


def test_a_number_that_left_through_python_is_not_zero() -> None:
    x = tf.constant([1.0, 2.0])
    with wrt.record():
        k = float(x[0]) * 2
        y = tf.constant([3.0]) * k
    with pytest.raises(wrt.errors.NoPath, match="reads a number computed from x into Python") as caught:
        (d(y) / d(x)).value
    assert "k = float(x[0]) * 2" in str(caught.value)


def test_an_array_that_came_from_numpy_is_not_zero() -> None:
    x = tf.constant([1.0, 2.0])
    with wrt.record():
        a = np.asarray(x) * 2  # by the buffer protocol: nobody can see this
        y = tf.constant([3.0, 4.0]) * a
        z = tf.constant(a) * 2
    for made in (y, z):
        with pytest.raises(wrt.errors.NoPath, match="NumPy"):
            (d(made) / d(x)).value


def test_an_array_that_only_lies_around_proves_nothing_against_independence() -> None:
    unused = np.ones(2)

    def f(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        array = unused * 2
        return a * 2.0 if array.any() else b

    t = wrt.trace(f, tf.constant([1.0, 2.0]), tf.constant([3.0]))
    assert not (d(t.output) / d(t.inputs[1])).numpy().any()


def test_a_tensor_made_between_x_and_the_recording_is_not_zero() -> None:
    x = tf.constant([1.0, 2.0])
    h = tf.sin(x)
    with wrt.record():
        y = h * 2
    with pytest.raises(wrt.errors.NoPath, match="before the recording began"):
        (d(y) / d(x)).value


def test_a_bare_tensor_says_what_to_write() -> None:
    with pytest.raises(wrt.errors.NotRecorded) as caught:
        d(tf.constant(1.0))
    assert "t = wrt.trace(f, x)" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_whole_numbers_have_no_derivative() -> None:
    with pytest.raises(wrt.errors.NotDifferentiable, match="int32"):
        d(tf.constant(1))
    t = wrt.trace(lambda x: tf.argmax(x), tf.constant([1.0, 2.0]))
    with pytest.raises(wrt.errors.NotDifferentiable, match="int64"):
        d(t.output) / d(t.inputs[0])


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: tf.ragged.constant([[1.0], [2.0, 3.0]]), "flat_values"),
        (lambda: tf.sparse.from_dense([[1.0, 0.0]]), r"tensor\.values"),
        (lambda: tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])), r"slices\.values"),
    ],
)
def test_ragged_and_sparse_are_refused_in_words(made: object, words: str) -> None:
    with pytest.raises(wrt.errors.NotDifferentiable, match=words):
        d(made())  # type: ignore[operator]


def test_the_values_of_a_ragged_tensor_can_be_asked_about() -> None:
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    values = ragged.flat_values
    with wrt.record():
        y = tf.reduce_sum((ragged * ragged).to_tensor())
    assert (d(y) / d(values)).numpy().tolist() == [2.0, 4.0, 6.0]


def test_a_tensor_of_a_graph_under_construction_is_refused() -> None:
    @tf.function(autograph=False)
    def f(x: tf.Tensor) -> tf.Tensor:
        d(x)
        return x

    with pytest.raises(wrt.errors.NotRecorded, match="graph that is being built"):
        f(tf.constant(1.0))


def test_a_gradient_that_raises_is_told() -> None:
    @tf.custom_gradient
    def broken(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradient(u: tf.Tensor) -> tf.Tensor:
            raise ValueError("no gradient today")

        return x * 2, gradient

    x = tf.constant([1.0, 2.0])
    with wrt.record():
        y = broken(x)
    with pytest.raises(wrt.errors.EngineRefused, match="no gradient today"):
        (d(y) / d(x)).value


def test_a_gradient_with_numpy_inside_is_pulled_one_by_one() -> None:
    @tf.custom_gradient
    def through_numpy(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        return tf.sin(x), lambda u: tf.constant(u.numpy() * np.cos(x.numpy()))

    x = tf.constant(np.linspace(0, 1, 70))
    with wrt.record():
        y = through_numpy(x)
    J = d(y) / d(x)
    assert np.allclose(J.numpy(), np.diag(np.cos(x)), atol=1e-15)
    assert "one by one" in str(J.explain())
    assert np.allclose(d(y) / d(x)[:2], np.diag(np.cos(x))[:, :2], atol=1e-15)  # a push would drop it all
    assert np.allclose((d(y) / d(x)) @ np.ones(70), np.cos(x), atol=1e-15)


def test_a_py_function_gives_its_gradient_once() -> None:
    t = wrt.trace(lambda x: tf.py_function(tf.sin, [x], tf.float64), tf.constant(np.linspace(0, 1, 3)))
    assert np.allclose(d(t.output)[0] / d(t.inputs[0]), [1, 0, 0])
    t = wrt.trace(lambda x: tf.py_function(tf.sin, [x], tf.float64), tf.constant(np.linspace(0, 1, 3)))
    with pytest.raises(wrt.errors.EngineRefused) as refused:
        (d(t.output) / d(t.inputs[0])).value
    assert str(refused.value) == (
        "a tf.py_function on the way gives its gradient only once\n"
        "  TensorFlow throws away what it kept of the call after the first pass, and this question takes more of them\n"
        "  call the Python function itself: eager code needs no tf.py_function; or record again for each row"
    )


def test_errors_call_the_tensors_as_the_user_does() -> None:
    with wrt.record():
        weights = tf.constant([1.0, 2.0]) * 1
        loss = tf.reduce_sum(tf.stop_gradient(weights))
    with pytest.raises(wrt.errors.GradientCut) as caught:
        (d(loss) / d(weights)).value
    what, stands, write = str(caught.value).splitlines()
    assert what == "no gradient path from weights to loss"
    assert stands.startswith("  loss is computed from weights, but ")
    assert write == "  remove tf.stop_gradient, or ask for d(loss) / d(what this line makes)"


@pytest.mark.parametrize(
    "way",
    [
        lambda h: tf.constant(np.array(h)),
        lambda h: tf.constant(np.asarray(memoryview(h))),
        lambda h: tf.constant(np.frombuffer(h, dtype=np.float32)),
        lambda h: tf.experimental.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(h)),
        lambda h: pickle.loads(pickle.dumps(h)),
    ],
    ids=["np.array", "memoryview", "np.frombuffer", "dlpack", "pickle"],
)
def test_memory_that_numpy_reads_unasked_is_never_a_zero_and_never_certain(way: Callable[[tf.Tensor], tf.Tensor]) -> None:
    with wrt.record():
        h = tf.constant([1.0, 2.0]) * 2
        y = tf.reduce_sum(way(h))
    with pytest.raises(wrt.errors.NoPath, match="from h to y"):
        (d(y) / d(h)).value
    found = wrt.why(y, h)
    assert found[0].cause == "numpy_roundtrip"
    assert not any(finding.certain for finding in found)
