"""The whole idea of wrt on two screens, in plain Python: record one real run, then sweep it for what was asked.

    python docs/explanation/wrt_from_scratch.py

Two kinds of passes are all there is. A *pull* starts at y and goes back: one row of the Jacobian, or a weighted sum of
rows. A *push* starts at one element of x and goes forward: one column. A *plan* says which of them, and why. A *proof*
compares the answer with one more pull.
"""

import math
import random
from dataclasses import dataclass, field

RUN = []  # one recorded run: every number made, in order, with what it was made from


@dataclass(eq=False)
class Number:
    """A number of the run, and its slope in each number it was made from."""

    value: float
    made_from: list[tuple["Number", float]] = field(default_factory=list)

    def __post_init__(self):
        RUN.append(self)

    def __add__(self, other):
        return Number(self.value + other.value, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        return Number(self.value * other.value, [(self, other.value), (other, self.value)])

    def sin(self):
        return Number(math.sin(self.value), [(self, math.cos(self.value))])


def pull(seed, xs):
    """One row, or a sum of rows with the weights in `seed`: walk the run backwards, and share out what flows into a number."""
    flow = dict.fromkeys(RUN, 0.0) | seed
    for number in reversed(RUN):
        for source, slope in number.made_from:
            flow[source] += flow[number] * slope
    return [flow[x] for x in xs]


def push(ys, x):
    """One column: dy/dx for every y. Walk the run forwards; a number moves as much as what it was made from."""
    moves = dict.fromkeys(RUN, 0.0) | {x: 1.0}
    for number in RUN:
        if number is not x:
            moves[number] = sum(moves[source] * slope for source, slope in number.made_from)
    return [moves[y] for y in ys]


@dataclass(frozen=True)
class Plan:
    """How a question will be answered: data, with a reason. Nothing has run yet."""

    way: str
    passes: int
    because: str


def plan(ys, xs):
    """Along the shorter side of the Jacobian."""
    rows, columns = len(ys), len(xs)
    because = f"{rows} rows, {columns} columns"
    return Plan("pull", rows, because) if rows <= columns else Plan("push", columns, because)


def run(chosen, ys, xs):
    """The whole Jacobian, as the plan says."""
    if chosen.way == "pull":
        return [pull({y: 1.0}, xs) for y in ys]
    return [list(row) for row in zip(*(push(ys, x) for x in xs))]


def proven(J, ys, xs):
    """The rows of the answer, summed with random weights, next to one independent pull of the same weights."""
    weights = [random.choice([-1, 1]) * random.uniform(0.5, 1) for _ in ys]
    check = pull(dict(zip(ys, weights)), xs)
    sums = [sum(w * row[k] for w, row in zip(weights, J)) for k in range(len(xs))]
    sizes = [math.hypot(*(row[k] for row in J)) for k in range(len(xs))]
    return all(abs(a - b) <= 2.0**-52 * (32 * size + 4 * max(sizes)) for a, b, size in zip(sums, check, sizes))


class Derivative:
    """`d(y) / d(x)`: it knows its question, and computes only when someone looks."""

    def __init__(self, ys, xs):
        self.ys, self.xs = ys, xs

    def __getitem__(self, rows):
        return Derivative(self.ys[rows], self.xs)  # still nothing computed

    @property
    def value(self):
        J = run(plan(self.ys, self.xs), self.ys, self.xs)
        assert proven(J, self.ys, self.xs)  # wrt tries the next plan here
        return J

    def __repr__(self):
        chosen = plan(self.ys, self.xs)
        return f"{len(self.ys)} x {len(self.xs)} by {chosen.passes} x {chosen.way}, not computed"


class d:
    """One side of the question, written as in mathematics."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __truediv__(self, other):
        return Derivative(self.numbers, other.numbers)


random.seed(0)
x = [Number(0.3), Number(-1.2), Number(2.0)]
h = [(x[0] * x[1]).sin(), x[1] * x[2]]                  # something in between: it can be asked about too
y = [h[0] * h[1], h[1] + x[0], h[0] + h[0], x[2] * x[2]]

J = d(y) / d(x)
assert repr(J) == "4 x 3 by 3 x push, not computed"
assert repr(J[:1]) == "1 x 3 by 1 x pull, not computed"
assert J.value[2] == J[2:3].value[0]                     # columns and a row agree
assert (d(y) / d(h)).value[0] == [h[1].value, h[0].value]
assert (d(h) / d(h)).value == [[1, 0], [0, 1]]           # the identity, and no special case for it

wrong = J.value
wrong[0], wrong[1] = wrong[1], wrong[0]                  # two rows exchanged: the proof notices
assert not proven(wrong, y, x)

slope = 2 * x[1].value * math.cos(x[0].value * x[1].value)     # y[2] = 2 sin(x0 x1), by hand
assert math.isclose(J.value[2][0], slope)
print("wrt from scratch:", J, "and right")
