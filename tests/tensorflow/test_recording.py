"""What a recording sees: names, lines, variables, compiled code, user tapes; and what it leaves as it was."""

import signal
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import wrt
from tests._snapshot import unchanged
from wrt import d


def tensor(*shape: int, seed: int = 0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def close(a: object, b: object) -> bool:
    return bool(np.allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-14))


# ---- nothing is a silent zero ----


def test_a_constant_made_before_and_never_watched() -> None:
    x = tensor(3)
    holder = [x]  # no name of the block means it: it is met for the first time as an input
    with wrt.record():
        y = tf.tanh(holder[0])
    assert close(d(y)[1] / d(x)[1], 1 - np.tanh(x[1]) ** 2)


def test_a_constant_made_inside() -> None:
    with wrt.record():
        y = tf.reduce_sum((c := tf.constant([1.0, 2.0])) ** 2)
    assert (d(y) / d(c)).numpy().tolist() == [2.0, 4.0]


def test_random_numbers_drawn_inside() -> None:
    with wrt.record():
        noise = tf.random.normal((4,))
        y = tf.exp(noise)
    assert np.allclose((d(y) / d(noise)).numpy(), np.diag(np.exp(noise)), rtol=1e-6)


def test_the_slow_path_of_an_operation_is_recorded_once() -> None:
    x = tensor(2)
    holder = [x]
    with wrt.record():
        y = tf.concat([holder[0], [1.0, 2.0]], 0) ** 2  # a list among the inputs leaves the fast path
    assert close(d(y) / d(x), np.vstack([np.diag(2 * x.numpy()), np.zeros((2, 2))]))


def test_a_cast_from_whole_numbers() -> None:
    with wrt.record():
        k = tf.range(3)
        f = tf.cast(k, tf.float64)
        y = f**2
    assert close(d(y) / d(f), np.diag([0.0, 2.0, 4.0]))


def test_a_weight_that_enters_beside_a_watched_tensor() -> None:
    weights = [tensor(3, 3, seed=1), tensor(3, 3, seed=2)]

    def f(x: tf.Tensor) -> tf.Tensor:
        for w in weights:
            x = tf.tanh(x @ w)
        return tf.reduce_sum(x)

    x = tensor(1, 3)
    t = wrt.trace(f, x)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch([x, *weights])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, *weights])
            y = f(x)
        by_x = tape.gradient(y, x)
    for w in weights:
        assert close(d(t.output) / d(w), tape.gradient(y, w))
        assert close(d(t.output) / d(x)[0, 1] / d(w), outer.gradient(by_x, w, tf.one_hot([1], 3, dtype=tf.float64)))
    alone = wrt.trace(lambda x: tf.reduce_sum(x @ weights[0]) + tf.reduce_sum(tf.sin(weights[0])), x)
    expected = np.repeat(x.numpy().T, 3, 1) + np.cos(weights[0])
    assert close(d(alone.output) / d(weights[0]), expected)


def test_a_custom_gradient_of_a_constant_that_entered_beside_another() -> None:
    constant = [tf.constant(3.0)]

    def f(x: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def wrong(c: tf.Tensor) -> tuple[tf.Tensor, object]:
            return c * x, lambda g: g * 1000

        return x * constant[0] + wrong(constant[0])

    t = wrt.trace(f, tf.constant(2.0))
    assert float(d(t.output) / d(constant[0])) == 1002.0


# ---- variables ----


def test_variables_trainable_or_not() -> None:
    v, frozen = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0], trainable=False)
    with wrt.record():
        y = v * frozen
    assert np.array_equal(d(y) / d(v), np.diag([3.0, 4.0]))
    assert np.array_equal(d(y) / d(frozen), np.diag([1.0, 2.0]))


def test_a_gather_of_a_variable_is_dense() -> None:
    table = tf.Variable(tf.reshape(tf.range(6.0), (3, 2)))
    with wrt.record():
        y = tf.reduce_sum(tf.gather(table, [1, 1, 0]) ** 2)
    expected = np.array([[0.0, 2.0], [8.0, 12.0], [0.0, 0.0]])
    assert np.array_equal(d(y) / d(table), expected)


def test_a_gather_of_a_tensor_is_dense() -> None:
    table = tensor(3, 2)
    with wrt.record():
        y = tf.reduce_sum(tf.gather(table, [1, 1, 0]))
    assert np.array_equal(d(y) / d(table), [[1, 1], [2, 2], [0, 0]])


def test_an_assignment_cuts_and_is_named() -> None:
    z, v = tf.constant(0.3), tf.Variable(0.0)
    with wrt.record():
        v.assign(z * 2)
        y = v * 3
    assert float(d(y) / d(v)) == 3.0
    with pytest.raises(wrt.errors.GradientCut, match=r"v\.assign\(z \* 2\)") as caught:
        (d(y) / d(z)).value
    assert "no gradient of an assignment" in str(caught.value)


def test_a_variable_assigned_between_two_reads_means_its_last_value() -> None:
    v = tf.Variable(2.0)
    with wrt.record():
        a = v * v
        v.assign(5.0)
        y = a + 3 * v
    J = d(y) / d(v)
    assert float(J) == 3.0
    assert "assigned to between two reads" in str(J.explain())


def test_a_variable_assigned_after_its_last_read_is_what_was_read() -> None:
    v = tf.Variable(2.0)
    with wrt.record():
        y = v * v
        v.assign_sub(0.1)
    assert float(d(y) / d(v)) == 4.0


def test_a_variable_handed_straight_to_an_operation() -> None:
    v, z = tf.Variable(2.0), tf.constant(0.3)
    hidden = [tf.Variable([2.0, 3.0], trainable=False)]
    with wrt.record():
        y = tf.square(v)
        squares = tf.square(hidden[0])
        v.assign(z)
        w = tf.square(v)
    assert float(d(y) / d(v)) == 0.0  # it means the value read last, which y has not seen
    assert np.isclose(float(d(w) / d(v)), 0.6)
    assert np.array_equal(d(squares) / d(hidden[0]), np.diag([4.0, 6.0]))
    with pytest.raises(wrt.errors.GradientCut, match=r"v\.assign\(z\)"):
        (d(w) / d(z)).value


def test_two_variables_of_one_shape_handed_straight_to_an_operation() -> None:
    a, b = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 5.0])
    with wrt.record():
        a.assign_add([1.0, 1.0])
        first = tf.subtract(a, b)
        b.assign_add([1.0, 1.0])
        y = tf.multiply(a, b) + first
    assert np.array_equal(d(y) / d(b), np.diag([2.0, 3.0]))  # since b was assigned to
    assert np.array_equal(d(y) / d(a), np.diag([5.0, 7.0]))


def test_the_variables_of_a_module_by_attribute() -> None:
    class Linear(tf.Module):
        def __init__(self, n: int, m: int) -> None:
            super().__init__()
            self.w = tf.Variable(tensor(n, m))
            self.count = tf.Variable(0.0, trainable=False)

    class Net(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [Linear(2, 3), Linear(3, 1)]

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            for part in self.parts:
                x = tf.tanh(x @ part.w)
            return x[0, 0]

    net, x = Net(), tensor(1, 2)
    t = wrt.trace(net, x)
    with tf.GradientTape() as tape:
        y = net(x)
    expected = tape.gradient(y, [part.w for part in net.parts])
    tree = d(t.output) / d(net)
    assert list(tree) == ["parts[0].w", "parts[1].w"]
    for got, want in zip(tree.values(), expected, strict=True):
        assert close(got, want)


# ---- control flow, compiled code, custom gradients ----


def test_a_tf_function_is_recorded_inside() -> None:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        h = tf.sin(x)
        for _ in tf.range(3):
            h = h * x
        return h

    f(tf.constant(1.0, tf.float64))  # traced before: still run eagerly while recorded
    t = wrt.trace(f, tf.constant(0.7, tf.float64))
    assert close(d(t.output) / d(t["h", 0]), 0.7**3)
    assert close(d(t.output) / d(t.inputs[0]), 0.7**3 * np.cos(0.7) + 3 * 0.7**2 * np.sin(0.7))


def test_a_concrete_function_is_one_operation_with_a_gradient() -> None:
    f = tf.function(lambda x: tf.sin(x) * x).get_concrete_function(tf.TensorSpec((), tf.float64))
    x = tf.constant(0.7, tf.float64)
    with wrt.record():
        y = f(x)
    assert close(d(y) / d(x), np.sin(0.7) + 0.7 * np.cos(0.7))


def test_a_concrete_function_that_met_its_input_too_late_says_so() -> None:
    f = tf.function(lambda x: tf.sin(x) * x).get_concrete_function(tf.TensorSpec((), tf.float64))
    holder = [tf.constant(0.7, tf.float64)]
    with wrt.record():
        y = f(holder[0])
    with pytest.raises(wrt.errors.GradientCut, match="compiled function"):
        (d(y) / d(holder[0])).value


def test_a_custom_gradient_is_the_gradient_you_train_with() -> None:
    @tf.custom_gradient
    def wrong(a: tf.Tensor) -> tuple[tf.Tensor, object]:
        return a * 2, lambda g: g * 1000

    x = tf.constant(1.0)
    with wrt.record():
        y = wrong(x) + tf.stop_gradient(x)
    assert float(d(y) / d(x)) == 1000.0


def test_recompute_grad() -> None:
    f = tf.recompute_grad(lambda x: tf.sin(x) * x)
    x = tf.constant(0.7, tf.float64)
    with wrt.record():
        y = f(x)
    assert close(d(y) / d(x), np.sin(0.7) + 0.7 * np.cos(0.7))


def test_while_loop_scan_and_map() -> None:
    x = tensor(4)
    with wrt.record():
        total = tf.scan(lambda a, b: a * b, x)[-1]
        squares = tf.map_fn(lambda e: e**2, x)
        _, power = tf.while_loop(lambda k, _: k < 3, lambda k, p: (k + 1, p * x[0]), (0, tf.ones((), tf.float64)))
    values = x.numpy()
    assert close(d(total) / d(x), values.prod() / values)
    assert close(d(squares) / d(x), np.diag(2 * values))
    assert close(d(power) / d(x)[0], 3 * values[0] ** 2)


def test_a_tensor_array() -> None:
    z = tf.constant(0.3, tf.float64)
    with wrt.record():
        array = tf.TensorArray(tf.float64, 10, clear_after_read=False).write(0, z)
        values = [z]
        for k in range(1, 10):
            v = tf.tanh(array.read(k - 1))
            values.append(v)
            array = array.write(k, v)
        h = array.stack()
    slopes = [1 - np.tanh(float(values[k])) ** 2 for k in range(9)]
    assert close(d(h)[9] / d(values[3]), np.prod(slopes[3:]))
    assert close(d(h)[9] / d(z), np.prod(slopes))


# ---- the user's own tapes ----


def test_tapes_of_the_user_work_inside_and_are_not_disturbed() -> None:
    x = tensor(3)
    with wrt.record() as t:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(x**3)
        before = len(t._one.log.operations)
        gradient = tape.gradient(y, x)
        assert len(t._one.log.operations) > before + 3
        loss = tf.reduce_sum(gradient**2)
    assert close(gradient, 3 * x**2)
    assert close(d(y) / d(x), 3 * x**2)
    assert close(d(loss) / d(x), 36 * x**3)  # through the user's own gradient


def test_a_tape_of_the_user_around_the_recording_and_the_question() -> None:
    x = tensor(3)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        with wrt.record():
            y = tf.sin(x)
        assert close(d(y) / d(x), np.diag(np.cos(x)))
        assert close((d(y) / d(x)) @ np.ones(3), np.cos(x))
        s = tf.reduce_sum(y)
    assert close(tape.gradient(s, x), np.cos(x))


def test_tape_jacobian_works_inside_a_recording() -> None:
    x = tensor(3)
    with wrt.record():
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.sin(x) * x[::-1]
        J = tape.jacobian(y, x)
    assert close(d(y) / d(x), J)


def test_asking_inside_the_block() -> None:
    x = tensor(3)
    with wrt.record() as t:
        y = x**2
        before = len(t._one.log.operations)
        assert close(d(y) / d(x), np.diag(2 * x.numpy()))
        assert close(d(y)[0] / d(x)[0] / d(x)[0], 2.0)
        assert len(t._one.log.operations) == before
        z = y * 3
    assert close(d(z) / d(x), np.diag(6 * x.numpy()))


# ---- several recordings ----


def test_nested_recordings_and_tensors_of_both() -> None:
    x = tensor(2)
    with wrt.record() as outer:
        y = x**2
        with wrt.record() as inner:
            z = y * 3
        w = z + 1
    assert close(d(inner["z"]) / d(inner._handles(inner._one, inner._one.find(y))), np.diag([3.0, 3.0]))
    assert close(d(outer["w"]) / d(x), np.diag(6 * x.numpy()))
    assert close(d(w) / d(x), np.diag(6 * x.numpy()))


def test_a_tensor_of_two_recordings_is_asked_about_in_that_of_y() -> None:
    x = tensor(2)
    with wrt.record() as first:
        y = x**2
    with wrt.record() as second:
        z = x**3
    assert close(d(y) / d(x), np.diag(2 * x.numpy()))
    assert close(d(z) / d(x), np.diag(3 * x.numpy() ** 2))
    with pytest.raises(wrt.errors.DifferentRuns):
        d(y) / d(z)
    del first, second


def test_the_last_recording_needs_no_name() -> None:
    x = tensor(2)
    with wrt.record():
        y = x**2
    assert close(d(y) / d(x), np.diag(2 * x.numpy()))


def test_recordings_of_two_threads_may_end_in_any_order() -> None:
    x = tensor(3)
    inside, outside = threading.Event(), threading.Event()
    answers = {}

    def other() -> None:
        with wrt.record() as t:
            y = tf.sin(x)
            inside.set()
            outside.wait(30)
            z = y * 2
        answers["other"] = (d(z) / d(x)).numpy()
        answers["operations"] = len(t.graph)

    with unchanged(x):
        thread = threading.Thread(target=other)
        with wrt.record() as t:
            y = tf.cos(x)
            thread.start()
            inside.wait(30)
            z = y * 3
        operations = len(t.graph)
        outside.set()
        thread.join()
    assert close(d(z) / d(x), np.diag(-3 * np.sin(x)))
    assert close(answers["other"], np.diag(2 * np.cos(x)))
    assert operations == answers["operations"] == 2
    assert not tf.config.functions_run_eagerly()


# ---- names and lines ----


def test_names_of_variables_and_loops() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        h = x
        for _ in range(3):
            h = tf.sin(h)
        total = tf.reduce_sum(h)
        return total

    x = tensor(2)
    t = wrt.trace(f, x)
    assert close(t["h"].value, np.sin(np.sin(np.sin(x))))
    assert close(t["h", 1].value, np.sin(x))
    assert close(d(t["total"]) / d(t["h#2"]), np.cos(np.sin(np.sin(x))))
    assert t["total"].line.text == "total = tf.reduce_sum(h)"
    with pytest.raises(wrt.errors.UnknownName, match="did you mean 'total'"):
        t["totl"]


def test_tap_names_what_has_no_name() -> None:
    with wrt.record() as t:
        y = wrt.tap("inner", tf.constant(2.0) ** 2) * 3
    assert float(d(y) / d(t["inner"])) == 3.0


def test_inputs_and_outputs_keep_their_containers() -> None:
    def f(batch: dict[str, tf.Tensor], *, scale: float) -> dict[str, object]:
        return {"loss": batch["a"] * batch["b"] * scale, "parts": (batch["a"], 7)}

    t = wrt.trace(f, {"a": tf.constant(2.0), "b": tf.constant(3.0)}, scale=10.0)
    assert float(d(t.output["loss"]) / d(t.inputs[0]["b"])) == 20.0
    assert t.output["parts"][1] == 7


def test_the_graph_is_plain_data(tmp_path: object) -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        h = tf.tanh(x)
        k = tf.argmax(h)
        return tf.stop_gradient(h) + tf.cast(k, tf.float64)

    t = wrt.trace(f, tensor(3))
    kinds = {node.op: node.gradient for node in t.graph}
    assert kinds["Tanh"] == "yes"
    assert kinds["StopGradient"] == "cut"
    assert kinds["ArgMax"] == "cut"
    assert kinds["Cast"] == "none"
    assert all(node.where is not None and node.where.file == __file__ for node in t.graph)
    t.save(f"{tmp_path}/run.json")
    again = wrt.load_graph(f"{tmp_path}/run.json")
    assert [node.op for node in again] == [node.op for node in t.graph]
    tanh = next(node for node in again if node.op == "Tanh")
    assert again.tensors[tanh.outputs[0]].names[0] == "h"


# ---- nothing of the user's changes ----


def test_nothing_changes() -> None:
    v, x = tf.Variable([1.0, 2.0]), tf.constant([3.0, 4.0])
    with unchanged(v, x):
        with wrt.record():
            y = v * x
        (d(y) / d(x)).value
        (d(y) / d(x)) @ np.ones(2)
        (d(y) / d(v) / d(x)).value


def test_nothing_changes_when_the_code_raises() -> None:
    x = tf.constant([3.0, 4.0])
    for error in (ValueError, KeyboardInterrupt):
        with unchanged(x):
            with pytest.raises(error):
                with wrt.record():
                    _ = x * 2
                    raise error


def test_functions_run_eagerly_stays_as_the_user_set_it() -> None:
    tf.config.run_functions_eagerly(True)
    try:
        with wrt.record():
            _ = tf.constant(1.0) * 2
        assert tf.config.functions_run_eagerly()
    finally:
        tf.config.run_functions_eagerly(False)


def test_a_variable_read_inside_a_gather_after_an_assignment_is_refused() -> None:
    table = tf.Variable([1.0, 2.0])
    with wrt.record():
        a = tf.reduce_sum(table)
        table.assign([3.0, 4.0])
        y = a + tf.gather(table, [0])
    with pytest.raises(wrt.errors.EngineRefused, match="cannot tell"):
        (d(y) / d(table)).value


def test_a_compiled_function_reads_variables() -> None:
    v = tf.Variable(2.0)
    f = tf.function(lambda x: x * v**2).get_concrete_function(tf.TensorSpec(()))
    x = tf.constant(3.0)
    with wrt.record():
        y = f(x) + f(x)
    assert float(d(y) / d(v)) == 24.0
    assert float(d(y) / d(x)) == 8.0


@pytest.mark.parametrize("when", ["begins", "ends"])
def test_an_interrupt_while_a_recording_begins_or_ends_leaves_tensorflow_whole(when: str, monkeypatch: Any) -> None:
    from wrt._backends.tensorflow import compat

    places = []

    class Interrupted(compat.Patch):
        def __enter__(self) -> None:
            places.append((self.owner, self.key[1], vars(self.owner)[self.key[1]]))
            super().__enter__()
            if when == "begins":
                signal.raise_signal(signal.SIGINT)

        def __exit__(self, *exception: object) -> None:
            if when == "ends":
                signal.raise_signal(signal.SIGINT)
            super().__exit__(*exception)

    with monkeypatch.context() as patch:
        patch.setattr(compat, "Patch", Interrupted)
        with pytest.raises(KeyboardInterrupt), wrt.record():
            _ = tf.constant([1.0]) * 2
    assert len(places) > 3
    assert all(vars(owner)[name] is was for owner, name, was in places)
    with wrt.record():
        x = tf.constant([1.0, 2.0])
        y = x * x
    assert (d(y) / d(x)).numpy().tolist() == [[2.0, 0.0], [0.0, 4.0]]
