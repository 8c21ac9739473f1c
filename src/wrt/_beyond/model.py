"""`wrt.Model`: a model as the recipe from which any process builds the same one, on its own device. Never a live graph."""

from __future__ import annotations

import pickle
import random
import sys
import threading
import weakref
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from wrt._beyond.pack import Packed, fingerprint, frameworks, leaves, pack, travel, unpack
from wrt._beyond.thresholds import KEPT_RUNS
from wrt._notation.trace import Trace, trace
from wrt.errors import CannotTravel, NotATensor

LOCK = threading.RLock()
"""One block at a time in one process: the planner, the tapes and the recorders are not meant for several threads."""

COUNTS: Counter[str] = Counter()
"""What this process did: runs `recorded`, `blocks` and `batches` computed."""

_RUNS: OrderedDict[str, Trace] = OrderedDict()
_MODELS: weakref.WeakKeyDictionary[Any, Model] = weakref.WeakKeyDictionary()


class Model:
    """How to build a model, its state and its inputs: all that another process needs to record the same run.

    `build(state)` returns the function or module that is called with `inputs`; without a state it is called as
    `build()`. It may be an import path, `"package.module:function"`. Tensors in `state` and `inputs` travel as bytes.

    >>> import torch
    >>> def build(state):
    ...     return lambda x: torch.tanh(state["weight"] @ x)
    >>> model = Model(build, {"weight": torch.eye(3)}, torch.ones(3))
    >>> t = model.trace()
    >>> from wrt import d
    >>> (d(t.output) / d(t.inputs[0])).shape
    (3, 3)
    """

    def __init__(
        self, build: Callable[..., Any] | str, state: Any = None, inputs: Any = (), *, device: str = "auto"
    ) -> None:
        self.build = _check(build)
        self.state = pack(state)
        self.inputs = pack(inputs if isinstance(inputs, tuple) else (inputs,))
        self.device = device
        here = {one.framework for one in leaves((self.state, self.inputs)) if isinstance(one, Packed)}
        self.settings = {name: travel(name).settings() for name in sorted(here or frameworks())}
        made_by = (build, _import(build)) if isinstance(build, str) else build
        self.token = fingerprint(made_by, self.state, self.inputs, device, self.settings)
        self.sent: dict[str, Any] = {}  # the clusters that hold it, by their client

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that travel: to each worker once."""
        found = (one for one in leaves((self.state, self.inputs)) if isinstance(one, Packed))
        return sum(one.numbers.nbytes for one in found)

    def trace(self) -> Trace:
        """Run it once in this process, recorded; questions about this run can be asked anywhere."""
        with LOCK:
            known = _RUNS.get(self.token)
            if known is None:
                with self.same_settings() as device, same_chance(self.token, list(self.settings)):
                    known = trace(self.construct(device), *unpack(self.inputs, device))
                COUNTS["recorded"] += 1
                _RUNS[self.token] = known
                while len(_RUNS) > KEPT_RUNS:
                    _RUNS.popitem(last=False)
            _RUNS.move_to_end(self.token)
            _MODELS[known._one] = self
            return known

    def without_state(self) -> Model:
        """Its name, and how processes compute with it: enough for one that holds its run, NotHere for another."""
        return _again(pickle.dumps(_elsewhere), None, (), self.device, self.settings, self.token)

    def device_here(self) -> str | None:
        """The accelerator that this process takes for it; None leaves it to the framework."""
        return device_here(self.device, list(self.settings))

    @contextmanager
    def same_settings(self) -> Iterator[str | None]:
        """Inside, this process makes tensors as the sender's did; gives the device they are on."""
        device = self.device_here()
        with ExitStack() as stack:
            for name, chosen in self.settings.items():
                stack.enter_context(travel(name).on(device, chosen))
            yield device

    def construct(self, device: str | None) -> Callable[..., Any]:
        """The function itself, made in this process."""
        build = _import(self.build) if isinstance(self.build, str) else self.build
        made = build() if self.state is None else build(unpack(self.state, device))
        if not callable(made):
            raise NotATensor(
                f"the builder returned a {type(made).__name__}",
                "it has to return the function or module that is called with the inputs",
                "def build(state): ...; return model",
            )
        result: Callable[..., Any] = made
        return result

    @staticmethod
    def counts() -> dict[str, int]:
        """What this process did for models so far: runs `recorded`, `blocks` and `batches` computed."""
        return {name: COUNTS[name] for name in ("recorded", "blocks", "batches")}

    def __reduce__(self) -> Any:
        cloudpickle = import_module("cloudpickle")  # comes with dask; a function of a script travels by value
        return _again, (cloudpickle.dumps(self.build), self.state, self.inputs, self.device, self.settings, self.token)

    def __repr__(self) -> str:
        name = self.build if isinstance(self.build, str) else self.build.__qualname__
        count = sum(isinstance(one, Packed) for one in leaves(self.state))
        state = "no state" if self.state is None else f"a state of {count} tensors"
        return f"Model  built by {name}, {state}, {len(self.inputs)} inputs"


class NotHere(LookupError):
    """This process was given a model without its state, and holds no run of it."""


def _elsewhere() -> Any:
    raise NotHere


def _again(build: bytes, state: Any, inputs: Any, device: str, settings: Any, token: str) -> Model:
    model = Model.__new__(Model)
    model.build = import_module("cloudpickle").loads(build)
    model.state, model.inputs, model.device, model.settings, model.token = state, inputs, device, settings, token
    model.sent = {}
    return model


@contextmanager
def same_chance(token: str, names: list[str]) -> Iterator[None]:
    """Inside, random numbers are the same in every process; afterwards generators go on where they were."""
    seed = int(token[:8], 16)
    before, numpys = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(travel(name).seeded(seed))
            yield
    finally:
        random.setstate(before)
        np.random.set_state(numpys)


def model_of(recording: Any) -> Model | None:
    """The model whose run this is; None for a run of live tensors."""
    try:
        return _MODELS.get(recording)
    except TypeError:
        return None


def forget() -> None:
    """Let the recorded runs of this process go."""
    with LOCK:
        _RUNS.clear()


def _check(build: Any) -> Any:
    if isinstance(build, str):
        if ":" not in build:
            raise CannotTravel(
                f"wrt.Model({build!r}, ...) is not an import path",
                "a module and a function in it, with a colon between them",
                'write wrt.Model("package.module:build", state, x)',
            )
        _import(build)
    elif not callable(build) or not hasattr(build, "__qualname__"):
        raise CannotTravel(
            f"wrt.Model of a {type(build).__name__}",
            "a model travels as the function that builds it, never as an object that is alive here",
            "write wrt.Model(build, model.state_dict(), x) with def build(state): ...; return model",
        )
    return build


def _import(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise CannotTravel(
            f"the builder {path!r} is not found",
            str(error),
            "write a module that every worker can import, then a colon and the function in it",
        ) from None
    return found


def device_here(wanted: str, frameworks: list[str]) -> str | None:
    """`wanted`, or for "auto" this worker's share of the accelerators; None leaves it to the framework."""
    if wanted != "auto":
        return wanted
    for name in frameworks:
        found: list[str] = travel(name).devices()
        if found:
            return found[worker_number() % len(found)]
    return None


def current_worker() -> Any:
    """The dask worker that this process is; None where it is none."""
    try:
        return sys.modules["distributed"].get_worker() if "distributed" in sys.modules else None
    except ValueError:
        return None


def worker_number() -> int:
    """Which worker of its machine this process is: by its name where that is a number, otherwise by its address."""
    worker = current_worker()
    if worker is None:
        return 0
    digits = "".join(c for c in str(worker.name) if c.isdigit()) if "://" not in str(worker.name) else ""
    return int(digits) if digits else zlib.crc32(str(worker.address).encode())
