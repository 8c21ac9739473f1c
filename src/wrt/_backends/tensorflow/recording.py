"""One recorded run of TensorFlow code: its tape, its data flow, its names, and every functional update."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from types import CodeType
from typing import Any

import tensorflow as tf

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.engine import TapeEngine, Traced, remember
from wrt._backends.tensorflow.events import Events
from wrt._backends.tensorflow.evidence import TensorFlowEvidence
from wrt._backends.tensorflow.flow import at_address, flow
from wrt._backends.tensorflow.log import Log
from wrt._backends.tensorflow.pairs import local_maps
from wrt._backends.tensorflow.refusals import another_run, not_a_float, read_inside, written_less_often
from wrt._backends.tensorflow.tensors import Keys, TensorKey, is_tensor, taped_as
from wrt._backends.tensorflow.unreached import Unreached, why_unreached
from wrt._backends.tensorflow.writes import Update
from wrt._core.bindings import Binding, Bindings
from wrt._core.evidence import Evidence
from wrt._core.flow import Flow, LocalMaps
from wrt._core.graph import Graph, Write
from wrt._core.index import Elements, region_words
from wrt._core.plan import Address
from wrt._core.protocol import Backend, Patches, Record, RecordedFunction
from wrt._core.thresholds import KEPT_ENTRIES
from wrt._core.value import Part, Side, Value, last_written
from wrt._core.where import Where, place


class TensorFlowRecording:
    """What is known of a run once it is over (and while it goes on)."""

    recorded = True
    again: Any = None

    def __init__(self, backend: Backend, start: int) -> None:
        self.backend = backend
        self.log = Log(start)
        self.tape: Any = None
        self.given: tuple[list[Any], dict[str, Any]] = ([], {})  # the arguments, with keys in the places of tensors
        self.returned: Any = None
        self.noted: list[tuple[str, Any, CodeType, int]] = []  # names and tensors as they were bound, read when asked for
        self.events = Events()
        self.updates: dict[int, Update] = {}
        self.traced: dict[Hashable, Traced | str] = {}  # sweeps that were traced, or why they cannot be
        self._paths: dict[Hashable, list[int]] = {}
        self.taped: dict[int, bool] = {}  # every tensor met but handles of variables: whether gradients flow back to it
        self.leaves: dict[int, weakref.ref[Any]] = {}  # met, and not watched: see Recorder.meet
        self.keys = Keys()
        self._values: dict[int, weakref.ref[Value]] = {}  # while somebody holds them: see TensorKey
        self._names = Bindings()
        self._read = 0  # how many of the notes are in it
        self._called: dict[int, dict[str, None]] = {}  # number -> its names, in the order they were given
        self._assignments: dict[int, int] = {}  # handle -> how often it was assigned to
        self._late: set[int] = set()
        self._reads: dict[int, dict[int, list[Any]]] = {}  # handle -> assignments before -> what was read

    @property
    def changes(self) -> str:
        return "it assigns to variables" if self._assignments else ""

    def watch(self, number: int, tensor: Any) -> None:
        if not compat.tapes_are_stopped():  # then it would not be heard
            del self.leaves[number]
            if number in self.taped:
                self.taped[number] = True
            with compat.reopened(self.tape):
                compat.watch(self.tape, tensor)

    def watch_everything(self) -> None:
        """Before gradients are to be differentiated again: what they depend on must be on the tape."""
        for number, reference in list(self.leaves.items()):
            tensor = reference()
            if tensor is not None:
                self.watch(number, tensor)

    # ---------------------------------------------------------------- Values

    def lift(self, obj: Any) -> Value:
        """The one Value of a tensor or variable in this run, as long as somebody holds it."""
        return self._value_at(self.keys.of(obj))

    def _value_at(self, key: TensorKey) -> Value:
        reference = self._values.get(key.number)
        found = None if reference is None else reference()
        if found is None:
            name = next(iter(self._called.get(key.number, ())), "")  # of those that were read so far
            found = Value(self, key, key.shape, key.dtype, name)
            self._values[key.number] = weakref.ref(found)
        return found

    def _values_in(self, tree: Any) -> Any:
        """The user's own containers with a Value in the place of every tensor."""
        if type(tree) is TensorKey:
            return self._value_at(tree)
        if type(tree) is list and all(type(one) is TensorKey for one in tree):
            return [self._value_at(one) for one in tree]
        return tf.nest.map_structure(lambda leaf: self._value_at(leaf) if type(leaf) is TensorKey else leaf, tree)

    @property
    def inputs(self) -> list[Any]:
        found: list[Any] = self._values_in(self.given[0])
        return found

    @property
    def keywords(self) -> dict[str, Any]:
        found: dict[str, Any] = self._values_in(self.given[1])
        return found

    @property
    def output(self) -> Any:
        return self._values_in(self.returned)

    def find(self, obj: Any) -> Value | None:
        if not is_tensor(obj) or not self.met(compat.number(taped_as(obj))):
            return None
        return self.lift(obj)

    def met(self, number: int) -> bool:
        """Whether the run made or used a tensor, or the handle of a variable."""
        return number in self.taped or number in self.log.tensors

    def made(self, value: Value) -> bool:
        """Whether an operation of this run made it."""
        return self.number(value) in self.log.producer

    @property
    def names(self) -> Bindings:
        """What every name meant."""
        self._read_names()
        return self._names

    def _read_names(self) -> None:
        """Recording only notes; the first question reads."""
        while self._read < len(self.noted):
            name, tensor, code, offset = self.noted[self._read]
            self._read += 1
            key = self.keys.of(tensor)
            self._names.add(Binding(name, key, code, offset, self._read))
            self.call(name, key.number)

    def call(self, name: str, number: int) -> None:
        """A tensor has a name, perhaps from before the recording."""
        self._called.setdefault(number, {})[name] = None

    def bound(self, binding: Binding) -> Value:
        key = binding.object
        return Value(self, key, key.shape, key.dtype, binding.name)

    def value(self, value: Value) -> Any:
        if value.key.variable is None:
            return value.key.tensor
        with compat.off_tapes():
            return value.key.variable.read_value()

    def where(self, value: Value) -> Where | None:
        return self.log.where(self.number(value))

    def map_tree(self, tree: Any, wrap: Callable[[Value], Any]) -> Any:
        if type(tree) is Value:  # looking into containers takes longer
            return wrap(tree)
        return tf.nest.map_structure(lambda leaf: wrap(leaf) if type(leaf) is Value else leaf, tree)

    def evidence(self) -> TensorFlowEvidence:
        """The run under examination, for `why` and `check`."""
        return TensorFlowEvidence(self)

    def open_loops(self, y: Value, x: Value) -> AbstractContextManager[tuple[Evidence, int, int] | None]:
        return nullcontext(None)  # what ran was recorded step by step

    def numbered(self, value: Value) -> int | None:
        """Which tensor of the graph a Value is."""
        return self.number(value)

    def number(self, value: Value) -> int:
        """Its number in the log: of a variable, the one since its last write."""
        return self.log.number(value.key.number)

    def join(self, other: Record) -> Record | None:
        return self if other.backend is self.backend else None  # a tensor of two runs is asked about in y's

    def own(self, value: Value) -> Value:
        """The same tensor in this run; refused where this run never met it."""
        if value.record is self:
            return value
        if not self.met(value.key.number):
            raise another_run()
        return self.lift(value.key.variable if value.key.variable is not None else value.key.tensor)

    # ---------------------------------------------------------------- variables

    def note_read(self, handle: Any, read: Any, *, in_time: bool = True) -> None:
        """A variable was read; `read` is None where it was read inside of something else.

        `in_time` is False where its handle was not watched yet: then the tape knows what was read, and no more.
        """
        number = compat.number(handle)
        if not in_time:
            self._late.add(number)
        self._reads.setdefault(number, {}).setdefault(self._assignments.get(number, 0), []).append(read)

    def note_assignment(self, handle: Any) -> int:
        """The number of a variable after an assignment to it."""
        number = compat.number(handle)
        self._assignments[number] = self._assignments.get(number, 0) + 1
        return self.log.rewrite(number)

    def sources(self, value: Value) -> list[Any]:
        """The tensors of the tape whose gradients together are the gradient of a Value.

        A variable that was assigned to between two reads means its value since then: the reads of that version.
        """
        versions = self._reads.get(value.key.number, {})
        if value.key.variable is None or (len(versions) < 2 and value.key.number not in self._late):
            return [value.key.tensor]
        last = list(versions.values())[-1]
        if any(read is None for read in last):
            raise read_inside()
        return last

    # ---------------------------------------------------------------- writes

    def chain(self, value: Value) -> list[Update]:
        """The updates that led to a tensor under one name, the first one first."""
        found: list[Update] = []
        update = self.updates.get(value.key.number)
        while update is not None:
            found.append(update)
            earlier = self.updates.get(compat.number(update.before))
            update = earlier if earlier is not None and self._one_name(update.before, update.after) else None
        if found and not self._one_name(found[-1].before, found[-1].after):
            return []  # one update of a tensor with another name: an ordinary operation
        return found[::-1]

    def _one_name(self, before: Any, after: Any) -> bool:
        here, there = self._names_of(compat.number(before)), self._names_of(compat.number(after))
        return not here or not there or not here.isdisjoint(there)

    def _names_of(self, number: int) -> set[str]:
        return {name for name in self.called_by(number) if not name.endswith("()")}

    def called_by(self, number: int) -> tuple[str, ...]:
        """The names of a tensor, in the order they were given."""
        self._read_names()
        return tuple(self._called.get(number, ()))

    def versions(self, value: Value) -> list[Value]:
        """The buffer before the first write, then after each."""
        chain = self.chain(value)
        return [self.lift(chain[0].before), *(self.lift(update.after) for update in chain)] if chain else [value]

    def line_of(self, made: Any) -> Where | None:
        found = self.find(made)
        return None if found is None else self.where(found)

    def writes(self, value: Value) -> list[Write]:
        value = self.own(value)
        chain = self.chain(value)
        return [self._write(update, k, value.key.number) for k, update in enumerate(chain, 1)]

    @staticmethod
    def _write(update: Update, k: int, buffer: int) -> Write:
        where = None if update.spot is None else place(*update.spot)
        with compat.off_tapes():
            return Write(buffer, k, len(update.positions), region_words(update.positions, tuple(update.before.shape)), where)

    def at(self, value: Value, k: int) -> tuple[Value, Elements]:
        versions = self.versions(self.own(value))
        if not 0 <= k < len(versions):
            raise written_less_often(k, len(versions) - 1)
        return versions[k], Elements.all(versions[k].shape)

    # ---------------------------------------------------------------- questions

    def side(self, value: Value, elements: Elements) -> Side:
        value = self.own(value)
        chain = self.chain(value)
        if not chain:
            return Side(elements.shape, (Part(value, elements),), notes=self._assigned(value))
        with compat.off_tapes():
            regions = [update.positions for update in chain]
        return last_written(elements, regions, self.versions(value))

    def _assigned(self, value: Value) -> tuple[str, ...]:
        if len(self._reads.get(value.key.number, ())) < 2:
            return ()
        return ("the variable was assigned to between two reads: asked about its last value that was read",)

    def refuse_filled(self, value: Value) -> None:
        """Every update makes a tensor of its own: the pieces are always told apart."""

    def same(self, y: Value, x: Value) -> bool:
        return bool(y.key.number == x.key.number)

    def has_history(self, value: Value) -> bool:
        return compat.kind(value.key.tensor) in compat.FLOATS or value.key.variable is not None

    def ready(self, y: Value, x: Side) -> None:
        for value, letter in ((y, "y"), *((value, "x") for value in x.values)):
            if not (value.dtype.is_floating or value.dtype.is_complex):
                raise not_a_float(self._spoken(value, letter), value.dtype.name)

    def engine(self, y: Value, xs: Sequence[Value]) -> TapeEngine:
        found = TapeEngine(self, y, xs)
        if self.leaves:
            for source in found.sources:
                number = compat.number(source)
                if number in self.leaves:
                    self.watch(number, source)  # what is asked for has to be watched, though only now
        return found

    def outside(self) -> AbstractContextManager[None]:
        return nullcontext()  # a sweep steps off the tapes of the user by itself

    # ---------------------------------------------------------------- what plans are made from

    def path(self, y: Value, xs: Sequence[Value]) -> list[int]:
        """The operations on the way from any x to y, in the order they ran."""
        key = (self.number(y), *map(self.number, xs), self.log.count)
        found = self._paths.get(key)
        if found is None:
            found = self.log.between(key[1:-1], key[0])
            remember(self._paths, key, found, KEPT_ENTRIES)
        return found

    def work_between(self, y: Value, xs: Sequence[Value]) -> tuple[int, int]:
        """How many operations are on the way, and how many numbers they made; of a gradient, three for each of the run."""
        known = self.number(y) in self.log.tensors
        path, times = (self.path(y, xs), 1) if known else (self._made_by(y), 3)
        made = sum(self.log.size(number) for index in path for number in self.log.operations[index].outputs)
        return times * len(path), times * made

    def _made_by(self, y: Value) -> list[int]:
        """The operations that led to y, in the order they ran; to a gradient, which is not in the log, any may have led."""
        log, number = self.log, self.number(y)
        return sorted(log.ancestors([number])[1]) if number in log.tensors else list(range(log.count))

    def signature(self, y: Value, xs: Sequence[Value]) -> Hashable:
        """Every operation that led to y, with its settings, and what it was given: another operation, or whole numbers."""
        log = self.log
        numbers: dict[int, int] = {}  # in the order in which they come, which the next run repeats
        found: list[Hashable] = []
        for index in self._made_by(y):
            operation = log.operations[index]
            outside = [self._constant(k) for k in operation.inputs if k not in numbers]
            for k in (*operation.inputs, *operation.outputs):
                numbers.setdefault(k, len(numbers))
            made = [log.tensors[k] for k in operation.outputs]
            what = ("a compiled function", "") if compat.is_call(operation.op) else (operation.op, repr(operation.attributes))
            found.append((*what, tuple([numbers[k] for k in operation.inputs]), *outside, *made))
        ends = (numbers.get(self.number(value)) for value in (y, *xs))
        return (*found, *ends, y.shape, y.dtype.name)

    def _constant(self, number: int) -> Hashable:
        """A tensor from outside: its shape and dtype, and whole numbers too, which are indices, axes and shapes."""
        shape, kind = self.log.tensors[number]
        tensor = self.log.at_hand(number) if compat.dtype_of(kind).is_integer else None
        if tensor is None:
            return shape, kind
        with compat.off_tapes():
            return shape, kind, hashlib.blake2b(tensor.numpy().tobytes(), digest_size=16).digest()

    def flow(self, y: Value, xs: Sequence[Value]) -> Flow | None:
        return flow(self, y, xs) if self._is_plain(y, *xs) else None

    def at_address(self, y: Value, xs: Sequence[Value], address: Address) -> Value | None:
        return at_address(self, y, xs, address) if self._is_plain(y, *xs) else None

    def last_weights(self, y: Value, xs: Sequence[Value]) -> tuple[Value, Any] | None:
        return None

    def _is_plain(self, *values: Value) -> bool:
        """Whether gradients take no other ways than the operations: no variables, no gradients of the user's own."""
        return not self.events.customs and all(value.key.variable is None for value in values)

    def lift_number(self, number: int, dtype: Any) -> Value | None:
        """The Value of a tensor by its number, where it is at hand and has this dtype."""
        tensor = self.log.at_hand(number)
        return self.lift(tensor) if tensor is not None and tensor.dtype == dtype else None

    def local_maps(self, y: Value, x: Value, *, certain: bool = False) -> LocalMaps | None:
        return local_maps(self.log, self.number(y), self.number(x), certain=certain) if self._is_plain(y, x) else None

    def widest(self, y: Value) -> int:
        operations = self.log.operations
        return max((self.log.size(number) for index in self._made_by(y) for number in operations[index].outputs), default=y.size)

    def patches(self, y: Value, rows: Elements, x: Value, columns: Elements) -> Patches | None:
        return None

    def recorded_function(self, y: Value, x: Value) -> RecordedFunction | None:
        return None  # the gradients of a tape belong to its own numbers

    @property
    def answers(self) -> dict[Hashable, Any] | None:
        return None  # an answer holds the run, and a run that holds answers would only go when garbage is collected

    # ---------------------------------------------------------------- answers that are no numbers

    def unreached(self, y: Value, x: Value) -> bool | Exception:
        given = {key.number for key in _leaves(self.given)}
        named = self._spoken(y, "y"), self._spoken(x, "x")
        return why_unreached(Unreached(self.log, self.number(y), self.number(x), named), given)

    def _spoken(self, value: Value, letter: str) -> str:
        """As the user calls it, otherwise by its letter in the notation."""
        return value.name or next(iter(self.called_by(value.key.number)), letter)

    def notes(self, y: Value, x: Side) -> list[str]:
        return list(x.notes)

    # ---------------------------------------------------------------- plain data

    @cached_property
    def graph(self) -> Graph:
        """The run as plain data, made when it is first asked for."""
        writes = {update.index: update for update in self.updates.values()}

        def write(index: int) -> Write | None:
            update = writes.get(index)
            if update is None:
                return None
            return self._write(update, len(self.chain(self.lift(update.after))), compat.number(update.after))

        ends = [[key.number for key in _leaves(tree)] for tree in (self.given, self.returned)]
        return self.log.graph(ends[0], ends[1], self.called_by, write)


def _leaves(tree: Any) -> list[TensorKey]:
    return [leaf for leaf in tf.nest.flatten(tree) if isinstance(leaf, TensorKey)]
