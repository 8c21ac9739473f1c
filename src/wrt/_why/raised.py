"""An exception on its way: the cause by what it says, the place by where it was raised."""

from __future__ import annotations

import dis
import re
from types import CodeType, TracebackType

from wrt._core.finding import Finding, Findings
from wrt._core.where import Where, place, user_files
from wrt._why.cause import causes
from wrt._why.lost import lost
from wrt.errors import WrtError


def raised(error: BaseException) -> Findings:
    """What an exception means, and the user's own line that raised it."""
    carried = error._finding if isinstance(error, WrtError) else getattr(error, "finding", None)
    said = str(error)
    where = _where(error.__traceback__)
    if isinstance(carried, Finding):
        return Findings((carried,), _title(error))
    found_there = lost(*error.without_history) if hasattr(error, "without_history") else ()
    if found_there:
        return Findings(found_there, _title(error))
    for cause in causes().values():
        if any(re.search(pattern, said, re.IGNORECASE) for pattern in cause.raised):
            where = _inside_function(error.__traceback__, cause.slug) or where
            words = f"{type(error).__name__}: {said.strip().splitlines()[0][:160]}"
            known = where is not None and cause.slug != "not_requires_grad"  # it may be a line before, which nobody recorded
            found = Finding(cause.slug, cause.means, where, known, words, cause.remedy.replace("{x}", "x"))
            return Findings((found,), _title(error))
    chained = error.__cause__ or error.__context__
    return raised(chained) if chained is not None else Findings((), _title(error))


def _title(error: BaseException) -> str:
    return f"why {type(error).__name__}"


def _inside_function(traceback: TracebackType | None, slug: str) -> Where | None:
    """What a custom Function did wrong shows after it has returned: the line in its own code."""
    places = {"save_for_backward_nontensor": ("forward", "save_for_backward"), "custom_backward_wrong": ("backward", "")}
    wanted = places.get(slug)
    while traceback is not None and wanted is not None:
        owner = traceback.tb_frame.f_locals.get("cls")
        function = getattr(owner, wanted[0], None) if isinstance(owner, type) else None
        code = getattr(function, "__code__", None)
        if code is not None and user_files[code.co_filename]:
            return _instruction(code, wanted[1])
        traceback = traceback.tb_next
    return None


def _instruction(code: CodeType, name: str) -> Where | None:
    """The line of a function that names something; its last return where nothing is named."""
    lines = [i.positions.lineno for i in dis.get_instructions(code) if i.positions and _is_it(i, name)]
    return Where(code.co_filename, lines[-1], function=code.co_qualname) if lines and lines[-1] else None


def _is_it(instruction: dis.Instruction, name: str) -> bool:
    return instruction.argval == name if name else instruction.opname.startswith("RETURN")


def _where(traceback: TracebackType | None) -> Where | None:
    """The innermost frame of the user's own code."""
    found: Where | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if user_files[code.co_filename]:
            found = place(code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return found
