"""What the user writes: `d(y)[i] / d(x)[j]`. The only place where the parts below meet."""

from typing import Any

from wrt import errors


def _explain(error: errors.WrtError) -> Any:
    """The Finding that belongs to an error, found when somebody looks: most errors are only read."""
    from wrt._why.errors import explain  # not small, and most programs never fail

    try:
        found = explain(error)
    except Exception:  # it must never hide the error
        return None
    return found[0] if found else None


errors._explains.append(_explain)
