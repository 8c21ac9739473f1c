"""Where a Value stands in a run, said so that it is found again in another run of the same model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from wrt._core.value import Value
from wrt.errors import CannotTravel


@dataclass(frozen=True, slots=True)
class Address:
    """The `number`-th tensor of the output or the inputs, or the `number`-th time that a name was bound."""

    kind: Literal["output", "input", "name"]
    number: int = 0
    name: str = ""

    def __str__(self) -> str:
        if self.kind == "name":
            return self.name if not self.number else f"{self.name}#{self.number}"
        return f"{self.kind}[{self.number}]" if self.number else self.kind


def address_of(recording: Any, value: Value) -> Address:
    """Where a Value of this run stands."""
    found = known_address(recording, value)
    if found is None:
        raise CannotTravel(
            "a tensor of this question has no name in its run",
            "another process finds it again as an output, an input or by a name",
            'bind it to a variable inside the model, or write wrt.tap("name", tensor) there',
        )
    return found


def known_address(recording: Any, value: Value) -> Address | None:
    """The same; None where it stands nowhere."""
    for kind, tree in (("output", recording.output), ("input", (recording.inputs, recording.keywords))):
        for number, one in enumerate(_values(recording, tree)):
            if recording.same(one, value):
                return Address(kind, number)  # type: ignore[arg-type]
    for name in dict.fromkeys([value.name, *recording.names]):
        for bound, address in named(recording, name):
            if bound.shape == value.shape and recording.same(bound, value):
                return address
    return None


def named(recording: Any, name: str) -> Iterator[tuple[Value, Address]]:
    """Every Value that was bound to a name, and where it stands."""
    for number, binding in enumerate(recording.names.all(name) if name else ()):
        yield recording.bound(binding), Address("name", number, name)


def value_at(recording: Any, address: Address) -> Value:
    """The Value that stands there in this run."""
    if address.kind == "name":
        found: Value = recording.bound(recording.names[address.name, address.number])
        return found
    tree = recording.output if address.kind == "output" else (recording.inputs, recording.keywords)
    values = _values(recording, tree)
    if address.number >= len(values):
        raise CannotTravel(
            f"the model built here has no {address}",
            f"it has {len(values)} tensors there",
            "let the builder make the same model in every process",
        )
    return values[address.number]


def _values(recording: Any, tree: Any) -> list[Value]:
    found: list[Value] = []
    recording.map_tree(tree, found.append)  # a framework with containers of its own knows how to look into them
    return found
