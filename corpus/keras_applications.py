"""Architectures of keras.applications, random weights: one element each, equal to a plain GradientTape.

For every architecture the model runs once under `wrt.trace`. One class score is asked for with respect to one input
pixel, and one element of a feature map in the middle, found by its layer name, with respect to the same pixel.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import Any

ARCHITECTURES: dict[str, int] = {
    "VGG16": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "DenseNet121": 32,
    "MobileNet": 64,
    "MobileNetV2": 64,
    "MobileNetV3Small": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "InceptionV3": 75,
    "Xception": 71,
    "ConvNeXtTiny": 32,
}
"""Architecture -> side of the smallest square image it takes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What wrt and the plain tape said; `worst` is the largest difference relative to the size of the row."""

    name: str
    layers: int
    operations: int
    score: tuple[float, float]
    feature: tuple[float, float]
    layer: str
    worst: float
    seconds: float

    @property
    def equal(self) -> bool:
        return self.worst < 1e-5 and self.score[0] != 0.0 != self.feature[0]

    def __str__(self) -> str:
        verdict = "equal" if self.equal else "DIFFERENT"
        return (
            f"{self.name:18} {self.operations:5} operations  d(score)/d(pixel) {self.score[0]:+.6e}  "
            f"d({self.layer})/d(pixel) {self.feature[0]:+.6e}  "
            f"difference {self.worst:.0e}  {verdict}  {self.seconds:.1f} s"
        )


def compare(name: str) -> Outcome:
    """One architecture: recorded, asked, and compared with two passes of a plain tape."""
    import keras
    import numpy as np
    import tensorflow as tf

    import wrt
    from wrt import d

    started = time.perf_counter()
    keras.utils.set_random_seed(7)
    side = ARCHITECTURES[name]
    model = getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=10)
    x = tf.constant(np.random.default_rng(5).uniform(-1, 1, (1, side, side, 3)).astype("float32"))
    layer = middle(model)
    probe = keras.Model(model.inputs, [model.get_layer(layer).output, model.outputs[0]])

    t = wrt.trace(model, x)
    spot = np.unravel_index(np.abs(t[layer].value).argmax(), t[layer].shape)  # no unit that is switched off
    asked = [d(t.output)[0, 3], d(t[layer])[spot]]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        feature, scores = probe(x)
        targets = [scores[0, 3], feature[spot]]
    plain = [tape.gradient(target, x).numpy() for target in targets]
    answers = []
    worst = 0.0
    for y, row in zip(asked, plain, strict=True):
        pixel = np.unravel_index(np.abs(row).argmax(), row.shape)  # the one that matters most
        answers.append((float(y / d(t.inputs[0])[pixel]), float(row[pixel])))
        whole = (y / d(t.inputs[0])).numpy()
        scale = float(np.abs(row).max()) or 1.0
        worst = max(worst, float(np.abs(whole - row).max()) / scale, abs(answers[-1][0] - answers[-1][1]) / scale)
    seconds = time.perf_counter() - started
    return Outcome(name, len(model.layers), len(t.graph), answers[0], answers[1], layer, worst, seconds)


def middle(model: Any) -> str:
    """The name of a layer with a feature map, half way through."""
    maps = [layer.name for layer in model.layers if len(getattr(layer.output, "shape", ())) == 4]
    return str(maps[len(maps) // 2])


def main(names: list[str]) -> int:
    """Print one line for each architecture; 0 when all are equal."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    outcomes = []
    for name in [name for name in names if name in ARCHITECTURES] or list(ARCHITECTURES):
        outcomes.append(compare(name))
        sys.stdout.write(f"{outcomes[-1]}\n")
        sys.stdout.flush()
    equal = sum(outcome.equal for outcome in outcomes)
    sys.stdout.write(f"keras.applications: {equal} of {len(outcomes)} architectures equal to a plain GradientTape\n")
    return 0 if equal == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
