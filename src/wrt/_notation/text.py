"""The repr is the interface: what it is, what it costs, whether it was computed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt import _pictures
from wrt._core.index import Elements
from wrt._core.value import Side
from wrt._run.answer import direct_plan, is_identity
from wrt._run.options import current
from wrt.errors import TooLarge, WrtError

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


# ---------------------------------------------------------------- pictures


def plot(derivative: Derivative, ax: Any = None) -> Any:
    """One row as the image or the strip it is; several rows as a matrix of flattened y by flattened x."""
    if derivative.size > _pictures.MANY_CELLS:
        raise TooLarge(
            f"a picture of {derivative.size} entries",
            f"the derivative has shape {derivative.shape}",
            "plot some rows, for example J[0].plot()",
        )
    title, across, down = _words(derivative)
    return _pictures.heat(_matrix(derivative), ax, title=title, across=across, down=down)


def shown(derivative: Derivative) -> str:
    """What a notebook displays: colors once it is computed; before that only the sentence, since looking costs nothing."""
    text = one_line(derivative)
    if derivative.known is None or derivative.size < 2 or derivative.size > _pictures.MANY_CELLS:
        return f"<code>{escape(text)}</code>"
    return _pictures.table(_matrix(derivative), text)


def _matrix(derivative: Derivative) -> Any:
    numbers = derivative.numpy()
    if np.iscomplexobj(numbers):
        numbers = np.abs(numbers)
    rows = derivative.rows.size
    scattered = derivative._entries is not None or derivative.order > 1 or derivative._transposed
    if scattered:
        return numbers.reshape(numbers.shape[0] if numbers.ndim > 1 else 1, -1)
    return _pictures.matrix_of(numbers, rows)


def _words(derivative: Derivative) -> tuple[str, str, str]:
    """Title, and what lies across and down."""
    title = f"d({question(derivative).replace(' wrt ', ') / d(')})"
    if derivative.rows.size == 1:
        return title, "", ""
    x, y = derivative._sides[0].name or "x", derivative._y.name or "y"
    return title, f"element of {x}", f"element of {y}"
