"""Every use of PyTorch's private or drifting API, and the words its errors use.

Private names, and the versions of torch in which they were seen as they are used here:

    _C.DisableTorchFunction, _C._len_torch_function_stack, _C._pop_torch_function_stack,
    _C._push_on_torch_function_stack, overrides._get_current_function_mode_stack               2.2 to 2.13
    _C._functorch.peek_interpreter_stack, _vmap_increment_nesting, _add_batch_dim, ...         2.1 to 2.13
    _C._FunctionBase, autograd._engine_run_backward, Variable._execution_engine                2.2 to 2.13
    _C._autograd._get_creation_meta, _saved_tensors_hooks_is_enabled, _C._storage_Use_Count    2.1 to 2.13
    autograd._unsafe_preserve_version_counter, utils._pytree, utils.checkpoint._checkpoint_hook  2.1 to 2.13
    _C._from_dlpack, Tensor._post_accumulate_grad_hooks                                          2.1 to 2.13
    on nodes: _input_metadata, _sequence_nr(), _saved_*, _raw_saved_*, _forward_cls; on storages: _cdata  2.1 to 2.13
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from inspect import CO_OPTIMIZED
from operator import methodcaller
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import has_torch_function_unary
from torch.utils import _pytree

from wrt._backends.torch import thresholds
from wrt._backends.torch.nodes import Node
from wrt._backends.torch.sharded import whole
from wrt._core.where import user_files
from wrt._names.frame_names import visible_tensors


def edge_of(tensor: torch.Tensor) -> GradientEdge | None:
    """Where the gradient of this tensor, as it is now, enters the graph; None if it has no history."""
    edge = inner_edge(tensor)
    return edge_of_leaf(tensor) if edge is None and tensor.requires_grad else edge


def inner_edge(tensor: torch.Tensor) -> GradientEdge | None:
    """The same, but None for a leaf too, whose edge takes longer to find."""
    if torch.is_inference_mode_enabled() or torch._C._len_torch_function_stack():
        with torch._C.DisableTorchFunction(), torch.inference_mode(False):
            return get_gradient_edge(tensor) if tensor.requires_grad else None
    node = tensor.grad_fn
    if node is None:
        return None
    if isinstance(node, torch._C._FunctionBase):  # Python owns the node: it must be kept alive
        return get_gradient_edge(tensor)
    return GradientEdge(node, tensor.output_nr)


def edge_of_leaf(leaf: torch.Tensor) -> GradientEdge:
    """Where gradients accumulate into a leaf, also if it was frozen since; nowhere if it is no leaf any more."""
    plain = not has_torch_function_unary(leaf)  # a subclass gives its view a node of its own
    if plain and leaf.requires_grad and leaf.grad_fn is None and torch.is_grad_enabled() and not has_modes():
        return GradientEdge(leaf.view_as(leaf).grad_fn.next_functions[0][0], 0)
    with torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():
        if leaf.grad_fn is not None:
            leaf = leaf.detach().requires_grad_()
        frozen = not leaf.requires_grad
        try:
            if frozen:
                leaf.requires_grad_()
            return GradientEdge(leaf.view_as(leaf).grad_fn.next_functions[0][0], 0)
        finally:
            if frozen:
                leaf.requires_grad_(False)


def pull(
    out: GradientEdge, ins: tuple[GradientEdge | torch.Tensor, ...], seed: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """`torch.autograd.grad` without the checks it makes in Python, which take longer than a small backward pass."""
    if _run_backward is None:
        return torch.autograd.grad((out,), ins, (seed,), retain_graph=True, allow_unused=True)
    pulled: tuple[torch.Tensor | None, ...] = _run_backward((out,), (seed,), True, False, ins, True, False)
    return pulled


# ---------------------------------------------------------------- modes and transforms

without_function_modes: Any = torch._C.DisableTorchFunction
"""A context in which no function mode sees what is called."""

in_function_mode: Callable[[], int] = torch._C._len_torch_function_stack
"""How many function modes are on: none inside `without_function_modes`."""

transform: Callable[[], Any] = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)
"""The torch.func transform (vmap, grad, jvp) that is at work, on tensors of its own; None where there is none."""


def remove_function_mode(mode: Any) -> None:
    """Take a mode from among the function modes; a call that was interrupted may have left it anywhere, or nowhere."""
    modes: list[Any] = torch.overrides._get_current_function_mode_stack()
    if all(other is not mode for other in modes):
        return
    above = []
    while (top := modes.pop()) is not mode:
        torch._C._pop_torch_function_stack()
        above.append(top)
    torch._C._pop_torch_function_stack()
    for other in reversed(above):
        torch._C._push_on_torch_function_stack(other)


# ---------------------------------------------------------------- tensors and memory


def memory_of(tensor: torch.Tensor) -> int:
    """Which memory a tensor lies in: the same number for all its views."""
    try:
        found: int = tensor.untyped_storage()._cdata
    except NotImplementedError:  # inside of torch.func tensors are wrapped
        return id(tensor)
    return found


def print_of(tensor: torch.Tensor) -> int:
    """A fingerprint of all memory that a tensor lies in."""
    storage = tensor.untyped_storage() if tensor.device.type == "cpu" else tensor.untyped_storage().cpu()
    return zlib.crc32((ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())) if storage.nbytes() else 0


def tensors_there() -> dict[int, tuple[Any, int]]:
    """Every tensor of the process by its identity, and how often it was written."""
    return _counted(one for one in gc.get_objects() if _HOLDERS[type(one)] == "tensor")


def tensors_at_hand(frame: FrameType | None) -> dict[int, tuple[Any, int]]:
    """The same of those at hand in the user's code: found a thousand times as fast."""
    named = {} if frame is None else visible_tensors(frame, lambda value: isinstance(value, torch.Tensor))
    return _counted((*named.values(), *retained_here(frame, everything=True)))


def _counted(tensors: Iterable[torch.Tensor]) -> dict[int, tuple[Any, int]]:
    return {id(one): (weakref.ref(one), -1 if one.is_inference() else one._version) for one in tensors}


keep_version_counter: Any = torch.autograd._unsafe_preserve_version_counter
"""A context in which writes into a tensor are not counted."""

saved_tensors_hooks_allowed: Callable[[], bool] = torch._C._autograd._saved_tensors_hooks_is_enabled

tree_flatten: Any = _pytree.tree_flatten
tree_unflatten: Any = _pytree.tree_unflatten
tree_leaves: Any = _pytree.tree_leaves
tree_map: Any = _pytree.tree_map

# ---------------------------------------------------------------- nodes and the engine


def metadata(node: Node, output: int) -> Any:
    """Shape, dtype and device of what enters a node's backward at one of its outputs."""
    return node._input_metadata[output]


def outputs_of(node: Node) -> int:
    """How many gradients a node's backward takes."""
    return len(node._input_metadata)


def is_custom(node: Node) -> bool:
    """Whether a node belongs to an `autograd.Function` written in Python."""
    return isinstance(node, torch._C._FunctionBase)


def function_of(node: Node) -> type | None:
    """The `autograd.Function` behind a node."""
    found: type | None = getattr(node, "_forward_cls", None)
    return found


def saved_tensors(node: Node) -> Iterator[tuple[str, torch.Tensor]]:
    """What one of torch's own nodes keeps for its backward, by name."""
    for name in dir(node):
        if name.startswith("_saved_") and isinstance(kept := getattr(node, name), torch.Tensor):
            yield name.removeprefix("_saved_"), kept


def when_backward_ends(call: Callable[[], None]) -> None:
    """Call once when the backward pass that is running, and out of which this is called, has ended."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


ENGINE_CALL = "_engine_run_backward"
"""The function of torch.autograd through which every backward goes."""

CHECKPOINT_CALL = "_checkpoint_hook"
"""What torch.utils.checkpoint enters around a block that is run without keeping its tensors."""

def pull_if_calm(
    out: GradientEdge, ins: tuple[GradientEdge | torch.Tensor, ...], seed: torch.Tensor
) -> tuple[torch.Tensor | None, ...] | None:
    """The same where no mode of the user's is active, so that there is nothing to put back; None where one is."""
    if (
        torch.is_inference_mode_enabled()
        or torch.is_autocast_enabled("cpu")
        or torch.is_autocast_enabled("cuda")
        or torch._C._len_torch_function_stack()
        or _run_backward is None
    ):
        return None
    pulled: tuple[torch.Tensor | None, ...] = _run_backward((out,), (seed,), True, False, ins, True, False)
    return pulled


is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # a tensor that a transform of torch.func has wrapped

BELOW_FUNCTION: Any = torch.autograd.Function.__mro__[1]  # the class whose `apply` that of Function calls

# outputs, seeds, retain_graph, create_graph, inputs, allow_unused, accumulate_grad: the same from torch 2.0 to 2.13
_run_backward: Any = getattr(torch.autograd.Variable._execution_engine, "run_backward", None)


def has_modes() -> bool:
    """Whether operations run under a mode of the user's: a function mode, autocast, inference mode."""
    return bool(
        torch.is_inference_mode_enabled()
        or torch.is_autocast_enabled("cpu")
        or torch.is_autocast_enabled("cuda")
        or torch._C._len_torch_function_stack()
    )


def own(gradient: torch.Tensor) -> torch.Tensor:
    """An ordinary tensor in memory of its own: the backward of a CUDA graph, for one, writes all its results to one place."""
    if type(gradient) is not torch.Tensor or gradient.layout != torch.strided or gradient._is_zerotensor():
        return to_dense(gradient)
    shared = _holders is None or _holders(gradient.untyped_storage()._cdata) > 2  # the tensor, and what was made to ask
    return gradient.clone() if shared else gradient


def to_dense(gradient: torch.Tensor) -> torch.Tensor:
    """Sparse embedding gradients, and zeros that torch never made (of `sgn`), as ordinary tensors."""
    if gradient.layout == torch.strided and not gradient._is_zerotensor():
        return gradient if type(gradient) is torch.Tensor else whole(gradient)
    return gradient.to_dense() if gradient.layout != torch.strided else torch.zeros_like(gradient).clone()


def is_one_of_several(view: torch.Tensor) -> bool:
    """Whether a view was made by a function that makes several at once: none of them may be written to."""
    inside: Any = torch._C._autograd
    return view._is_view() and inside._get_creation_meta(view) == inside.CreationMeta.MULTI_OUTPUT_NODE


_holders: Any = getattr(torch._C, "_storage_Use_Count", None)  # so since torch 2.1, and in 2.13


def same_edge(a: GradientEdge, b: GradientEdge) -> bool:
    return a.node is b.node and a.output_nr == b.output_nr


def node_of(root: Any) -> Node | None:
    """Where a backward from this tensor or edge starts."""
    if isinstance(root, torch.Tensor):
        edge = edge_of(root)
        return None if edge is None else edge.node
    return root.node


def keeps_tensors(node: Node) -> bool:
    """Whether a backward through this node empties it: it holds tensors that torch frees."""
    if hasattr(node, "_forward_cls"):
        try:
            return bool(node.saved_tensors)
        except RuntimeError:
            return True
    kind: type = type(node)
    return bool(raw_saved(kind))


@cache
def raw_saved(kind: type) -> tuple[str, ...]:
    """The names under which nodes of a kind keep tensors."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


made: Callable[[Node], int] = methodcaller("_sequence_nr")
"""When a node was made: in one thread, after everything it is made from."""


def is_leaf_node(node: Node) -> bool:
    return type(node) is ACCUMULATE  # name() demangles a C++ name each time: 40 µs


def _accumulate() -> type:
    with torch.inference_mode(False), torch.enable_grad():
        return type(torch.zeros(0, requires_grad=True).view(0).grad_fn.next_functions[0][0])


ACCUMULATE: type = _accumulate()


def refuses_double_backward(node: Node) -> bool:
    """A node that `once_differentiable` leaves behind: double backward would drop its branch."""
    return bool(node.name() == "torch::autograd::Error")


def kinds_above(start: Node) -> set[type] | None:
    """The types of nodes above, or None where such a one is among them; a type that was met before is not asked again."""
    seen = {start}
    kinds = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        kinds.add(kind)
        if kind not in _HARMLESS:
            if refuses_double_backward(node):
                return None
            if not issubclass(kind, torch._C._FunctionBase) and kind.__name__ != _UNNAMED:
                _HARMLESS.add(kind)
        for upstream, _ in node.next_functions:
            if upstream is not None and upstream not in seen and type(upstream) is not ACCUMULATE:
                seen.add(upstream)
                waiting.append(upstream)
    return kinds


_HARMLESS: set[type] = set()
_UNNAMED = "CppFunction"  # the type of every node that Python has no name for


def is_reentrant_checkpoint(node: Node) -> bool:
    return bool(node.name() == "CheckpointFunctionBackward")


def is_users_function(node: Node) -> bool:
    """A node that code of the user's stands behind: not the Functions in which torch wraps checkpoints and compiled graphs."""
    kind: Any = type(node)
    if not issubclass(kind, torch._C._FunctionBase):
        return False
    forward: Any = getattr(node, "_forward_cls", None)
    return not str(getattr(forward, "__module__", "")).startswith("torch.")


def multiplies_in_tf32(edge: GradientEdge | None) -> bool:
    """Whether a GPU may multiply float32 in TF32 above here: matrices where the user allows it, convolutions by itself."""
    if torch.backends.cuda.matmul.allow_tf32:
        return True
    if edge is None or not torch.backends.cudnn.allow_tf32:
        return False
    return any(type(node).__name__.startswith(_BY_CUDNN) for node in reachable(edge.node))


_BY_CUDNN = ("Convolution", "Cudnn", "CppFunction")  # the last: nodes that Python has no name for


def accumulate_hooks(tensor: torch.Tensor) -> Any:
    """What `register_post_accumulate_grad_hook` keeps with a leaf."""
    return tensor._post_accumulate_grad_hooks if tensor.is_leaf and tensor.requires_grad else None


def node_hooks(node: Node) -> int:
    """How many hooks of the user's a node has; torch tells of them to whoever sets another one."""
    found = 0
    for register in ("register_hook", "register_prehook"):
        try:
            handle = getattr(node, register)(lambda *gradients: None)
        except (AttributeError, RuntimeError):  # a node whose graph is gone
            continue
        hooks = handle.hooks_dict_ref()
        handle.remove()
        found += sum(not getattr(hook, "__module__", "").startswith("torch.") for hook in (hooks or {}).values())
    return found


def hooks_so_far() -> int:
    """How many hooks were ever set in this process, on anything: their handles are numbered."""
    count: int = torch.utils.hooks.RemovableHandle.next_id
    return count


def is_module_hook(node: Node) -> bool:
    """What `register_full_backward_hook` puts around a module."""
    return bool(node.name() == "BackwardHookFunctionBackward")


def reachable(start: Node) -> Iterator[Node]:
    """Every node that a backward from here can visit."""
    seen = {start}
    waiting = [start]
    while waiting:
        node = waiting.pop()
        yield node
        for upstream, _ in node.next_functions:
            if upstream is not None and upstream not in seen:
                seen.add(upstream)
                waiting.append(upstream)


class Undisturbed:
    """Sweep outside the user's modes: no function modes, no autocast, no inference mode; what they set stays set.

    Autograd also writes `.grad` of every tensor the user called `retain_grad()` on, even from `torch.autograd.grad`,
    and under vmap it writes a batched one. Those are put back.
    """

    __slots__ = ("_known", "_retained", "_stack")

    def __init__(self, retained: list[weakref.ref[torch.Tensor]] | None = None) -> None:
        """`retained`: the tensors of the user's that are known to keep their gradient; None: they are looked for."""
        self._known = retained

    def __enter__(self) -> None:
        if self._known is None:
            there = retained_here(sys._getframe(1))
        else:
            there = [tensor for one in self._known if (tensor := one()) is not None]
        self._retained = [(tensor, _grad(tensor)) for tensor in there]
        self._stack: ExitStack | None = None
        if not has_modes():
            return
        with ExitStack() as stack:
            stack.enter_context(torch._C.DisableTorchFunction())
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.autocast("cpu", enabled=False))
            if torch.is_autocast_enabled("cuda"):
                stack.enter_context(torch.autocast("cuda", enabled=False))
            self._stack = stack.pop_all()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for tensor, grad in self._retained:
            tensor.grad = grad
        if self._stack is not None:
            self._stack.close()


class Silence:
    """No warnings while anybody is inside. Filters belong to the process: the first thread in saves, the last restores."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._caught: warnings.catch_warnings[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._caught = warnings.catch_warnings()
                self._caught.__enter__()
                warnings.simplefilter("ignore")

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._caught is not None:
                self._caught.__exit__(None, None, None)


SILENCE = Silence()


def retained_here(frame: FrameType | None, everything: bool = False) -> list[torch.Tensor]:
    """Tensors at hand in the user's code that keep their gradient although they are no leaves.

    Autograd does not tell which tensors these are, and to follow every `retain_grad()` a function of torch would have to be
    replaced. So they are looked for where programs keep them: in the variables of the function that asked and of the one that
    called it, and in small containers, objects and modules there. With `everything`, all tensors that are found so.
    """
    found: list[torch.Tensor] = []
    frames = 0
    while frame is not None and frames < thresholds.RETAINED_FRAMES:
        if user_files[frame.f_code.co_filename]:
            frames += 1
            names = frame.f_locals
            looked_into = 0
            waiting: list[Iterable[Any]] = [names.values()]
            while waiting:
                for value in waiting.pop():
                    kind = _HOLDERS[type(value)]
                    if kind is None:
                        continue
                    if kind == "tensor":
                        if everything or value.retains_grad:
                            found.append(value)
                    elif looked_into < thresholds.RETAINED_OBJECTS:
                        if kind == "module":
                            own = vars(value)
                            inner = [own[name] for name in own.keys() - _OF_ANY_MODULE]
                            waiting.append(value._modules.values())
                        else:
                            inner = value if kind == "items" else value.values() if kind == "dict" else vars(value).values()
                        if 0 < len(inner) <= thresholds.RETAINED_ITEMS:
                            looked_into += 1
                            waiting.append(inner)
            if _LOCALS_STAY and frame.f_code.co_flags & CO_OPTIMIZED and sys.gettrace() is None and sys.getrefcount(names) == 3:
                names.clear()  # a copy that stays with the frame: it would keep alive what the user deletes
        frame = frame.f_back
    return found


_OF_ANY_MODULE = vars(torch.nn.Module()).keys()


def spoiled_by_batch() -> list[torch.Tensor]:
    """Tensors that were not found so, and hold a gradient of a batch that is over: it stands in the way of every pass.

    All objects are looked at, so only where a pass was refused. What is spoiled is dropped.
    """
    found = []
    for tensor in [one for one in gc.get_objects() if _HOLDERS[type(one)] == "tensor"]:
        if not tensor.is_leaf and tensor.retains_grad and tensor.grad is not None:
            batch = torch._C._functorch
            if batch.is_batchedtensor(tensor.grad) or batch.is_legacy_batchedtensor(tensor.grad):
                tensor.grad = None
                found.append(tensor)
    return found


class _Holders(dict[type, str | None]):
    """Which types of objects are tensors or hold some: asked once for each type."""

    def __missing__(self, kind: type) -> str | None:
        found = None
        if issubclass(kind, torch.Tensor):
            found = "tensor"
        elif kind in (list, tuple):
            found = "items"
        elif kind is dict:
            found = "dict"
        elif issubclass(kind, torch.nn.Module):
            found = "module"
        elif kind.__dictoffset__ and kind.__module__ != "builtins":
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            found = "object" if user_files[file or "<stdin>"] else None
        self[kind] = found
        return found


_HOLDERS = _Holders()


_LOCALS_STAY = sys.version_info < (3, 13)
"""Before, a copy of its variables that was made when somebody looked stays with a frame."""


def _grad(tensor: torch.Tensor) -> torch.Tensor | None:
    with SILENCE:  # reading .grad of a non-leaf warns where nothing was retained
        return tensor.grad


def batched(
    function: Callable[..., Sequence[torch.Tensor | None]], *batches: torch.Tensor
) -> list[torch.Tensor | None]:
    """`torch.func.vmap` over the first axis, without its handling of trees, which takes longer than a small pass."""
    count = batches[0].shape[0]
    if _batching is None:
        return _by_public_vmap(function, *batches)
    _batching.lazy_load_decompositions()
    with silent_vmap():
        level = _batching._vmap_increment_nesting(count, "error")
        try:
            found = function(*(_batching._add_batch_dim(batch, 0, level) for batch in batches))
            return [None if one is None else _batching._remove_batch_dim(one, level, count, 0) for one in found]
        finally:
            _batching._vmap_decrement_nesting()


def _by_public_vmap(
    function: Callable[..., Sequence[torch.Tensor | None]], *batches: torch.Tensor
) -> list[torch.Tensor | None]:
    reached: list[bool] = []

    def without_none(*each: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = function(*each)
        reached[:] = [one is not None for one in found]
        return tuple(one for one in found if one is not None)

    with silent_vmap():
        found = iter(torch.func.vmap(without_none)(*batches))
    return [next(found) if there else None for there in reached]


# so since torch 2.1, and in 2.13
_NEEDED = ("_vmap_increment_nesting", "_vmap_decrement_nesting", "_add_batch_dim", "_remove_batch_dim")
_batching: Any = torch._functorch.vmap if all(hasattr(torch._functorch.vmap, name) for name in _NEEDED) else None


@contextmanager
def silent_vmap() -> Iterator[None]:
    """Without the remarks about slow batching rules; what was slow is in `explain()`."""
    with SILENCE:
        yield


class Words:
    """Parts of PyTorch's error messages, as of 2.11 to 2.13."""

    FREED_IN_FULL = (
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
        "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
        "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
        "saved tensors after calling backward."
    )
    FREED = "Trying to backward through the graph a second time"
    FREED_SAVED = "after they have already been freed"
    INPLACE = "modified by an inplace operation"
    INPLACE_IN_FULL = (
        "one of the variables needed for gradient computation has been modified by an inplace operation: it was used "
        "inside a recording, and written after the recording had ended"
    )
    NO_HISTORY = "does not require grad and does not have a grad_fn"
    REENTRANT = "use_reentrant=True"
