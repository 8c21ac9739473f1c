"""Run a script as `python script.py` would; the variables it leaves behind, and the model, the input and the loss among them."""

from __future__ import annotations

import ast
import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from wrt.errors import UnknownName, WrtError


class ScriptFailed(WrtError, RuntimeError):
    """The script could not be run to its end."""


def run(path: Path, arguments: list[str]) -> dict[str, Any]:
    """Its global variables. `sys.exit(0)` at the end of a script is an end like any other."""
    code = compile_script(path)
    module = ModuleType("__main__")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = __builtins__
    with _as_main(module, path, arguments):
        try:
            exec(code, module.__dict__)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ScriptFailed(
                    f"{path.name} ended with {end.code!r}",
                    "sys.exit() was called before there was anything to ask about",
                    "give the script what it needs after the question: wrt ask script.py 'y / x' -- its arguments",
                ) from None
        except Exception as error:
            raise _failure(path, error) from error
    return module.__dict__


def among(names: Mapping[str, Any], question: Callable[[], Any]) -> Any:
    """Ask where these names can be seen: an error then calls a tensor what the script calls it, not x."""
    scope = {**names, "_question": question}
    exec(compile("_answer = _question()", "<question>", "exec"), scope)
    return scope["_answer"]


def _nodes(path: Path) -> list[ast.AST]:
    """The syntax of a script; nothing where it cannot be read, which running it will say."""
    try:
        return list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return []


def imports(path: Path) -> set[str]:
    """The packages that a script names in its import statements."""
    nodes = _nodes(path)
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.split(".")[0] for name in names}


def recordable(path: Path) -> list[str]:
    """The frameworks of a script that can be recorded from outside."""
    return sorted({"torch", "tensorflow"} & imports(path))


def records_itself(path: Path) -> bool:
    """Whether the script calls wrt.trace or wrt.record."""
    called = [node.func for node in _nodes(path) if isinstance(node, ast.Call)]
    names = {ast.unparse(one).rpartition(".")[2] for one in called}
    return "wrt" in imports(path) and bool(names & {"trace", "record"})


def compile_script(path: Path) -> Any:
    try:
        return compile(path.read_bytes(), str(path), "exec")
    except OSError as error:
        raise ScriptFailed(
            f"{path} cannot be read",
            error.strerror or type(error).__name__,
            "write wrt ask script.py 'y / x', with the path of a Python script",
        ) from None
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise ScriptFailed(
            f"{path.name} is not Python",
            f"{path.name}:{line}  {error.args[0]}" if line else str(error),
            "see whether python runs it",
        ) from None


@contextlib.contextmanager
def _as_main(module: ModuleType, path: Path, arguments: list[str]) -> Iterator[None]:
    """What a script can see of how it was started, put back afterwards."""
    before = sys.argv, sys.path[:], sys.modules.get("__main__")
    sys.argv = [str(path), *arguments]
    if not sys.flags.safe_path:  # python -P and PYTHONSAFEPATH keep the script's folder out
        sys.path.insert(0, str(path.resolve().parent))
    sys.modules["__main__"] = module
    try:
        yield
    finally:
        sys.argv = before[0]
        sys.path[:] = before[1]
        if before[2] is not None:
            sys.modules["__main__"] = before[2]


def _failure(path: Path, error: Exception) -> ScriptFailed:
    """The script's own error, at the script's own line."""
    steps = traceback.extract_tb(error.__traceback__)
    own = [step for step in steps if step.filename == str(path)]
    place = f"{path.name}:{own[-1].lineno}  {own[-1].line}" if own else path.name
    said = traceback.format_exception_only(error)[-1].strip()
    return ScriptFailed(f"{path.name} raised {said}", place, "let it run to its end, or ask about a part that does")


def choose(
    variables: Mapping[str, Any], name: str | None, usual: tuple[str, ...], fits: Callable[[Any], bool], what: str, option: str
) -> Any:
    """The variable of that name; without one, a usual name, or the only variable that fits."""
    found = {key: value for key, value in variables.items() if not key.startswith("_") and fits(value)}
    if name is not None:
        if name in variables:
            return variables[name]
        raise UnknownName(f"the script left no variable {name}", _there(found, what), f"name one with {option}")
    for key in usual:
        if key in found:
            return found[key]
    if len(found) == 1:
        return next(iter(found.values()))
    raise UnknownName(f"which {what} is meant?", _there(found, what), f"name it with {option}")


def is_model(obj: Any) -> bool:
    """A module of torch or of Keras, not its class."""
    return not isinstance(obj, type) and (hasattr(obj, "named_parameters") or hasattr(obj, "trainable_variables"))


def is_tensor(obj: Any) -> bool:
    return not isinstance(obj, type) and hasattr(obj, "shape") and hasattr(obj, "dtype") and not is_model(obj)


def is_number(obj: Any) -> bool:
    return is_tensor(obj) and tuple(obj.shape) in ((), (1,))


def _there(found: Mapping[str, Any], what: str) -> str:
    return f"it left {', '.join(list(found)[:8])}" if found else f"it left no {what}"
