"""Places in the user's own code: cheap to note while a program runs, spelled out only when somebody asks.

While recording, a place is a *spot*: a code object and the offset of an instruction in it (under 1 µs to note).
`place(*spot)` makes a `Where` of it, with file, line and columns from the interpreter's own position table.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType
from typing import Generic, TypeAlias, TypeVar

Spot: TypeAlias = tuple[CodeType, int]

LIBRARIES = frozenset((
    # the frameworks, and the layers and optimizers written for them
    "torch", "torchgen", "functorch", "triton", "tensorflow", "tensorboard", "keras", "tf_keras", "jax", "jaxlib",
    "flax", "haiku", "equinox", "optax", "chex", "jaxtyping", "lightning", "pytorch_lightning", "lightning_fabric",
    # arrays and small tools they call back and forth
    "numpy", "scipy", "ml_dtypes", "opt_einsum", "einops", "optree", "absl", "wrapt", "decorator", "typing_extensions",
    # what runs the user's code: its frames are below every script, test and notebook cell
    "IPython", "ipykernel", "traitlets", "tornado", "pytest", "_pytest", "pluggy", "hypothesis", "xdist", "execnet",
    "coverage", "debugpy", "pydevd", "typer", "click",
))
"""Packages whose frames are nobody's "own code". Every other installed package counts: the lines and names inside a
model that came with `pip install` are worth knowing."""

_MACHINE_MADE = ("<frozen ", "<__array_function__", "<attrs generated", "<decorator-gen")
_INSTALLED = re.compile(r".*[\\/](?:site|dist)-packages[\\/]([^\\/.]+)")
_WRT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


T = TypeVar("T")


class PerCode(Generic[T]):
    """Calls `make(code)` the first time a code object is seen, and remembers the answer as long as the code lives.

    A plain dict would not do: code objects compare by content without their file name, so two functions that look alike
    in two files are "equal"; and their hash reads the whole bytecode (4 µs on Python 3.12).

    >>> lengths = PerCode(lambda code: len(code.co_names))
    >>> lengths((lambda: print).__code__)
    1
    """

    __slots__ = ("_made", "make")

    def __init__(self, make: Callable[[CodeType], T]) -> None:
        self.make = make
        self._made: dict[int, tuple[weakref.ref[CodeType], T]] = {}

    def __call__(self, code: CodeType) -> T:
        found = self._made.get(id(code))
        if found is not None:
            return found[1]
        made, number, table = self.make(code), id(code), self._made
        # The number may be given to another code object once this one is gone.
        table[number] = (weakref.ref(code, lambda _: table.pop(number, None)), made)
        return made


@dataclass(frozen=True, slots=True)
class Where:
    """A place in source code; columns count from 0 as Python's own do, and are None where Python kept none.

    >>> str(Where("/home/me/train.py", 12))
    'train.py:12'
    """

    file: str
    line: int
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None
    function: str = ""

    @property
    def text(self) -> str:
        """The source line, without its indentation; empty where the source is not at hand."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{_short(self.file)}:{self.line}"


def portable(file: str) -> str:
    """A file as others may know it: below the current folder by its path from there, elsewhere by its name, in brackets."""
    inside = file if file.startswith("<") else os.path.relpath(os.path.realpath(file), os.path.realpath(os.curdir))
    return f"<{_short(file)}>" if inside.startswith(os.pardir) else inside


def local(file: str) -> str:
    """The other way: a regular file below the current folder, links followed; any other stays a name that is never opened."""
    found = os.path.realpath(file)
    inside = found.startswith(os.path.join(os.path.realpath(os.curdir), ""))
    return found if inside and os.path.isfile(found) else file if file.startswith("<") else f"<{_short(file)}>"


def is_user_code(filename: str) -> bool:
    """Whether a file is the user's: not the standard library, not a framework, not wrt itself.

    >>> is_user_code(os.__file__), is_user_code("<stdin>")
    (False, True)
    """
    return user_files[filename]


def machine_made(code: CodeType) -> bool:
    """Whether named tuples or dataclasses wrote this function: under `python -c` its file has the name of the user's own.

    >>> from collections import namedtuple
    >>> machine_made(namedtuple("Pair", "a b").__new__.__code__), machine_made((lambda: None).__code__)
    (True, False)
    """
    return code.co_filename == "<string>" and (code.co_varnames[:1] == ("_cls",) or code.co_qualname.startswith("__create_fn__"))


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """The nearest frame of the user's own code, from `frame` (by default the caller's) outwards."""
    if frame is None:
        frame = sys._getframe(1)
    known = user_files
    while frame is not None and not known[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame


def others_run_user_code() -> bool:
    """Whether another thread is at work on code of the user's, or waits there: what it does with tensors is not seen."""
    here = threading.get_ident()
    return threading.active_count() > 1 and any(
        user_frame(frame) is not None for thread, frame in sys._current_frames().items() if thread != here
    )


def spot(frame: FrameType | None = None) -> Spot | None:
    """Where the user's own code stands now, in the form that costs nothing to keep."""
    if frame is None:
        frame = sys._getframe(1)
    known = user_files
    while frame is not None:
        code = frame.f_code
        if known[code.co_filename]:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Every frame of the user's own code, from `frame` outwards."""
    while frame is not None:
        if user_files[frame.f_code.co_filename]:
            yield frame
        frame = frame.f_back


def place(code: CodeType, lasti: int) -> Where:
    """The place of one instruction; the same instruction always gives the same object."""
    known = _places(code)
    found = known.get(lasti)
    if found is None:
        found = known[lasti] = _read_place(code, lasti)
    return found


def function_name(code: CodeType) -> str:
    """The function as a user would say it: `Net.forward`, `train.step`; a comprehension belongs to what contains it.

    >>> function_name((lambda: None).__code__)
    '<lambda>'
    """
    name = code.co_qualname.replace(".<locals>", "")
    while name.endswith(("comp>", "<genexpr>")) and "." in name:
        name = name.rpartition(".")[0]
    return name


_places: PerCode[dict[int, Where]] = PerCode(lambda code: {})


def _read_place(code: CodeType, lasti: int) -> Where:
    nothing = (None, None, None, None)  # a frame that has not started stands before its first instruction
    line, end_line, column, end_column = next(islice(code.co_positions(), max(lasti, 0) // 2, None), nothing)
    return Where(code.co_filename, line or code.co_firstlineno, end_line, column, end_column, function_name(code))


class _UserFiles(dict[str, bool]):
    """file name -> is it the user's; a dict, because it is asked for every frame of every recorded operation."""

    def __missing__(self, filename: str) -> bool:
        verdict = self[filename] = _judge(filename)
        return verdict


user_files = _UserFiles()


def _judge(filename: str) -> bool:
    if filename == "<string>":  # `python -c`; otherwise what dataclasses and named tuples are made of
        return sys.argv[:1] == ["-c"]
    if filename.startswith("<"):
        return not filename.startswith(_MACHINE_MADE)
    path = os.path.abspath(filename)
    if path.startswith(_WRT):
        return False
    installed = _INSTALLED.match(path)  # asked before the standard library, whose folder may contain site-packages
    if installed:
        return installed[1] not in LIBRARIES
    return not path.startswith(_STDLIB) and not _in_source_checkout(path)


def _in_source_checkout(path: str) -> bool:
    """Whether a library that was imported from elsewhere (an editable install) holds this file."""
    for name in LIBRARIES & sys.modules.keys():
        file = getattr(sys.modules[name], "__file__", None)
        if file and os.path.basename(file) == "__init__.py" and path.startswith(os.path.dirname(file) + os.sep):
            return True
    return False


def _short(file: str) -> str:
    """The file name alone; a notebook cell by its number where the name has one."""
    cell = re.match(r"<ipython-input-(\d+)", file)
    if cell:
        return f"In[{cell[1]}]"
    return "cell" if f"{os.sep}ipykernel_" in file else os.path.basename(file)
