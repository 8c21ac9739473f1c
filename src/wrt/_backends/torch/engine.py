"""Pull and push on an existing autograd graph: the only place where wrt calls autograd.

A batch is pulled by `vmap` over `autograd.grad`, or by `is_grads_batched`, whose older vmap copes with checkpoints and
compiled code; code of the user's that neither takes is pulled one row at a time. Pushing is double backward: the pull is
linear in its seed, and is differentiated by it. That needs no second forward run, but it silently drops a branch whose
backward cannot be differentiated; the proof of every answer sees that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat, convolutions
from wrt._backends.torch.refusals import in_our_words, translated
from wrt._backends.torch.twice import refuse_lost
from wrt._core.index import Positions
from wrt._core.protocol import CannotSweep, Marks, Swept
from wrt._core.value import Value

Tensor: TypeAlias = torch.Tensor

VMAP = "vmap"
BATCHED = "is_grads_batched"
ONE_BY_ONE = "one by one"
DOUBLE_BACKWARD = "double backward"


class TorchEngine:
    """The derivative of one edge with respect to others; double backward is set up once, at the first push."""

    can_pull = True
    can_push = True
    push_cost = 1.0

    __slots__ = ("_pulled", "_seed", "_weights", "ins", "out", "xs", "y")

    def __init__(self, y: Value, xs: Sequence[Value]) -> None:
        self.y = y
        self.xs = xs
        self.out: GradientEdge = y.key._edge or y.key.edge
        ins: list[GradientEdge | Tensor] = []
        for x in xs:  # a leaf that still is one is asked for as it is: its edge takes time to make
            leaf, edge = x.key.leaf, x.key._edge
            plain = leaf is not None and edge is None and leaf.requires_grad and leaf.is_leaf
            ins.append(leaf if plain else edge or x.key.edge)
        self.ins = tuple(ins)
        self._seed: Tensor | None = None
        self._pulled: list[Tensor | None] = []
        self._weights: convolutions.Weights | None = None

    # ---------------------------------------------------------------- rows

    def plain(self, seed: Tensor, *, then_push: bool = False) -> list[Tensor | None]:
        if then_push:
            try:
                with compat.Undisturbed(self.y.key.retained), torch.enable_grad():
                    return [None if g is None else compat.own(g.detach()) for g in self._set_up_push(seed[0])]
            except CannotSweep:
                pass  # the push will say so
        try:
            calm = self.y.key.retained == []  # nothing of the user's can be disturbed
            pulled = compat.pull_if_calm(self.out, self.ins, seed[0]) if calm else None
            if pulled is None:
                with compat.Undisturbed(self.y.key.retained):
                    pulled = compat.pull(self.out, self.ins, seed[0])
        except RuntimeError as error:
            spoiled = compat.spoiled_by_batch()
            if spoiled:
                self.y.key.retained = [*(self.y.key.retained or ()), *map(weakref.ref, spoiled)]
                return self.plain(seed)
            raise in_our_words(error) from error
        found: list[Tensor | None] = []
        for gradient in pulled:
            found.append(None if gradient is None else compat.own(gradient))
        return found

    def pull(self, seeds: Tensor, *, batched: bool = True) -> Swept:
        count = len(seeds)
        refused: list[str] = []
        if batched and count > 1:
            for method, sweep in ((VMAP, self._by_vmap), (BATCHED, self._by_older_vmap)):
                if method == BATCHED and self._has_custom_code():
                    break  # the older vmap does not refuse what it cannot do: it may end the process
                try:
                    with compat.Undisturbed(self.y.key.retained):
                        return Swept([_own_batch(g, seeds) for g in sweep(seeds)], method, 1, tuple(refused))
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:
                    refused.append(f"{method}: {_first_line(error)}")
        rows = [self.plain(seed.unsqueeze(0)) for seed in seeds]
        arrays = [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]
        return Swept(arrays, ONE_BY_ONE, count, tuple(refused))

    def _by_vmap(self, seeds: Tensor) -> Sequence[Tensor | None]:
        return compat.batched(lambda seed: compat.pull(self.out, self.ins, seed), seeds)

    def _by_older_vmap(self, seeds: Tensor) -> Sequence[Tensor | None]:
        with compat.silent_vmap():
            return torch.autograd.grad(
                [self.out], self.ins, [seeds], retain_graph=True, allow_unused=True, is_grads_batched=True
            )

    def _has_custom_code(self) -> bool:
        """Whether a Function of the user's lies on the way, other than what torch itself wraps checkpoints and graphs in."""
        return any(compat.is_users_function(node) for node in compat.reachable(self.out.node))

    # ---------------------------------------------------------------- columns

    def push(self, tangents: Sequence[Tensor | None], *, batched: bool = True) -> Swept:
        with compat.Undisturbed(self.y.key.retained), torch.enable_grad():
            outputs: list[Tensor] = []
            columns: list[Tensor] = []
            for gradient, tangent in zip(self._set_up_push(), tangents, strict=True):
                if gradient is not None and tangent is not None:
                    outputs.append(gradient)
                    columns.append(tangent)
            if not outputs:
                return Swept([None], DOUBLE_BACKWARD)
            seed, count = self._seed, len(columns[0])

            def one(*column: Tensor) -> tuple[Tensor]:
                found = torch.autograd.grad(outputs, [seed], list(column), retain_graph=True, allow_unused=True)
                return (torch.zeros_like(seed) if found[0] is None else found[0],)

            def sweep(f: Callable[..., Any], *given: Any) -> Any:
                return f(*given) if self._weights is None else convolutions.push(partial(f, *given), self._weights)

            refused: list[str] = []
            if batched and count > 1:
                try:
                    (pushed,) = sweep(compat.batched, one, *columns)
                    return Swept([None if pushed is None else pushed.detach()], f"{DOUBLE_BACKWARD}, {VMAP}")
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:
                    refused.append(f"{DOUBLE_BACKWARD}, {VMAP}: {_first_line(error)}")
            try:
                rows = [sweep(one, *column)[0] for column in zip(*columns, strict=True)]
                pushed = torch.stack(rows).detach()
            except Exception as error:
                raise CannotSweep(_first_line(error)) from error
            return Swept([pushed], f"{DOUBLE_BACKWARD}, {ONE_BY_ONE}", count, tuple(refused))

    def _set_up_push(self, start: Tensor | None = None) -> list[Tensor | None]:
        """One pull that is kept differentiable."""
        if self._seed is None:
            if start is None:
                start = torch.zeros(self.y.shape, dtype=self.y.dtype, device=self.y.key.device)
            seed = (start.clone() if start.is_inference() else start.detach()).requires_grad_()
            try:
                pulled = torch.autograd.grad([self.out], self.ins, [seed], create_graph=True, allow_unused=True)
            except Exception as error:
                raise CannotSweep(_first_line(error)) from error
            kinds: set[type] = set()
            for g in pulled:
                if g is None:
                    continue
                if not g.requires_grad:
                    raise CannotSweep("a backward on the path cannot be differentiated again")
                above = set[type]() if g.grad_fn is None else compat.kinds_above(g.grad_fn)
                if above is None:
                    raise CannotSweep("a backward on the path is marked once_differentiable")
                kinds |= above
            if any(kind.__name__ == convolutions.CONVOLUTION for kind in kinds):
                self._weights = convolutions.weights_of(pulled)
            self._seed, self._pulled = seed, list(pulled)
        return self._pulled

    # ---------------------------------------------------------------- higher order, structure

    def pull_traceable(self, seeds: Tensor, by: Sequence[Value]) -> list[Value | None]:
        def rows(seeds: Tensor) -> list[tuple[Tensor | None, ...]]:
            return [
                torch.autograd.grad([self.out], self.ins, [seed], create_graph=True, allow_unused=True)
                for seed in seeds
            ]

        with compat.Undisturbed(), torch.enable_grad(), translated():
            pulled = refuse_lost(rows, seeds.clone() if seeds.is_inference() else seeds, self.out.node, by)
            lift: Callable[[Tensor], Value] = self.y.record.backend.lift
            return [None if column[0] is None else lift(torch.stack(column)) for column in zip(*pulled, strict=True)]

    def reach(self, rows: Positions, *, certain: bool = False) -> Marks | None:
        return None  # `Record.local_maps` tells


def _own_batch(gradients: Tensor | None, seeds: Tensor) -> Tensor | None:
    """A batch in memory of its own: a view would pass the seeds on as they are."""
    if gradients is None:
        return None
    dense = compat.to_dense(gradients)
    if dense.is_contiguous() and dense.untyped_storage().data_ptr() != seeds.untyped_storage().data_ptr():
        return dense
    return dense.clone(memory_format=torch.contiguous_format)


def _first_line(error: Any) -> str:
    words = str(error).strip().splitlines()
    return words[0][:160] if words else type(error).__name__
