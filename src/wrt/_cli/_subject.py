"""The model, the input and the loss that a script left behind, by name or by being the only ones of their kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wrt.errors import UnknownName


def chosen(variables: Mapping[str, Any], name: str | None, usual: tuple[str, ...], fits: Callable[[Any], bool],
           what: str, option: str) -> Any:  # fmt: skip
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
