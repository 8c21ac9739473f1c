"""What `why` and `check` may ask of a recorded run beyond its graph: events, flags, numbers, one operation run again.

All numbers are NumPy arrays in double precision: a diagnosis looks at few of them, and must not depend on a framework.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from wrt._core.graph import Graph, Node
from wrt._core.where import Where, function_name, user_files

Numbers: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Event:
    """A change of state that is no operation: a backward, an optimizer built, a tape closed.

    `at` is the number of operations that ran before it, `values` the tensors it is about, `words` what its kind needs.
    """

    kind: str
    at: int
    where: Where | None = None
    values: tuple[int, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Again:
    """One operation, to be run again on other numbers: `inputs` as they were, and `run(inputs) -> outputs`.

    `numbers[k]` is the recorded tensor behind input k. `custom` names a derivative rule that somebody wrote by hand,
    with the line where that rule returns. `push(inputs, k, tangent)` is its forward mode, where the framework has one
    beside its backward; it gives None for an output it says nothing of. `is_narrow()` says, after a run, whether results
    came in fewer digits than the inputs had.
    """

    inputs: tuple[Numbers, ...]
    numbers: tuple[int, ...]
    run: Any
    custom: str = ""
    rule: Where | None = None
    precision: float = 2.3e-16
    push: Any = None
    is_narrow: Callable[[], bool] = lambda: False


class Evidence(Protocol):
    """One recorded run under examination."""

    @property
    def graph(self) -> Graph:
        """The run as plain data; it may know more operations than the recording's own."""

    @property
    def events(self) -> Sequence[Event]:
        """What changed beside the operations, in order."""

    def moments(self, tensor: int) -> list[int]:
        """The values one tensor object has had, the latest first: a write in place gives it a new one."""

    def starts(self, tensor: int) -> int | None:
        """The operation before which the user's own engine began to follow this tensor; None if it never did."""

    def look_from(self, y: int) -> None:
        """The question is about y: a framework with several engines (tapes) chooses the one that saw it."""

    def unfollowed(self, tensor: int) -> tuple[str, Where | None, str] | None:
        """Why the user's own engine does not follow a tensor: (cause, place, evidence); None: the ordinary reason."""

    def consumed(self, y: int) -> tuple[Where | None, str] | None:
        """Where the history of y was used up by an earlier question, so that another one would be refused."""

    def requests(self) -> Sequence[tuple[list[int], list[int]]]:
        """What the user's own tapes were asked for: losses, and what they are to move; none where there are no tapes."""

    def unrecorded(self, y: int, x: int) -> Sequence[Where | None]:
        """Where y takes what nobody saw being made, so that it may come from x; None for a place without a line."""

    def passes(self, node: Node, output: int) -> bool:
        """Whether, in the user's own run, a gradient passes from the inputs of an operation to this output."""

    def off(self, node: Node) -> str:
        """Why gradients were switched off while it ran: "no_grad", "inference_mode", "tape_closed", or ""."""

    def outside(self, node: Node) -> Where | None:
        """The line to blame where an operation ran outside of what should have followed it."""

    def via(self, node: Node) -> str:
        """The library function that the user's line called, where one made the operation: `norm`, `sample`."""

    def gradient(self, y: int, seed: Numbers, x: int) -> Numbers | None:
        """The gradient of sum(seed * y) with respect to one value: a plain pass."""

    def largest(self, y: int, seed: Numbers, xs: Sequence[int]) -> list[float | None] | None:
        """The largest absolute element of the gradient with respect to each x, by one pass; None where none comes.

        None instead of a list where the engine that answers is not the one of the user's run: it would prove nothing.
        """

    def cotangents(self, y: int, seed: Numbers, xs: frozenset[int] | None = None) -> dict[int, Numbers | None]:
        """The gradient of sum(seed * y) with respect to every value on the way, or at least to these, by one pass."""

    def local(self, node: Node, cotangents: Sequence[Numbers | None]) -> list[Numbers | None]:
        """One operation's own pull, without anything around it: a cotangent for each of its inputs."""

    def push(self, node: Node, place: int, tangent: Numbers) -> list[Numbers | None] | None:
        """How the outputs of one operation move when its input at this place does; None where it cannot be told."""

    def value(self, tensor: int) -> Numbers | None:
        """The numbers a value had, where somebody still holds them."""

    def saved(self, node: Node) -> dict[str, Numbers]:
        """Numbers that an operation kept for its backward, by the name it has for them."""

    def again(self, node: Node) -> Again | None:
        """An operation whose arguments were kept, to be run again."""

    def mutates(self, node: Node) -> bool:
        """Whether its backward was seen to write into the cotangent it was given."""

    def gradient_attribute(self, tensor: int) -> Numbers | None:
        """What the tensor's own `.grad` holds now."""

    def refused(self, y: int, x: int, path: Sequence[Node]) -> list[tuple[str, Node, str]]:
        """What the framework alone would have refused: (cause, culprit, evidence); a recording is more patient."""


@dataclass(frozen=True, slots=True)
class LostHistory:
    """What a backend leaves as `without_history` on an error of its framework: y, of a run, has nothing to go back along.

    `bound_at(tensor)` is the line that first gave a tensor its name.
    """

    evidence: Callable[[], Evidence]
    y: int
    bound_at: Callable[[int], Where | None]


# ---------------------------------------------------------------- rules that a user wrote by hand


INSIDE = ("f", "f_transformed", "transforms", "__wrapped__", "call", "func", "fun")
"""Attributes in which wrappers keep what they wrap."""


def user_codes(thing: Any) -> Iterator[CodeType]:
    """Code of the user's behind partials, closures and wrapped functions, the outermost first."""
    waiting, seen = [thing], dict[int, Any]()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, FunctionType) and user_files[thing.__code__.co_filename]:
            yield thing.__code__
        waiting += reversed(list(_inside(thing)))


def _inside(thing: Any) -> Iterator[Any]:
    if isinstance(thing, FunctionType):
        for cell in thing.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not filled yet
                continue
    elif isinstance(thing, functools.partial):
        yield thing.func
        yield from thing.args
    elif isinstance(thing, (tuple, list)):
        yield from thing
    else:
        yield from (inner for name in INSIDE if (inner := getattr(thing, name, None)) is not None)


def last_line(code: CodeType, name: str = "") -> Where | None:
    """The last line of a function that names this; the one where it returns where nothing is named."""
    found = (i for i in dis.get_instructions(code) if (i.argval == name if name else i.opname.startswith("RETURN")))
    lines = [i.positions.lineno for i in found if i.positions]
    return Where(code.co_filename, lines[-1], function=function_name(code)) if lines and lines[-1] else None


Local = Callable[[Node, Sequence[Numbers | None]], list[Numbers | None]]


def cotangents(
    nodes: Iterable[Node], y: int, seed: Numbers, local: Local, passes: Callable[[Node], bool]
) -> dict[int, Numbers | None]:
    """The cotangent of every value on the way to y, operation by operation from the last to the first."""
    found: dict[int, Numbers | None] = {y: np.asarray(seed, dtype=np.float64)}
    for node in nodes:
        arrives = [found.get(k) for k in node.outputs]
        if all(c is None for c in arrives) or not passes(node):
            continue
        for number, pulled in zip(node.inputs, local(node, arrives), strict=True):
            if pulled is not None:
                known = found.get(number)
                found[number] = pulled if known is None else known + pulled
    return found
