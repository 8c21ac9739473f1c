"""The whole idea of wrt on one screen, in plain Python: record one real run, then sweep it for what was asked.

    python docs/explanation/wrt_from_scratch.py

Two sweeps are all there is. A *pull* starts at one element of y and goes back: one row of the Jacobian. A *push* starts
at one element of x and goes forward: one column. Everything else is deciding which, and how few of them will do.
"""

import math
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


def pull(y, xs):
    """One row: dy/dx for every x. Walk the run backwards; what flows into a number is shared out by its slopes."""
    flow = dict.fromkeys(RUN, 0.0) | {y: 1.0}
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


class Derivative:
    """`d(y) / d(x)`: it knows its question, and sweeps along the shorter side when someone looks."""

    def __init__(self, ys, xs):
        self.ys, self.xs = ys, xs

    def __getitem__(self, rows):
        return Derivative(self.ys[rows], self.xs)  # still nothing computed

    @property
    def value(self):
        if len(self.ys) <= len(self.xs):
            return [pull(y, self.xs) for y in self.ys]
        return [list(row) for row in zip(*(push(self.ys, x) for x in self.xs))]

    def __repr__(self):
        way = "pull" if len(self.ys) <= len(self.xs) else "push"
        return f"{len(self.ys)} x {len(self.xs)} by {min(len(self.ys), len(self.xs))} x {way}, not computed"


class d:
    """One side of the question, written as in mathematics."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __truediv__(self, other):
        return Derivative(self.numbers, other.numbers)


x = [Number(0.3), Number(-1.2), Number(2.0)]
h = [(x[0] * x[1]).sin(), x[1] * x[2]]                  # something in between: it can be asked about too
y = [h[0] * h[1], h[1] + x[0], h[0] + h[0], x[2] * x[2]]

J = d(y) / d(x)
assert repr(J) == "4 x 3 by 3 x push, not computed"
assert repr(J[:1]) == "1 x 3 by 1 x pull, not computed"
assert J.value[2] == J[2:3].value[0]                     # a column sweep and a row sweep agree
assert (d(y) / d(h)).value[0] == [h[1].value, h[0].value]
assert (d(h) / d(h)).value == [[1, 0], [0, 1]]           # the identity, and no special case for it

slope = 2 * x[1].value * math.cos(x[0].value * x[1].value)     # y[2] = 2 sin(x0 x1), by hand
assert math.isclose(J.value[2][0], slope)
print("wrt from scratch:", J, "and right")
