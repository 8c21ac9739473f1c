"""Ways that numbers take from x to y in TensorFlow, one program each."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from typing import Any

import numpy as np
import tensorflow as tf

DOUBLE = tf.float64
CONSTANT = tf.ones(3, DOUBLE)


def ones() -> Any:
    return tf.ones(3, DOUBLE)


def thread_inside(x: Any, record: Any) -> Any:
    made: list[Any] = []
    with record():
        z = x * 1
        thread = threading.Thread(target=lambda: made.append(tf.sin(z)))
        thread.start()
        thread.join()
        y = made[0] * 2
    return y


def worker(tasks: queue.Queue[Any], done: queue.Queue[Any]) -> None:
    while (task := tasks.get()) is not None:
        done.put(task())


def thread_before(x: Any, record: Any) -> Any:
    tasks: queue.Queue[Any] = queue.Queue()
    done: queue.Queue[Any] = queue.Queue()
    thread = threading.Thread(target=worker, args=(tasks, done))
    thread.start()
    try:
        with record():
            z = x * 1
            tasks.put(lambda: tf.sin(z))
            y = done.get() * 2
    finally:
        tasks.put(None)
        thread.join()
    return y


def thread_variable(x: Any, record: Any) -> Any:
    v = tf.Variable(ones())
    with record():
        z = x * 1
        thread = threading.Thread(target=lambda: v.assign(z * 3))
        thread.start()
        thread.join()
        y = v * 2
    return y


def string(x: Any, record: Any) -> Any:
    with record():
        words = tf.strings.as_string(x, precision=12)
        y = tf.strings.to_number(words, DOUBLE) * 2
    return y


def printed_string(x: Any, record: Any) -> Any:
    with record():
        words = tf.strings.as_string(x, precision=12).numpy()
        y = tf.constant([float(word) for word in words], DOUBLE) * 2
    return y


def text(x: Any, record: Any) -> Any:
    with record():
        words = str(tf.reduce_sum(x))
        y = ones() * float(words.split("(")[1].split(",")[0])
    return y


def formatted(x: Any, record: Any) -> Any:
    with record():
        y = ones() * float(f"{tf.reduce_sum(x):.12f}")
    return y


def serialized(x: Any, record: Any) -> Any:
    with record():
        y = tf.io.parse_tensor(tf.io.serialize_tensor(x), DOUBLE) * 2
    return y


def serialized_bytes(x: Any, record: Any) -> Any:
    with record():
        raw = tf.io.serialize_tensor(x).numpy()
        y = tf.io.parse_tensor(raw, DOUBLE) * 2
    return y


def checkpoint(x: Any, record: Any) -> Any:
    v, w = tf.Variable(ones()), tf.Variable(ones())
    with tempfile.TemporaryDirectory() as folder, record():
        v.assign(x * 3)
        path = tf.train.Checkpoint(v=v).write(os.path.join(folder, "c"))
        tf.train.Checkpoint(v=w).read(path).assert_consumed()
        y = w * 2
    return y


def file(x: Any, record: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder, record():
        path = os.path.join(folder, "f")
        tf.io.write_file(path, tf.io.serialize_tensor(x))
        y = tf.io.parse_tensor(tf.io.read_file(path), DOUBLE) * 2
    return y


def numpy_file(x: Any, record: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder, record():
        path = os.path.join(folder, "f.npy")
        np.save(path, x.numpy())
        y = tf.constant(np.load(path)) * 2
    return y


def numpy_back(x: Any, record: Any) -> Any:
    with record():
        y = tf.constant(np.sin(x)) * 2
    return y


def item_back(x: Any, record: Any) -> Any:
    with record():
        y = ones() * float(tf.reduce_sum(x))
    return y


def tolist_back(x: Any, record: Any) -> Any:
    with record():
        y = tf.constant([float(one) for one in x]) * 2
    return y


def dlpack(x: Any, record: Any) -> Any:
    with record():
        y = tf.experimental.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(x)) * 2
    return y


def memory(x: Any, record: Any) -> Any:
    with record():
        y = tf.constant(np.frombuffer(memoryview(x), dtype=np.float64).copy()) * 2
    return y


def array_protocol(x: Any, record: Any) -> Any:
    with record():
        y = ones() * np.asarray(x).sum()
    return y


def py_function(x: Any, record: Any) -> Any:
    with record():
        y = tf.numpy_function(lambda a: np.sin(a), [x], DOUBLE) * 2
    return y


def py_function_beside(x: Any, record: Any) -> Any:
    kept: list[Any] = []
    with record():
        tf.py_function(lambda a: kept.append(a.numpy()), [x], [])
        y = tf.constant(kept[0]) * 2
    return y


def assigned(x: Any, record: Any) -> Any:
    v = tf.Variable(ones())
    with record():
        v.assign(x * 3)
        y = v * 2
    return y


def own_tape(x: Any, record: Any) -> Any:
    w = tf.Variable(ones())
    with record():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((w * x) ** 2)
        y = tape.gradient(loss, w) * 2
    return y


def optimizer_step(x: Any, record: Any) -> Any:
    w = tf.Variable(ones())
    with record():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((w * x) ** 2)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        y = w * 2
    return y


def dataset(x: Any, record: Any) -> Any:
    with record():
        rows = list(tf.data.Dataset.from_tensor_slices(x).map(lambda a: a * 3))
        y = tf.stack(rows) * 2
    return y


def generator(x: Any, record: Any) -> Any:
    with record():
        z = x * 1
        signature = tf.TensorSpec((), DOUBLE)
        rows = list(tf.data.Dataset.from_generator(lambda: iter(z.numpy()), output_signature=signature))
        y = tf.stack(rows) * 2
    return y


def fifo(x: Any, record: Any) -> Any:
    with record():
        waiting = tf.queue.FIFOQueue(2, [DOUBLE])
        waiting.enqueue(x)
        y = waiting.dequeue() * 2
    return y


def tensor_array(x: Any, record: Any) -> Any:
    with record():
        kept = tf.TensorArray(DOUBLE, 1).write(0, x)
        y = kept.read(0) * 2
    return y


def table(x: Any, record: Any) -> Any:
    with record():
        kept = tf.lookup.experimental.MutableHashTable(tf.int64, DOUBLE, [0.0, 0.0, 0.0])
        kept.insert(tf.constant([1], tf.int64), x[None])
        y = kept.lookup(tf.constant([1], tf.int64)) * 2
    return y


def loop_length(x: Any, record: Any) -> Any:
    with record():
        last = tf.while_loop(lambda t: t < tf.reduce_sum(x), lambda t: (t + 1e-2,), (tf.constant(0.0, DOUBLE),))[0]
        y = last * 2
    return y


def constant(x: Any, record: Any) -> Any:
    """Healthy: what was made before the block, a mask, numbers that are looked at afterwards; y does not depend on x."""
    c, v = CONSTANT, tf.Variable(CONSTANT)
    with record():
        z = x * 2
        y = tf.where(c > 0, c * 3.0, -c) + v + tf.stop_gradient(c)
        float(tf.reduce_sum(z))
    return y


CHANNELS: dict[str, tuple[str, list[Any]]] = {
    "another thread": ("left", [thread_inside, thread_before, thread_variable]),
    "strings, serialized tensors, text": (
        "left or cut", [string, printed_string, text, formatted, serialized, serialized_bytes],
    ),
    "a checkpoint, a file": ("left", [checkpoint, file, numpy_file]),
    "NumPy, `float()`, a list": ("left", [numpy_back, item_back, tolist_back, array_protocol, memory]),
    "DLPack": ("left", [dlpack]),
    "`tf.py_function`, `tf.numpy_function`": ("left", [py_function, py_function_beside]),
    "a variable that is assigned to": ("cut", [assigned, optimizer_step]),
    "a dataset, a generator, a queue, a table": ("left or cut", [dataset, generator, fifo, table]),
    "how often a loop runs": ("left", [loop_length]),
    "a tape of your own, a `TensorArray`": ("right", [own_tape, tensor_array]),
    "a constant, a mask, a look at numbers": ("right", [constant]),
}
"""What the table in docs/meaning.md says, and the programs behind each line."""
