"""Labelled failures, one script each: `main()` returns what to ask about, `EXPECT` says which cause and line to blame."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import wrt

FOLDER = Path(__file__).with_name("cases")
WITHOUT_A_LINE = {"012_integer_argument.py": "a Python int given to a library function leaves no line of the user's behind"}


def paths(framework: str) -> list[Path]:
    return sorted((FOLDER / framework).glob("*.py"))


def diagnosed(path: Path, framework: str) -> tuple[dict[str, Any], wrt.Findings]:
    """The label of a case, and what `why` says of its run or of the error it ended with."""
    with warnings.catch_warnings():  # the scripts silence warnings for themselves
        spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
        assert spec is not None
        case = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = case
        try:
            assert spec.loader is not None
            spec.loader.exec_module(case)
            return case.EXPECT, _why(case, framework)
        finally:
            del sys.modules[spec.name]


def _why(case: Any, framework: str) -> wrt.Findings:
    expect = case.EXPECT
    try:
        if framework == "jax":
            f, args = case.main()
            t = wrt.trace(f, *args)
            target, source = t.output, t.inputs[expect.get("argnum", 0)]
        else:
            with wrt.record():
                target, source, *_ = case.main()
        return wrt.why(target, wrt.d(source)[expect["at"]] if "at" in expect else source)
    except Exception as error:
        return wrt.why(error)


def hold(path: Path, framework: str) -> None:
    """The cause and the line of a failure; nothing certain on a healthy program."""
    expect, found = diagnosed(path, framework)
    if expect["cause"] == "none":
        assert not [finding for finding in found if finding.certain]
        return
    assert found[0].cause in {expect["cause"], *expect.get("also", ())}
    if path.name in WITHOUT_A_LINE:
        assert not found[0].certain
        return
    assert found[0].line in {expect["line"], *expect.get("lines", ())}
    assert Path(found[0].file or "").name == path.name
