"""What an assertion proved or how it failed, and how hard the assertions look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec

from wrt.errors import WrtError


@dataclass(slots=True)
class Settings:
    """`points`: inputs at which a model is probed, the given one among them. `seed`: of all that is random here."""

    points: int = 3
    seed: int = 0


settings = Settings()


Given = ParamSpec("Given")


@dataclass(frozen=True, slots=True)
class Proven:
    """An assertion that held: what it claimed, what was looked at, and what else is worth knowing."""

    claim: str
    by: str
    passes: int
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        notes = "".join(f"\n  note: {note}" for note in self.notes)
        return f"{self.claim}\n  {self.by}; {self.passes} {'pass' if self.passes == 1 else 'passes'}{notes}"


class Failed(WrtError, AssertionError):
    """An assertion that does not hold: what depends on what, where that comes from, what was expected.

    `output` and `input` are full indices of one offending pair, `value` is its derivative.
    """

    output: tuple[int, ...] | None = None
    input: tuple[int, ...] | None = None
    value: float | None = None

    def at(self, output: tuple[int, ...] | None, input: tuple[int, ...] | None, value: float | None) -> Failed:
        self.output, self.input, self.value = output, input, value
        return self


class Undecided(WrtError, RuntimeError):
    """The probes cannot tell: gradients are not finite, or there is nothing to probe."""


def assertion(check: Callable[Given, Proven]) -> Callable[Given, Proven]:
    """A check whose failures start at the user's own line: what happened inside is in the message, not in the traceback."""

    @wraps(check)
    def asserted(*args: Given.args, **kwargs: Given.kwargs) -> Proven:
        __tracebackhide__ = True
        try:
            return check(*args, **kwargs)
        except (Failed, Undecided) as verdict:
            raise verdict.with_traceback(None) from None

    return asserted
