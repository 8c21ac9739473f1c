"""One element, one row, a whole Jacobian: by name, by tensor and by handle, against plain tapes and closed forms."""

import numpy as np
import pytest
import tensorflow as tf

import wrt
from wrt import d, errors


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def tensor(*shape: int, seed: int = 0) -> tf.Tensor:
    return tf.constant(numbers(*shape, seed=seed))


# ---- the three questions people ask about tf.GradientTape ----


def test_an_element_of_x_has_a_derivative_with_respect_to_x() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with wrt.record():
        y = x[0, 1] ** 2
    assert (d(y) / d(x)).numpy().tolist() == [[0.0, 4.0], [0.0, 0.0]]
    assert float(d(y) / d(x)[0, 1]) == 4.0


def test_an_element_of_a_matrix_product_with_respect_to_x() -> None:
    x, w = tensor(2, 3), tensor(3, 4, seed=1)
    with wrt.record():
        y = x @ w
    expected = np.zeros((2, 3))
    expected[1] = w[:, 2]
    assert np.array_equal((d(y)[1, 2] / d(x)).numpy(), expected)
    assert float(d(y)[1, 2] / d(w)[0, 2]) == float(x[1, 0])


def test_a_sum_with_respect_to_x() -> None:
    x = tensor(3, 2)
    with wrt.record():
        y = tf.reduce_sum(x**3)
    assert np.allclose((d(y) / d(x)).numpy(), 3 * numbers(3, 2) ** 2, rtol=1e-14)


# ---- every way of asking ----


def network(x: tf.Tensor, w: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    h = tf.tanh(x @ w)
    y = tf.sin(h) * h[:, ::-1]
    return h, y


def plain_jacobian() -> tuple[np.ndarray, np.ndarray]:
    x, w = tensor(2, 3), tensor(3, 4, seed=1)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, w])
        h, y = network(x, w)
        rows = [[y[i, j] for j in range(4)] for i in range(2)]
    by_x = np.array([[tape.gradient(each, x) for each in row] for row in rows])
    by_h = np.array([[tape.gradient(each, h) for each in row] for row in rows])
    return by_x, by_h


@pytest.fixture(scope="module")
def expected() -> tuple[np.ndarray, np.ndarray]:
    return plain_jacobian()


@pytest.fixture
def run() -> wrt.Trace:
    return wrt.trace(network, tensor(2, 3), tensor(3, 4, seed=1))


def close(a: object, b: object) -> bool:
    return bool(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-14))


def test_element_row_column_block_and_whole(run: wrt.Trace, expected: tuple[np.ndarray, np.ndarray]) -> None:
    by_x, _ = expected
    y, x = d(run.output[1]), d(run.inputs[0])
    assert close(y[1, 3] / x[1, 2], by_x[1, 3, 1, 2])
    assert close(y[1, 3] / x, by_x[1, 3])
    assert close(y / x[1, 2], by_x[:, :, 1, 2])
    assert close(y[:, 1:3] / x[1], by_x[:, 1:3, 1])
    assert close(y / x, by_x)


def test_an_intermediate_by_its_name(run: wrt.Trace, expected: tuple[np.ndarray, np.ndarray]) -> None:
    assert close(d(run["y"]) / d(run["h"]), expected[1])
    assert close(d(run["y"])[0] / d(run.output[0]), expected[1][0])


def test_products(run: wrt.Trace, expected: tuple[np.ndarray, np.ndarray]) -> None:
    by_x, _ = expected
    J = d(run.output[1]) / d(run.inputs[0])
    v, u = numbers(2, 3, seed=5), numbers(2, 4, seed=6)
    assert close(J @ v, np.tensordot(by_x, v, 2))
    assert close(u @ J, np.tensordot(u, by_x, 2))
    for own in (tf.constant(u), tf.Variable(u)):
        assert close(own @ J, np.tensordot(u, by_x, 2))
    assert close(J.T @ u, np.tensordot(u, by_x, 2))
    assert close(J.sparse().toarray(), by_x.reshape(8, 6))


def test_a_derivative_is_not_taken_for_a_tensor(run: wrt.Trace) -> None:
    J = d(run.output[1]) / d(run.inputs[0])
    with pytest.raises(errors.NotATensor) as raised:
        tf.matmul(numbers(2, 4), J)
    assert str(raised.value) == """\
a derivative was taken for a tensor
  it is a linear map of shape (2, 4, 2, 3), computed when somebody asks for its numbers
  write J.value for a tensor, u @ J or J @ v for a product"""
    assert J.certificate is None  # nothing was computed for it


def test_a_tall_jacobian_is_pushed_and_certified() -> None:
    x = tensor(3)
    w = tensor(3, 40, seed=2)
    with wrt.record():
        y = tf.sin(tf.linalg.matvec(w, x, transpose_a=True))
    J = d(y) / d(x)
    expected = np.cos(numbers(3) @ numbers(3, 40, seed=2))[:, None] * numbers(3, 40, seed=2).T
    assert close(J, expected)
    assert "push" in str(J.explain())
    assert J.certificate


def test_second_and_third_order() -> None:
    x = tensor(3)
    with wrt.record():
        z = tf.reduce_prod(x) + tf.reduce_sum(x**3)
    a, b, c = numbers(3)
    hessian = np.array([[6 * a, c, b], [c, 6 * b, a], [b, a, 6 * c]])
    assert close(d(z) / d(x) / d(x), hessian)
    assert close(d(z) / d(x)[0] / d(x)[1], c)
    third = (d(z) / d(x) / d(x) / d(x)).numpy()
    assert close(third[0, 1, 2], 1.0)
    assert close(third[0, 0], [6.0, 0.0, 0.0])


def test_a_mixed_second_derivative() -> None:
    x, w = tensor(3), tensor(3, seed=1)
    with wrt.record():
        y = tf.sin(x * w)
    p = numbers(3) * numbers(3, seed=1)
    assert close(d(y)[1] / d(x)[1] / d(w)[1], np.cos(p[1]) - p[1] * np.sin(p[1]))


def test_a_linear_map_has_no_second_derivative() -> None:
    x = tensor(3)
    with wrt.record():
        y = 2 * x
    assert not (d(y) / d(x) / d(x)).numpy().any()


def test_the_same_tensor_is_the_identity(run: wrt.Trace) -> None:
    assert np.array_equal(d(run["h"]) / d(run["h"]), np.eye(8).reshape(2, 4, 2, 4))


def test_zero_dimensional_and_empty() -> None:
    x, nothing = tf.constant(2.0), tf.zeros((0, 3))
    with wrt.record():
        y, e = x**3, nothing * 2.0
    assert float(d(y) / d(x)) == 12.0
    assert (d(e) / d(nothing)).numpy().shape == (0, 3, 0, 3)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_dtypes(dtype: tf.DType) -> None:
    x = tf.constant([0.5, 1.5, 2.0], dtype)
    with wrt.record():
        y = x * x
    J = d(y) / d(x)
    assert J.value.dtype == dtype
    assert np.array_equal(J.numpy(), np.diag([1.0, 3.0, 4.0]))


# ---- complex: the same convention as everywhere ----


def test_a_holomorphic_function_has_its_complex_derivative() -> None:
    z = tf.constant([1.0 + 2.0j, 0.5 - 1.0j], tf.complex128)
    with wrt.record():
        w = tf.exp(z) * z
    zs = z.numpy()
    assert close(d(w) / d(z), np.diag(np.exp(zs) * (1 + zs)))


def test_a_complex_function_of_a_real_variable() -> None:
    x = tensor(2)
    with wrt.record():
        w = tf.exp(tf.complex(tf.zeros_like(x), x))
    assert close(d(w) / d(x), np.diag(1j * np.exp(1j * numbers(2))))


def test_a_sweep_is_the_real_adjoint() -> None:
    """Re <conj(u), J t> = Re <conj(pull(u)), t> for w = conj(z) * z**2, which is not holomorphic."""
    from wrt._backends.tensorflow.backend import BACKEND

    z = tf.constant(0.7 - 0.4j, tf.complex128)
    with wrt.record():
        w = tf.math.conj(z) * z**2
    (u, t), eps = (1.3 + 0.2j, -0.5 + 0.9j), 1e-6

    def f(z: complex) -> complex:
        return z.conjugate() * z**2

    moved = (f(z.numpy() + eps * t) - f(z.numpy() - eps * t)) / (2 * eps)
    wv, zv = BACKEND.lift(w), BACKEND.lift(z)
    engine = wv.record.engine(wv, [zv])
    pulled = engine.plain(tf.constant([u], tf.complex128))[0].numpy()[0]
    assert abs((u.conjugate() * moved).real - (pulled.conjugate() * t).real) < 1e-8
    pushed = engine.push([tf.constant([t], tf.complex128)]).arrays[0].numpy()[0]
    assert abs(pushed - moved) < 1e-8


def test_a_conjugate_is_refused() -> None:
    z = tf.constant(1.0 + 2.0j)
    with wrt.record():
        w = tf.math.conj(z)
    with pytest.raises(wrt.errors.NotHolomorphic):
        (d(w) / d(z)).value


def test_reverse_mode_does_not_make_up_a_nan() -> None:
    x = tf.constant([0.0, 1.0])
    with wrt.record():
        y = tf.sqrt(x)
    assert (d(y)[1] / d(x)).numpy().tolist() == [0.0, 0.5]


def test_a_guess_with_more_axes_than_tensorflow_can_select_along() -> None:
    x = tensor(2, 6, 6, 3)
    with wrt.record():
        y = tf.reshape(x, [-1, 4])
    assert np.array_equal((d(y) / d(x)).numpy().reshape(216, 216), np.eye(216))


def test_a_guess_where_y_is_less_precise_than_x() -> None:
    x = tensor(2, 6, 6, 3)
    with wrt.record():
        y = tf.image.resize(x, [4, 9])  # gives float32, whatever it is given
    J = d(y) / d(x)
    moved = tf.image.resize(tf.reshape(tf.eye(216), [432, 6, 6, 3]), [4, 9])
    assert J.value.dtype == tf.float64
    assert np.allclose(J.numpy().reshape(216, 216).T, moved.numpy().reshape(216, 216), atol=1e-6)
