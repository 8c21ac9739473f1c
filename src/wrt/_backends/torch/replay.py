"""Passes that are asked for again and again on a GPU: recorded as a CUDA graph, and replayed with the numbers of each run.

A pull by rules is a function of its seeds and of what the nodes have saved. So the rules are run once on nodes that stand
in for those of the run: these give copies that stay where they are, and note what was read. From then on what a run has
saved is written over the copies, and the device does the rest without being told step by step.

A replay is used only where the graph is the one that was recorded: the same rules in the same order, the same shapes, and
the same numbers wherever a number became part of the recording. It answers once it was seen to give, bit by bit, what the
rules give for the next run.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from wrt._backends.torch.nodes import Node, NoRule
from wrt._backends.torch.rules.batch import Tensor
from wrt._backends.torch.rules.families import Rule, Step
from wrt._backends.torch.rules.pictures import PICTURES
from wrt._backends.torch.rules.products import PRODUCTS
from wrt._backends.torch.rules.program import Program
from wrt._backends.torch.rules.question import program_of
from wrt._core.value import Value

OFTEN = 4  # times that a batch is asked for before it is recorded: that takes as long as a dozen of them, and loops are long
STEPS = 12  # rules in it; fewer are told to the device as quickly as they are compared
MISSES = 3  # runs in a row that were not the recorded one, after which it is given up
SHARE = 512  # that part of a device's memory may be held by all recordings together,
EACH = 4  # and that part of it by each

WITH_A_WORKSPACE: frozenset[Rule] = frozenset([*PRODUCTS.values(), PICTURES["ConvolutionBackward0"]])
"""Matrix products write to memory that belongs to a stream, not to a recording, and that others may give away."""


class StandIn:
    """A node in a recording: its tensors are copies that stay where they are, and what is read of it is noted."""

    __slots__ = ("_known", "_node", "_notes", "_number")

    def __init__(self, number: int, node: Node, notes: Notes) -> None:
        self._number, self._node, self._notes = number, node, notes
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        known: dict[str, Any] = self._known
        if name not in known:
            known[name] = self._notes.take(self._number, self._node, name)
        return known[name]


class Notes:
    """What rules read of the nodes: tensors, of which there are copies, and settings, which must stay the same."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.tensors: list[tuple[int, str]] = []
        self.copies: list[Tensor] = []
        self.settings: list[tuple[int, str, Any]] = []

    def take(self, number: int, node: Node, name: str) -> Any:
        value = getattr(node, name)
        if type(value) in (Tensor, torch.nn.Parameter) and value.device == self.device:
            self.tensors.append((number, name))
            self.copies.append(value.detach().clone(memory_format=torch.contiguous_format))
            return self.copies[-1]
        self.settings.append((number, name, setting(node, name)))
        return value


def setting(node: Node, name: str) -> Any:
    """What a node says of itself, as something that can be compared; raises NoRule where it cannot."""
    value = getattr(node, name)
    if name == "next_functions":
        return [None if source is None else tuple(source._input_metadata[k].shape) for source, k in value]
    if name == "_input_metadata":
        return [(tuple(told.shape), told.dtype) for told in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    if type(value) is Tensor and value.is_cpu and value.dim() == 0:  # a factor that was written as a number
        return value.dtype, value.item()
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise NoRule(f"a {type(value).__name__} cannot be part of a recording")


def form(program: Program) -> tuple[Any, ...]:
    """Everything of a program but what its nodes have saved: which rules run, on what, and how large that is."""
    spots = program.spots
    steps = [(rule, slot, k, into, last, spot == spots[into]) for rule, _, slot, k, into, spot, last in program.steps]
    views = [spot for _, _, _, _, into, spot, _ in program.steps if spot != spots[into]]
    shapes = [(told.shape, told.dtype) for told in [node._input_metadata[output] for node, output in [*spots, *views]]]
    return steps, shapes, program.loose, program.start, program.ends, torch.are_deterministic_algorithms_enabled()


def standing_in(program: Program, notes: Notes) -> Program:
    """The same rules on nodes that stand in for those of the run."""
    nodes: dict[Node, StandIn] = {}
    steps: list[Step] = []
    for number, (rule, node, slot, k, into, spot, last) in enumerate(program.steps):
        if node not in nodes:
            nodes[node] = StandIn(number, node, notes)
        steps.append((rule, nodes[node], slot, k, into, spot, last))
    return Program(steps, program.spots, program.loose, program.start, program.ends, program.operations)


class Recording:
    """The passes of one plan on one stream; `copies` are written over before each replay, `out` is what comes of it."""

    def __init__(self, program: Program, seeds: Tensor) -> None:
        self.form = form(program)
        self.seeds, self.version, self.stream = seeds, seeds._version, _stream(seeds.device)
        self.lock = threading.Lock()
        self.shown = False
        notes = Notes(seeds.device)
        still = standing_in(program, notes)
        still.pull(seeds)  # makes the copies
        self.tensors, self.copies, self.settings = notes.tensors, notes.copies, notes.settings
        self.bytes = held_by(program, seeds.shape[0]) + sum(copy.nbytes for copy in self.copies)
        self.replay, self.out = captured(lambda: _only(still.pull(seeds)), seeds.device)
        for copy in self.copies:
            copy.zero_()  # one that is not written over before a replay is found out
        with _COUNTING:
            _RECORDINGS.add(self)

    def replayed(self, program: Program, seeds: Tensor) -> Tensor | None:
        """(k, x.size) from the numbers of this run; None where it is not the run that was recorded."""
        if seeds is not self.seeds or seeds._version != self.version or _stream(seeds.device) != self.stream:
            return None
        if form(program) != self.form:
            return None
        steps = program.steps
        for number, name, value in self.settings:
            if setting(steps[number][1], name) != value:
                return None
        fresh = [getattr(steps[number][1], name) for number, name in self.tensors]
        for new, copy in zip(fresh, self.copies, strict=True):
            if new.shape != copy.shape or new.dtype is not copy.dtype or new.device != copy.device:
                return None
        with self.lock, torch.no_grad():
            if fresh:
                torch._foreach_copy_(self.copies, fresh)
            self.replay()
            return self.out.reshape(seeds.shape[0], -1).clone()


_RECORDINGS: weakref.WeakSet[Recording] = weakref.WeakSet()
_COUNTING = threading.Lock()  # a set that another thread adds to cannot be gone through
_ONE_AT_A_TIME = threading.Lock()  # whatever is started on the stream of a recording becomes part of it


class Replay:
    """How often a plan has asked for its batch, and the recording of it once there is one; it goes with the plan."""

    def __init__(self) -> None:
        self.asked = 0
        self.misses = 0
        self.recording: Recording | None = None

    def pull(self, y: Value, xs: Sequence[Value], seeds: Tensor) -> Tensor | None:
        """(k, *y.shape) -> (k, x.size); None where the rules have to be run, or the engine."""
        self.asked += 1
        if self.asked <= OFTEN or self.misses >= MISSES or (program := program_of(y, xs)) is None:
            return None
        found = None
        try:
            if self.recording is not None:
                found = self._shown(self.recording, program, seeds)
            elif may_be_recorded(program, seeds):
                self.recording = Recording(program, seeds)
            else:
                self.misses = MISSES
        except Exception:  # a setting that is no number, a tensor that was changed since, no memory: the rules are next
            self.misses += 1
        if self.misses >= MISSES:
            self.recording = None
        return found

    def _shown(self, recording: Recording, program: Program, seeds: Tensor) -> Tensor | None:
        """What a replay gives; the first time it has to be, bit by bit, what the rules give."""
        found = recording.replayed(program, seeds)
        if found is None:
            self.misses += 1
            return None
        if not recording.shown:
            recording.shown = torch.equal(_only(program.pull(seeds)).reshape(found.shape), found)
        self.misses = 0 if recording.shown else MISSES
        return found if recording.shown else None

    def __str__(self) -> str:
        held = 0 if self.recording is None else self.recording.bytes
        return f"rules, replayed; {held / 2**20:.1f} MiB stay on the device"


def may_be_recorded(program: Program, seeds: Tensor) -> bool:
    """Whether there is much to tell the device, all of it can be recorded, and its memory is not missed."""
    if len(program.steps) < STEPS or any(step[0] in WITH_A_WORKSPACE for step in program.steps):
        return False
    most = torch.cuda.get_device_properties(seeds.device).total_memory // SHARE
    needed = held_by(program, seeds.shape[0])
    with _COUNTING:
        held = sum(one.bytes for one in _RECORDINGS)
    return needed <= most // EACH and needed + held <= most


def held_by(program: Program, rows: int) -> int:
    """Bytes that a recording may take, as if no memory were used twice; what nodes have saved is little next to that."""
    told = [node._input_metadata[output] for node, output in program.spots]
    return rows * sum(math.prod(one.shape) * one.dtype.itemsize for one in told)


def captured(run: Callable[[], Tensor], device: torch.device) -> tuple[Callable[[], None], Tensor]:
    """What starts all operations of a run again, and where its result is then.

    Not by `torch.cuda.graph`, which collects garbage and empties torch's cache of the device's memory first.
    """
    here, side, graph = _stream(device), _side_stream(device), torch.cuda.CUDAGraph()
    with _ONE_AT_A_TIME:
        side.wait_stream(here)
        with torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                out = run()
            finally:
                graph.capture_end()
        here.wait_stream(side)
    return graph.replay, out


def _stream(device: torch.device) -> Any:
    """Where operations are started at the moment; recordings that two streams replay would meet."""
    return torch.cuda.current_stream(device)


@lru_cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _only(pulled: Sequence[Tensor | None]) -> Tensor:
    (found,) = pulled
    if found is None:
        raise NoRule("nothing leads to x")
    return found
