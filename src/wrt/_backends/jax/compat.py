"""Every use of JAX's private or drifting API.

Written for JAX 0.10; where other versions from 0.5 to 0.11 differ, the version is named. `jax._src` is imported here alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from inspect import signature
from types import CodeType, FrameType
from typing import Any

import jax
import numpy as np
from jax._src import config, core, linear_util, source_info_util
from jax._src.interpreters import ad, batching
from jax._src.interpreters import partial_eval as pe

Trace = core.Trace
Tracer = core.Tracer
Literal = core.Literal
Jaxpr = core.Jaxpr
ClosedJaxpr = core.ClosedJaxpr
WrappedFun = linear_util.WrappedFun
BOOKKEEPING = (Trace, linear_util.Store, linear_util.EqualStore, core.DebugInfo)
"""What wrappers of functions hold on to and what changes nothing of what they compute."""
REMEMBERS = "_memoize.<locals>.memoized"
"""The wrapper around the rules of a custom derivative, which keeps what they gave."""
JitTracer = pe.DynamicJaxprTracer

INLINED = frozenset({"jit", "pjit", "closed_call", "core_call", "call", "remat", "remat2", "checkpoint"})
"""Operations that only wrap others: they are replaced by what they contain."""

CONTROL = frozenset({"scan", "while", "cond"})


def names_inside(primitive: Any, params: dict[str, Any]) -> Iterator[str]:
    """The name of an operation, and of all inside of it."""
    yield str(primitive.name)
    for jaxpr in inner_jaxprs(params):
        for eqn in jaxpr.eqns:
            yield from names_inside(eqn.primitive, eqn.params)


"""Operations with functions of the user inside."""

OPEN_LOOPS = frozenset({"while"})
"""Operations without a backward pass: how often they run is not known before."""

BACKWARD_ONLY = frozenset({"custom_vjp_call", "custom_vjp_call_jaxpr"})
"""Functions that have a backward rule and no forward one; the second name until JAX 0.6."""

_MARK = config.hlo_source_file_canonicalization_regex
"""A setting that changes file names in compiled code alone, and is part of JAX's cache keys. A key of our own would make
JAX compile everything again that the user compiled before."""
_MARKED = "(?!wrt is recording)"

X64 = config.enable_x64
"""Whether numbers of 64 bits are switched on here: `.value`, in a third of the time that `jax.config` takes to tell."""

set_current_trace = core.set_current_trace
_ASKS_FOR_THE_NUMBER = frozenset({"__bool__", "__int__", "__index__", "__hex__", "__oct__", "expand_bool_indices"})
_IS_CONCRETE = core.is_concrete.__code__


def aval_of(thing: Any) -> Any:
    return core.typeof(thing)


def canonical(thing: Any, aval: Any) -> Any:
    """A NumPy array or Python number as JAX would take it: 64 bits only where they are switched on."""
    if isinstance(thing, jax.Array):
        return thing
    if isinstance(thing, (bool, int, float, complex, np.ndarray, np.generic)):
        return np.array(thing).astype(aval.dtype, copy=False)  # a copy: the user may write into it
    with core.eval_context():
        return jax.numpy.array(thing)


def only_probing() -> bool:
    """Whether JAX asks merely if a value could be had, to choose a faster path; answering would compute it."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(8):
        if frame is None:
            return False
        if frame.f_code is _IS_CONCRETE:
            caller = frame.f_back
            return caller is None or caller.f_code.co_name not in _ASKS_FOR_THE_NUMBER
        frame = frame.f_back
    return False


def _called_for_jitted() -> CodeType | None:
    found = getattr(jax.numpy.ravel, "_cache_miss", None)
    code = getattr(getattr(found, "__wrapped__", found), "__code__", None)
    return code if code is not None and "fun" in code.co_freevars else None


CALLS = _called_for_jitted()
"""The function that JAX calls for a jitted `fun` of `args` and `kwargs`: it reads it, and makes an operation of it."""

CONTEXT = core.trace_ctx
FOR_REAL = core.eval_trace
"""`CONTEXT.trace` while operations are run, rather than recorded or transformed by jit, grad or vmap."""


def transforming() -> bool:
    return CONTEXT.trace is not FOR_REAL


@contextmanager
def outside() -> Iterator[None]:
    """Compute now, for real, whatever is being recorded around."""
    with core.eval_context(), _MARK(_USUAL.get()) if _MARK.value == _MARKED else nullcontext():
        yield


_USUAL: ContextVar[str | None] = ContextVar("what the setting was before the recording", default=None)


@contextmanager
def read_again() -> Iterator[None]:
    """A function that was jitted before is read again in here, so that the names in it are seen; nothing is compiled."""
    token = _USUAL.set(_MARK.value if _MARK.value != _MARKED else _USUAL.get())
    try:
        with _MARK(_MARKED):
            yield
    finally:
        _USUAL.reset(token)


def abstract_eval(primitive: Any, avals: Sequence[Any], params: dict[str, Any]) -> tuple[list[Any], Any]:
    """What an operation would return, and its effects."""
    found, effects = primitive.abstract_eval(*avals, **params)
    return (list(found) if primitive.multiple_results else [found]), effects


def sub_jaxpr(params: dict[str, Any]) -> tuple[Any, Sequence[Any]]:
    """What a call contains: a jaxpr and its constants."""
    inner = params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"]
    return (inner.jaxpr, inner.consts) if isinstance(inner, core.ClosedJaxpr) else (inner, ())


inner_jaxprs = core.jaxprs_in_params
"""Everything that a loop, a branch or a call contains."""


def staged(function: Callable[..., Any], avals: Sequence[Any], name: str) -> tuple[Any, Sequence[Any]]:
    """A flat function as a jaxpr and the constants it closes over."""
    debug = core.DebugInfo("wrt", name, None, None)
    jaxpr, _, consts = pe.trace_to_jaxpr_dynamic(linear_util.wrap_init(function, debug_info=debug), list(avals))
    return jaxpr, consts


def bind(primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Apply an operation, as it stands in a jaxpr."""
    found = primitive.bind(*values, **primitive.get_bind_params(params))
    return list(found) if primitive.multiple_results else [found]


def current_source() -> Any:
    return source_info_util.current()


def current_context() -> Any:
    return core.current_jaxpr_eqn_context()


def raw_frames(source: Any) -> list[tuple[Any, int]]:
    """(code, instruction) of every frame, the innermost first."""
    if source.traceback is None:
        return []
    codes, offsets = source.traceback.raw_frames()
    return list(zip(codes, offsets, strict=True))


def file_of(jaxpr: Any) -> str:
    """The file of the function that a jaxpr was made from."""
    debug = getattr(jaxpr, "debug_info", None)
    told = getattr(debug, "func_src_info", "") or ""
    return told.partition(" at ")[2].rpartition(":")[0]


def name_of(jaxpr: Any) -> str:
    """The name of the function that a jaxpr was made from."""
    return getattr(getattr(jaxpr, "debug_info", None), "func_name", "") or ""


def underneath(tracer: Any) -> Any:
    """The array that a `vmap` or `grad` tracer stands for, one level down; None for other tracers."""
    if isinstance(tracer, batching.BatchTracer):
        return tracer.val
    return getattr(tracer, "primal", None) if isinstance(tracer, (ad.JVPTracer, ad.LinearizeTracer)) else None


def at_home(array: Any) -> bool:
    """Whether an array lies where arrays go that nobody sends anywhere."""
    return jax.config.jax_default_device is None and array.devices() == {jax.local_devices()[0]}


@cache
def is_differentiable(dtype: Any) -> bool:
    return bool(jax.dtypes.issubdtype(dtype, jax.numpy.inexact))


def copy(array: Any) -> Any:
    """The same numbers, as another array of the program."""
    from jax._src.lax import lax

    return lax.copy_p.bind(array)


def width(wide: bool) -> AbstractContextManager[None]:
    """Numbers of 64 bits in here, or not, whatever the user has set: before JAX 0.8 only among experiments."""
    if X64.value == wide:
        return nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(wide)
    from jax.experimental import enable_x64

    return enable_x64(wide)


def has_tf32() -> bool:
    """Whether the GPU has TF32: from compute capability 8 on."""
    told = str(getattr(jax.devices()[0], "compute_capability", "0"))
    return jax.default_backend() == "gpu" and float(told) >= 8.0


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many of a scan's inputs are constants, and how many are carried; JAX 0.11 keeps them as a tree."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def scan(body: Any, consts: Sequence[Any], carry: Sequence[Any], length: int) -> list[Any]:
    """A loop of fixed length over a closed jaxpr that maps a carry to the next one."""
    from jax._src.lax.control_flow import loops

    if not length:
        return list(carry)
    first, many = len(consts), len(carry)
    told: dict[str, Any] = {"linear": (False,) * (first + many), "_split_transpose": False}  # before JAX 0.10
    told |= {"num_consts": first, "num_carry": many}  # before JAX 0.11
    tree = getattr(loops, "ft", None)
    if tree is not None:
        none = tree.nones(0)
        told["ft_in"] = tree.pack((tree.nones(first), tree.nones(many), none))
        told["ft_out"] = tree.pack((tree.nones(many), none))
    known = signature(loops._scan_abstract_eval).parameters
    given = {name: one for name, one in told.items() if name in known}
    return loops.scan_p.bind(*consts, *carry, jaxpr=body, length=length, reverse=False, unroll=1, **given)


def evaluate(closed: Any, arrays: Sequence[Any]) -> list[Any]:
    return core.eval_jaxpr(closed.jaxpr, closed.consts, *arrays)
