"""`wrt demo`: five questions people ask about gradients of elements, asked in each framework and checked another way.

Each program runs as a user's file would. A framework other than torch gets a process of its own, since two of them in one
are slow to start and heavy: `python -m wrt._cli.demo jax` prints what came out as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import wrt
from wrt import d
from wrt.errors import WrtError

FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}
IMPORTS = {
    "torch": "import torch\n",
    "tensorflow": "import os\nos.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')\nimport tensorflow as tf\n",
    "jax": "import jax\nimport jax.numpy as jnp\njax.config.update('jax_enable_x64', True)\n",
}
PAGE = "wrt-demo.html"


@dataclass(frozen=True, slots=True)
class Question:
    """A program for each framework, then lines that are asked of it, each with the same numbers found another way."""

    number: str
    asks: str
    programs: dict[str, str]
    lines: tuple[tuple[str, str, str], ...]
    truth: str


QUESTIONS = (
    Question(
        "1",
        "How does y = 2·x[2] + sum(x) change with the element x[2] alone?",
        {
            "torch": "x = torch.linspace(-1, 1, 5, requires_grad=True)\ny = 2 * x[2] + x.sum()",
            "tensorflow": "with wrt.record() as t:\n    x = tf.linspace(-1.0, 1.0, 5)\n    y = 2 * x[2] + tf.reduce_sum(x)",
            "jax": "t = wrt.trace(lambda x: 2 * x[2] + x.sum(), jnp.linspace(-1, 1, 5))\ny, x = t.output, t.inputs[0]",
        },
        (("d(y) / d(x)[2]", "3.0", "2 + 1, by hand"),),
        "No custom autograd Function is needed, and nothing is read from .grad, to which every backward adds.",
    ),
    Question(
        "2",
        "Is plain indexing, y = 2·x[0], differentiable?",
        {
            "torch": "x = torch.linspace(-1, 1, 5, requires_grad=True)\ny = 2 * x[0]",
            "tensorflow": "with wrt.record() as t:\n    x = tf.linspace(-1.0, 1.0, 5)\n    y = 2 * x[0]",
            "jax": "t = wrt.trace(lambda x: 2 * x[0], jnp.linspace(-1, 1, 5))\ny, x = t.output, t.inputs[0]",
        },
        (("d(y) / d(x)", "[2, 0, 0, 0, 0]", "by hand"),),
        "It is: x[0] stays in the graph, and the gradient is not None. gather and masks say the same.",
    ),
    Question(
        "3",
        "How does one element of a feature map change with one pixel?",
        {
            "torch": "image = torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8).requires_grad_()\n"
            "kernel = torch.linspace(-1, 1, 108).reshape(4, 3, 3, 3)\n"
            "m = torch.nn.functional.conv2d(image, kernel)",
            "tensorflow": "kernel = tf.reshape(tf.linspace(-1.0, 1.0, 108), (4, 3, 3, 3))\n"
            "with wrt.record() as t:\n"
            "    image = tf.reshape(tf.linspace(-1.0, 1.0, 192), (1, 3, 8, 8))\n"
            "    last = tf.transpose(image, (0, 2, 3, 1)), tf.transpose(kernel, (2, 3, 1, 0))\n"
            "    m = tf.transpose(tf.nn.conv2d(*last, strides=1, padding='VALID'), (0, 3, 1, 2))",
            "jax": "kernel = jnp.linspace(-1, 1, 108).reshape(4, 3, 3, 3)\n"
            "image = jnp.linspace(-1, 1, 192).reshape(1, 3, 8, 8)\n"
            "t = wrt.trace(lambda image: jax.lax.conv(image, kernel, (1, 1), 'VALID'), image)\n"
            "m, image = t.output, t.inputs[0]",
        },
        (
            ("d(m)[0, 2, 4, 5] / d(image)[0, 1, 4, 7]", "np.asarray(kernel)[2, 1, 0, 2]", "a weight of the kernel"),
            ("d(m)[0, 2, 4, 5] / d(image)[0, 1, 0, 0]", "0.0", "out of reach"),
        ),
        "One row of the Jacobian is one backward pass; one element of it costs no more.",
    ),
    Question(
        "4",
        "What is the gradient of something in between, a latent z?",
        {
            "torch": "w, x = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(-1, 1, 4, requires_grad=True)\n"
            "z = 2 * torch.tanh(x)\nloss = (z @ w).sum()",
            "tensorflow": "w, x = tf.reshape(tf.linspace(-1.0, 1.0, 12), (4, 3)), tf.linspace(-1.0, 1.0, 4)\n"
            "with wrt.record() as t:\n    z = 2 * tf.tanh(x)\n"
            "    loss = tf.reduce_sum(tf.linalg.matvec(w, z, transpose_a=True))",
            "jax": "w = jnp.linspace(-1, 1, 12).reshape(4, 3)\n"
            "def model(x):\n    z = 2 * jnp.tanh(x)\n    return (z @ w).sum()\n"
            "t = wrt.trace(model, jnp.linspace(-1, 1, 4))\nloss, z = t.output, t['z']",
        },
        (("d(loss) / d(z)", "np.asarray(w).sum(axis=1)", "row sums of w, by hand"),),
        "No retain_grad(): nothing has to be arranged before or after backward.",
    ),
    Question(
        "5",
        "What is the derivative of a tensor with respect to itself?",
        {
            "torch": "y = 3 * torch.ones(2, 2, requires_grad=True)\ntotal = y.sum()",
            "tensorflow": "with wrt.record() as t:\n    y = 3 * tf.ones((2, 2))\n    total = tf.reduce_sum(y)",
            "jax": "def f(x):\n    y = 3 * x\n    return y, y.sum()\nt = wrt.trace(f, jnp.ones((2, 2)))\ny, total = t.output",
        },
        (
            ("d(y) / d(y)", "np.eye(4).reshape(2, 2, 2, 2)", "the identity"),
            ("d(total) / d(y)", "np.ones((2, 2))", "ones: the gradient of the sum"),
        ),
        "The identity. A tensor of ones is the gradient of y.sum(): another question.",
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one framework answered to one line; true where it agrees with what was found another way, to 1e-5."""

    number: str
    framework: str
    line: str = ""
    got: Any = None
    expected: Any = None
    how: str = ""
    passes: int = 0
    raised: str = ""
    skipped: str = ""

    def __bool__(self) -> bool:
        if self.raised or self.skipped:
            return bool(self.skipped)
        got, expected = np.asarray(self.got, float), np.asarray(self.expected, float)
        return got.shape == expected.shape and bool(np.all(np.abs(got - expected) <= 1e-5))  # a NaN is not below anything

    def words(self) -> str:
        name = FRAMEWORKS[self.framework]
        if self.skipped:
            return f"– {name}: {self.skipped}"
        if self.raised:
            return f"✗ {name}: {self.raised}"
        cost = "1 pass" if self.passes == 1 else f"{self.passes} passes"
        other = f"{self.how}: the same" if self else f"{self.how}: {_short(self.expected)}, DIFFERENT"
        return f"{'✓' if self else '✗'} {name}: {self.line}  =  {_short(self.got)}  ({cost}; {other})"


def _short(numbers: Any) -> str:
    """An answer in one line: all of a short one, the shape and the extremes of a long one.

    >>> _short([2.0, 0.0]), _short([[0.0] * 4] * 4)
    ('[2, 0]', '(4, 4) numbers from 0 to 0')
    """
    array: npt.NDArray[Any] = np.asarray(numbers, float)
    if array.size > 6:
        return f"{array.shape} numbers from {array.min():.4g} to {array.max():.4g}"
    return np.array2string(array, separator=", ", formatter={"float_kind": lambda one: f"{one:.6g}"}).replace("\n", "")


def answer(question: Question, framework: str) -> list[Outcome]:
    """Run the program and ask its lines; what it raises is an outcome too."""
    names: dict[str, Any] = {"wrt": wrt, "d": d, "np": np}
    outcomes = []
    try:
        exec(compile(IMPORTS[framework] + question.programs[framework], f"<demo in {framework}>", "exec"), names)
        for line, other, how in question.lines:
            found = eval(line, names)
            expected = np.asarray(eval(other, names), float).tolist()
            numbers, passes = found.numpy().tolist(), found.explain().passes
            outcomes.append(Outcome(question.number, framework, line, numbers, expected, how, passes))
    except Exception as error:
        outcomes.append(Outcome(question.number, framework, raised=traceback.format_exception_only(error)[-1].strip()))
    return outcomes


def outcomes_of(framework: str, asked: Sequence[Question]) -> list[Outcome]:
    """What the framework answered, asked in this process or, other than torch, in one of its own."""
    if importlib.util.find_spec(framework) is None:
        why = f"it is not installed here; pip install 'wrt[{framework}]' and run the demo again"
        return [Outcome(one.number, framework, skipped=why) for one in asked]
    if framework == "torch":
        return [found for one in asked for found in answer(one, framework)]
    numbers = [one.number for one in asked]
    process = subprocess.run([sys.executable, "-m", __name__, framework, *numbers], capture_output=True, text=True)
    try:
        return [Outcome(**row) for row in json.loads(process.stdout.splitlines()[-1])]
    except (IndexError, json.JSONDecodeError):
        said = (process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        return [Outcome(number, framework, raised=said) for number in numbers]


def demonstrate(only: str, framework: str, as_json: bool) -> int:
    """Ask, and print what came out; gives the exit status."""
    started = time.perf_counter()
    asked = [one for one in QUESTIONS if only in ("", one.number)]
    names = [name for name in FRAMEWORKS if framework in ("", name)]
    if not asked or not names:
        print(f"no question matches: number {only or 'any'}, framework {framework or 'any'}")
        return 2
    with ThreadPoolExecutor() as pool:  # processes of their own run beside this one
        elsewhere = [pool.submit(outcomes_of, name, asked) for name in names if name != "torch"]
        here = outcomes_of("torch", asked) if "torch" in names else []
        outcomes = here + [one for waiting in elsewhere for one in waiting.result()]
    if as_json:
        print(json.dumps([asdict(one) | {"passed": bool(one)} for one in outcomes]))
        return 0 if all(outcomes) else 1
    for question in asked:
        print(f"{question.number}  {question.asks}")
        for one in outcomes:
            if one.number == question.number:
                print(f"     {one.words()}")
        print(f"     Truth: {question.truth}\n")
    skipped, failed = [one for one in outcomes if one.skipped], [one for one in outcomes if not one]
    verdict = f"{len(outcomes) - len(skipped) - len(failed)} answers held in {time.perf_counter() - started:.1f} s"
    verdict += f", {len(skipped)} skipped" if skipped else ""
    where = ", ".join(f"{one.number} ({FRAMEWORKS[one.framework]})" for one in failed)
    print(f"{verdict}; FAILED: {where}" if failed else verdict)
    if not only and "torch" in names and importlib.util.find_spec("torch") is not None:
        print(write_page(Path.cwd()))
    print("longer examples, one script for each framework, are in the folder examples/ of the source of wrt")
    return 1 if failed else 0


# ---- a page to click at: a small network that learned to tell shapes apart, on a picture it drew itself ----


def write_page(folder: Path) -> str:
    """Write the page, and say where it is; where it cannot be written, why."""
    try:
        saved = shapes().save_html(folder / PAGE, rows=("scores", "parts", "edges"), title="a small network on a ring")
    except (WrtError, OSError) as error:
        return f"no page was written: {error}"
    return (
        f"{PAGE} ({saved.bytes / 1e6:.1f} MB): open it in a browser and click an element of what the network gave\n"
        f"  it carries {saved.rows} rows of its Jacobian; t.show() computes any other"
    )


def shapes() -> wrt.Trace:
    """A recorded run of the trained network on a ring, the same every time; random states stay as they were."""
    model, picture = network()
    return wrt.trace(lambda x: model(wrt.tap("picture", x)), picture, values=True)


def network(steps: int = 120) -> tuple[Any, Any]:
    """Two convolutions and a score for each shape, trained for a second or two on one core; and the picture of a ring."""
    import torch
    from torch import nn

    class Shapes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edges = nn.Conv2d(1, 6, 3, padding=1)
            self.parts = nn.Conv2d(6, 8, 3, padding=1, stride=2)
            self.scores = nn.Linear(8 * 6 * 6, 3)

        def forward(self, picture: Any) -> Any:
            edges = nn.functional.softplus(self.edges(picture), beta=4)
            parts = nn.functional.softplus(self.parts(edges), beta=4)
            return self.scores(nn.functional.avg_pool2d(parts, 2).flatten(1))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Shapes()
        best = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(steps):
            labels = torch.randint(0, 3, (24,))
            moves = torch.randn(24, 3).mul(torch.tensor([0.15, 3.0, 0.08])).tolist()
            drawn = torch.stack([_draw(int(k), *move) for k, move in zip(labels, moves)])[:, None]
            loss = nn.functional.cross_entropy(model(drawn + 0.15 * torch.randn_like(drawn)), labels)
            best.zero_grad()
            loss.backward()
            best.step()
    return model.double(), _draw(0)[None, None].double()


def _draw(shape: int, shift: float = 0.0, turn: float = 0.0, grow: float = 0.0) -> Any:
    """A ring, a cross or stripes on 24 x 24 pixels, as numbers between 0 and 1."""
    import torch

    line, size = torch.linspace(-1, 1, 24), 0.55 + grow
    down, right = torch.meshgrid(line + shift, line - shift, indexing="ij")
    x = right * math.cos(turn) + down * math.sin(turn)
    y = down * math.cos(turn) - right * math.sin(turn)
    if shape == 0:
        far = (x**2 + y**2).sqrt() - size
    elif shape == 1:
        far = torch.minimum(x.abs(), y.abs()) + 0.4 * (torch.maximum(x.abs(), y.abs()) - size - 0.2).clamp(min=0)
    else:
        far = torch.sin(x * 5 / size) * 0.4
    return torch.exp(-(far**2) / 0.02)


if __name__ == "__main__":
    framework, *numbers = sys.argv[1:]
    asked = [one for one in QUESTIONS if one.number in numbers]
    print(json.dumps([asdict(found) for one in asked for found in answer(one, framework)]))
