"""`J.plot()` and how a notebook shows a derivative: a heat map around zero, with the question as its title."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from wrt import _pictures
from wrt._notation.text import one_line, question
from wrt.errors import TooLarge

if TYPE_CHECKING:
    from wrt._notation.derivative import Derivative


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
