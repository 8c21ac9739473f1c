"""PyTorch's errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wrt._backends.torch.compat import Words
from wrt._core.graph import Node
from wrt._core.thresholds import MESSAGE_CHARACTERS
from wrt._core.where import Where
from wrt.errors import EngineRefused, GradientCut, GraphFreed, NoPath, NotRecorded, WrtError


@contextmanager
def translated() -> Iterator[None]:
    """Around a plain pass of autograd."""
    try:
        yield
    except WrtError:
        raise
    except RuntimeError as error:
        raise in_our_words(error) from error


def reentrant_checkpoint() -> EngineRefused:
    return EngineRefused(
        "a reentrant checkpoint lies on the path",
        "torch.utils.checkpoint with use_reentrant=True hides its graph from everything but .backward()",
        "write checkpoint(..., use_reentrant=False)",
    )


def in_our_words(error: RuntimeError) -> RuntimeError:
    """The three-line error for what autograd said."""
    said = str(error)
    if Words.FREED in said or Words.FREED_SAVED in said:
        return GraphFreed(
            "the graph of y was freed by an earlier backward",
            "torch drops what backward needs after y.backward() or autograd.grad(y, ...) without retain_graph=True",
            "ask before that call, pass retain_graph=True to it, or compute y again",
        )
    if Words.INPLACE in said:
        return EngineRefused(
            "a tensor that backward needs was changed in place",
            said.split(". ")[0].split(": ", 1)[-1][:MESSAGE_CHARACTERS],
            "ask before that write, or record it too: `with wrt.record() as t:` keeps what backward needs",
        )
    if Words.REENTRANT in said:
        return reentrant_checkpoint()
    return EngineRefused(
        "torch's autograd could not run this pass",
        said.strip().splitlines()[0][:MESSAGE_CHARACTERS] if said.strip() else type(error).__name__,
        "the original error is chained below; wrt.why(error) looks for its cause",
    )


def cut_error(node: Node, y: str, x: str) -> GradientCut:
    """The value goes on, the gradient stops at this line."""
    line = f"{node.where}  {node.where.text}" if node.where else node.op
    return GradientCut(
        f"no gradient path from {x} to {y}",
        f"{y} is computed from {x}, but {line}  cuts the path ({node.op})",
        f"change that line, or ask for the derivative with respect to what it gives; wrt.why({y}, {x}) says more",
    )


def left_error(node: Node, y: str, x: str) -> NoPath:
    """The value left torch; what became of it there was not recorded."""
    line = f"{node.where}  {node.where.text}" if node.where else node.op
    return NoPath(
        f"no gradient path from {x} to {y}",
        f"{line}  takes {x} out of torch ({node.op}); whether {y} uses the number was not recorded",
        f"keep it a tensor on that line; wrt.why({y}, {x}) says more",
    )


def made_elsewhere(y: str, x: str, between: str) -> NoPath:
    return NoPath(
        f"no gradient path from {x} to {y}",
        f"{y} uses {between}, which was made of {x} in another recording: each knows its own run only",
        f"put every line from {x} to {y} inside one `with wrt.record():`, or write {x}.requires_grad_() before both",
    )


def open_channel(y: str, x: str, words: str, where: Where | None) -> NoPath:
    """Zeros would be a guess: numbers may have come into y by a way that nobody saw."""
    if words:
        line = f"{where}  {where.text}" if where else "before the block"
        return NoPath(
            f"no gradient path from {x} to {y}",
            f"{line}  {words}: whether {y} was made of {x} there was not seen",
            f"keep that out of the block, or compute {y} by operations of torch alone",
        )
    return NoPath(
        f"no gradient path from {x} to {y}",
        f"the run went through torch.func, TorchScript or a thread: what it made of {x}, without requires_grad, is not known",
        f"write {x}.requires_grad_() before the run: autograd follows it there too",
    )


def written_since(y: str) -> NotRecorded:
    return NotRecorded(
        f"{y} was written in place after the recording had ended",
        "what was written into it nobody saw, and its history is that of the numbers it had before",
        f"put that line inside `with wrt.record():` too, or ask about {y} before it",
    )


def never_met(y: str, x: str) -> NoPath:
    return NoPath(
        f"no gradient path from {x} to {y}",
        f"the recording of {y} never met {x}: no line inside uses it, only perhaps what was made from it before",
        f"put every line from {x} to {y} inside `with wrt.record():`",
    )
