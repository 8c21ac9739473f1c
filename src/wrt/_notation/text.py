"""The repr is the interface: what it is, what it costs, whether it was computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wrt._core.index import Elements
from wrt._core.value import Side
from wrt._run.answer import direct_plan, is_identity
from wrt._run.options import current
from wrt.errors import WrtError

if TYPE_CHECKING:
    from wrt._notation.derivative import Derivative


def one_line(derivative: Derivative) -> str:
    """`Derivative  y[784] wrt x[784]   32 passes   not computed`, or the number itself."""
    what = question(derivative)
    if derivative.known is not None:
        return f"Derivative  {what} {_result(derivative)}"
    if derivative.known_unconnected:
        return f"Derivative  {what}   not connected"
    if is_identity(derivative.ask):
        return f"Derivative  {what}   {'0' if derivative.order > 1 else 'the identity'}, no pass   not computed"
    try:
        derivative.ask.y.record.ready(derivative.ask.y, derivative.ask.x)
    except WrtError as problem:
        return f"Derivative  {what}   not connected: {problem.what}"
    if derivative.order > 1:
        return f"Derivative  {what}   {derivative.ask.m} x differentiated again   not computed"
    plan = direct_plan(derivative.ask, current().way)
    passes = "1 pass" if plan.passes == 1 else f"{plan.passes} passes"
    return f"Derivative  {what}   {passes} ({plan.way})   not computed"


def question(derivative: Derivative) -> str:
    letters = iter(("x", "z", "w", "v", "u"))
    bottom = " wrt ".join(_side(side, next(letters, "x")) for side in derivative._sides)
    return f"{_selection(derivative._y.name or 'y', derivative.rows)} wrt {bottom}"


def _side(side: Side, letter: str) -> str:
    return _selection(side.name or letter, Elements.all(side.shape)) if side.parts else letter


def _selection(name: str, elements: Elements) -> str:
    return f"{name}[{' x '.join(map(str, elements.shape))}]" if elements.shape else name


def _result(derivative: Derivative) -> str:
    if not derivative.has_path:
        return "  not connected: exact zeros"
    if derivative.size == 1:
        return f"= {derivative.item():.6g}"
    passes = derivative.known.report.passes if derivative.known is not None else 0
    return f"  computed in {passes} {'pass' if passes == 1 else 'passes'}"
