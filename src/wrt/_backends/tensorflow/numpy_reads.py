"""A gradient of the user's own may compute with NumPy. It cannot be differentiated again: a tape would find zeros there.

`tensor.numpy()` passes through Python and can be noticed. `np.cos(tensor)` reads the tensor's memory by the buffer protocol,
which nobody is told of. So the code that runs is read too: is a function of NumPy called with something that comes from an
argument, or from a tensor?
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wrt._backends.tensorflow import compat
from wrt._backends.tensorflow.refusals import read_in_gradient
from wrt._backends.tensorflow.tensors import is_tensor
from wrt._core.where import Spot, place, spot, user_files

if TYPE_CHECKING:
    from wrt._backends.tensorflow.recording import TensorFlowRecording

LOOKED_AT = frozenset({"__repr__", "__str__", "__format__", "__bool__"})
"""Ways in which numbers are only shown, or decide which way to go."""

READERS = (memoryview, bytes, bytearray)
ARRAY_PACKAGES = frozenset({"numpy", "scipy"})
DESCRIBES = frozenset({"shape", "dtype", "ndim", "rank", "device", "name", "get_shape"})
"""What can be asked of a tensor without reading its numbers."""

NUMBERS = (type(None), bool, int, float, complex, str, np.ndarray, np.generic)
"""What arguments may be without depending on a tensor: who read one to make them has been seen already."""

SCOPES = ("FAST", "NAME", "GLOBAL", "DEREF", "CLASSDEREF", "CLOSURE")
Place = tuple[int, int]  # line, column


@contextmanager
def refuse_reads(recording: TensorFlowRecording) -> Iterator[None]:
    """Refuse a pull, meant to be differentiated again, in which a custom gradient reads numbers out of TensorFlow."""
    if not recording.events.customs:
        yield
        return
    read: list[Spot] = []

    def note(tensor: Any) -> None:
        if compat.kind(tensor) in compat.FLOATS and not _is_looked_at(sys._getframe(1)):
            where = spot(sys._getframe(1))
            read.extend([where] if where is not None else [])

    def note_function(frame: FrameType) -> None:
        where = _read_by_numpy(frame)
        read.extend([where] if where is not None else [])

    with compat.notice_reads(note), _notice_functions(note_function):
        yield
    if read:
        raise read_in_gradient(place(*read[0]))


def _is_looked_at(frame: FrameType | None) -> bool:
    while frame is not None and not user_files[frame.f_code.co_filename]:
        if frame.f_code.co_name in LOOKED_AT:
            return True
        frame = frame.f_back
    return False


@contextmanager
def _notice_functions(notice: Callable[[FrameType], None]) -> Iterator[None]:
    """Call `notice` for every function of the user's that starts in this thread, once each."""
    before: Any = sys.getprofile()
    seen: set[CodeType] = set()
    if before is not None and not callable(before):  # a profiler in C cannot be asked to look on with us
        yield
        return

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and user_files[frame.f_code.co_filename] and frame.f_code not in seen:
            seen.add(frame.f_code)
            notice(frame)
        if before is not None:
            before(frame, event, arg)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def _read_by_numpy(frame: FrameType) -> Spot | None:
    """Where a function that starts now will give NumPy what depends on its arguments or on a tensor."""
    words = _Words(frame)
    for call in words.calls():
        inside = (k for k, i in enumerate(words.instructions) if call.arguments <= _begin(i) < call.end)
        if _is_numpys(call.function) and any(map(words.is_read, inside)):
            return frame.f_code, call.offset
    return None


class _Call(NamedTuple):
    """A call: of what, where its arguments begin and end in the source, and the offset of the instruction."""

    function: Any
    arguments: Place
    end: Place
    offset: int


class _Words:
    """The instructions of one function with what its names mean, and which of its variables depend on what it is given."""

    def __init__(self, frame: FrameType) -> None:
        code = frame.f_code
        self.instructions = [i for i in dis.get_instructions(code) if i.positions and i.positions.end_col_offset is not None]
        free = {name: frame.f_locals[name] for name in code.co_freevars if name in frame.f_locals}
        self.known = {**frame.f_builtins, **frame.f_globals, **free}
        self.depends = {name for name in code.co_varnames if not isinstance(frame.f_locals.get(name), NUMBERS)}
        for name in (*code.co_varnames, *code.co_cellvars):
            self.known.pop(name, None)
        for _ in range(2):  # twice, for loops
            self._spread()

    def _spread(self) -> None:
        """A variable depends on what is mentioned in the line that binds it."""
        lines = {_begin(i)[0] for k, i in enumerate(self.instructions) if self.is_read(k)}
        stores = (i for i in self.instructions if i.opname.startswith("STORE_") and isinstance(i.argval, str))
        self.depends.update(i.argval for i in stores if _begin(i)[0] in lines)

    def is_read(self, k: int) -> bool:
        """Whether an instruction loads something that depends, and not to ask for its shape."""
        after = self.instructions[k + 1 : k + 2]
        *names, last = _loaded(self.instructions[k]) or ("",)
        if not (after and _is_attribute(after[0]) and after[0].argval in DESCRIBES):
            names.append(last)
        return any(name in self.depends or is_tensor(self.known.get(name)) for name in names)

    def calls(self) -> Iterator[_Call]:
        """Every call whose function is written as a name, or as an attribute of modules."""
        chains: dict[Place, tuple[Any, Place]] = {}
        module = value = None  # what was imported, and what was loaded just now
        for i in self.instructions:
            begin, end = _begin(i), _end(i)
            if i.opname == "IMPORT_NAME":
                value = module = sys.modules.get(i.argval)
            elif i.opname == "IMPORT_FROM":
                value = _of_module(module, i.argval)
            elif names := _loaded(i):
                value = self.known.get(names[-1])
                chains[begin] = value, end
            elif _is_attribute(i) and begin in chains:
                value = _of_module(chains[begin][0], i.argval)
                chains[begin] = value, end
            elif i.opname.startswith("STORE_") and value is not None:  # `import numpy as np`, `cos = np.cos`
                self.known[i.argval], value = value, None
            elif i.opname.startswith("CALL") and begin in chains:
                function, after = chains.pop(begin)
                value = None
                yield _Call(function, after, end, i.offset)
            elif i.opname not in ("PRECALL", "KW_NAMES", "PUSH_NULL"):
                value = None


def _of_module(module: Any, name: str) -> Any:
    return vars(module).get(name) if isinstance(module, ModuleType) else None


def _is_numpys(function: Any) -> bool:
    module = getattr(function, "__module__", None) or type(function).__module__
    package = module.partition(".")[0] if isinstance(module, str) else ""
    return callable(function) and (package in ARRAY_PACKAGES or isinstance(function, np.ufunc) or function in READERS)


def _loaded(i: dis.Instruction) -> tuple[str, ...]:
    """The names that an instruction loads: from 3.13 on, sometimes two."""
    if not i.opname.startswith("LOAD_") or i.opname.split("_")[1] not in SCOPES:
        return ()
    return i.argval if isinstance(i.argval, tuple) else (i.argval,)


def _is_attribute(i: dis.Instruction) -> bool:
    return i.opname in ("LOAD_ATTR", "LOAD_METHOD")


def _begin(i: dis.Instruction) -> Place:
    return (0, 0) if i.positions is None else (i.positions.lineno or 0, i.positions.col_offset or 0)


def _end(i: dis.Instruction) -> Place:
    return (0, 0) if i.positions is None else (i.positions.end_lineno or 0, i.positions.end_col_offset or 0)
