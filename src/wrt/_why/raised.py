"""An exception on its way: the cause by what it says, the place by where it was raised."""

from __future__ import annotations

import re
from types import TracebackType

from wrt._core.finding import Finding, Findings
from wrt._core.where import Where, place, user_files
from wrt._why.cause import causes


def raised(error: BaseException) -> Findings:
    """What an exception means, and the user's own line that raised it."""
    carried = getattr(error, "finding", None)
    said = str(error)
    where = _where(error.__traceback__)
    if isinstance(carried, Finding):
        return Findings((carried,), _title(error))
    for cause in causes().values():
        if any(re.search(pattern, said) for pattern in cause.raised):
            words = f"{type(error).__name__}: {said.strip().splitlines()[0][:160]}"
            found = Finding(cause.slug, cause.means, where, where is not None, words, cause.remedy.replace("{x}", "x"))
            return Findings((found,), _title(error))
    chained = error.__cause__ or error.__context__
    return raised(chained) if chained is not None else Findings((), _title(error))


def _title(error: BaseException) -> str:
    return f"why {type(error).__name__}"


def _where(traceback: TracebackType | None) -> Where | None:
    """The innermost frame of the user's own code."""
    found: Where | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if user_files[code.co_filename]:
            found = place(code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found
