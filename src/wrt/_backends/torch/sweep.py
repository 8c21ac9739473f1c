"""Pull and push on an existing autograd graph: the only place where wrt calls autograd.

Pulling climbs down a ladder: rules of our own (`rules`) where every node on the way has one, `vmap` over `autograd.grad`
(fast), `is_grads_batched` (its older vmap copes with checkpoints and compiled code), one row at a time (NumPy in a custom
backward). Pushing goes by rules of our own (`forward`) where every operation on the way has one. Elsewhere it is double
backward: differentiate the pull with respect to its own seed. That needs no second forward run, but it silently drops a
branch whose backward cannot be differentiated, so every push is certified by the layers above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch.autograd.graph import GradientEdge

from wrt._backends.torch import compat, spared
from wrt._backends.torch.forward.program import Program, program
from wrt._backends.torch.hooks import may_act
from wrt._backends.torch.nodes import NoRule
from wrt._backends.torch.refusals import in_our_words, translated
from wrt._backends.torch.replay import Replay
from wrt._backends.torch.rules.gain import come_first, gains
from wrt._backends.torch.rules.program import Program as Rules
from wrt._backends.torch.rules.question import program_of, put_aside
from wrt._backends.torch.sharded import is_sharded, whole
from wrt._backends.torch.twice import refuse_lost
from wrt._core.protocol import CannotBatch, NotForThis
from wrt._core.value import Value

Tensor: TypeAlias = torch.Tensor

RULES = "rules"
REPLAY = "replay"
VMAP = "vmap"
BATCHED = "is_grads_batched"
ONE_BY_ONE = "one by one"
FORWARD = "forward, by rules"
DOUBLE_BACKWARD = "double backward"

BY_THE_ENGINE = (VMAP, BATCHED, ONE_BY_ONE)
WITH_RULES = (RULES, *BY_THE_ENGINE)


class TorchLinear:
    """The derivative of one edge with respect to others; double backward is set up once, at the first push."""

    push_rungs: tuple[str, ...] = (FORWARD, DOUBLE_BACKWARD, DOUBLE_BACKWARD + ", " + ONE_BY_ONE)

    def __init__(self, y: Value, xs: Sequence[Value]) -> None:
        self.y = y
        self.out: GradientEdge = y.key.edge
        self.ins: tuple[GradientEdge | Tensor, ...] = tuple([x.key.target for x in xs])
        self.xs = xs
        self.swept_by = VMAP  # the rung of the last `pull_at_once`
        self.proved_by = ONE_BY_ONE  # and of the probe of the last `push_at_once`
        self._seed: Tensor | None = None
        self.set_up = False
        self._pulled: list[Tensor | None] = []
        self._weights: tuple[spared.Weights | None] | None = None  # looked up at the first batch that is pushed
        self._forward: tuple[Program | None] | None = None  # looked for at the first push

    @property
    def pull_rungs(self) -> tuple[str, ...]:
        """Rules come first where they cover everything between y and x."""
        return WITH_RULES if program_of(self.y, self.xs) is not None else BY_THE_ENGINE

    def pull(self, seeds: Tensor, rung: str) -> list[Tensor | None]:
        with compat.Undisturbed():
            if len(seeds) == 1:
                return [None if g is None else g.unsqueeze(0) for g in self._pull_one(seeds[0])]
            if rung == RULES:
                return self._pull_by_rules(program_of(self.y, self.xs), seeds)
            if rung == VMAP:
                return self._pull_vmap(seeds)
            if rung == BATCHED:
                return self._pull_batched(seeds)
            rows = [self._pull_one(seed) for seed in seeds]
            return [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]

    def _rules_at_once(self, count: int, trusted: bool) -> Rules | None:
        """Rules that are known, and those of a new graph where looking them up pays."""
        y = self.y
        if trusted and y.key.program is None and not (come_first(y) if count >= y.size else gains(y, self.xs, count)):
            return None
        return program_of(y, self.xs)

    def pull_alone(self, seed: Tensor) -> list[Tensor | None]:
        """One plain pass: y.shape -> x.shape for each x, to be read before the next one: the memory may be shared."""
        with compat.Undisturbed():
            return [None if g is None else _to_dense(g) for g in self._pulled_to(seed, self.ins)]

    def pull_at_once(
        self, seeds: Tensor, trusted: bool, *, spent: bool = False, kept: dict[str, Any] | None = None
    ) -> Tensor | None:
        """A batch to the only x on the first rung, (k, *y.shape) -> (k, x.size).

        Operations that are trusted all have a batching rule. `spent`: nobody needs the seeds afterwards. `kept`: what a
        plan keeps that asks for these very seeds every time.
        """
        if kept is not None and seeds.is_cuda and (again := self._replayed(seeds, kept)) is not None:
            return again
        found = self._rules_at_once(seeds.shape[0], trusted)
        self.swept_by = VMAP if found is None else RULES
        if found is not None:
            try:
                with compat.Undisturbed():
                    (pulled,) = self._pull_by_rules(found, seeds, spent=spent)
            except CannotBatch:  # and there is no program any more: `vmap` is the first rung now
                if spent or (trusted and not self._vouched()):
                    raise  # rules alone were trusted, or they have written to the seeds
                self.swept_by = VMAP
            else:
                return None if pulled is None else _own(pulled.reshape(seeds.shape[0], -1), None if spent else seeds)
        try:
            if trusted and compat.is_calm():
                (pulled,) = compat.batched_pull(self.out, self.ins, seeds)
            else:
                with compat.Undisturbed(), compat.SILENCE:
                    (pulled,) = compat.batched_pull(self.out, self.ins, seeds)
        except Exception as error:
            raise CannotBatch(_first_line(error)) from error
        return None if pulled is None else _own(pulled.reshape(seeds.shape[0], -1), seeds)

    def _replayed(self, seeds: Tensor, kept: dict[str, Any]) -> Tensor | None:
        replay: Replay = kept.get(REPLAY) or kept.setdefault(REPLAY, Replay())
        with compat.Undisturbed():
            found = replay.pull(self.y, self.xs, seeds)
        if found is not None:
            self.swept_by = str(replay)
        return found

    def push_at_once(self, tangents: Tensor, probe: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """A batch from the first x, (k, *x.shape) -> (k, y.size), and what a pull says of a probe at the last x.

        Where there are two, the first lies on the way to the last. `proved_by` is the rung of that pull.
        """
        try:
            pushed = self._push_by_rules([tangents] + [None] * (len(self.ins) - 1))
        except NotForThis:
            return self._push_twice(tangents, probe)
        if pushed is None:
            return None
        said = self._said(probe)
        return _own(pushed.reshape(tangents.shape[0], -1), tangents), None if said is None else said.reshape(-1)

    def _said(self, probe: Tensor) -> Tensor | None:
        """What a pull of its own says of a probe at the last x: that of the engine.

        On a device that is one of rules which the engine has confirmed: there it runs in a thread of its own, which takes
        longer to wake than to pull.
        """
        with compat.Undisturbed():
            rules = program_of(self.y, self.xs[-1:]) if _far(probe) else None
            if rules is not None:
                try:
                    (said,) = self._pull_by_rules(rules, probe.unsqueeze(0))
                except CannotBatch:  # and there is no program any more
                    pass
                else:
                    self.proved_by = RULES
                    return said
            self.proved_by = ONE_BY_ONE
            return self._pull_one(probe, self.ins[-1:])[0]

    def _push_twice(self, tangents: Tensor, probe: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """The same by double backward, which the pull of the probe sets up."""
        with compat.Undisturbed(), torch.enable_grad():
            seed, pulled = self._set_up_push(probe)
            if pulled[0] is None:
                return None
            try:
                with compat.SILENCE:  # twice differentiated, not every operation has a batching rule
                    (pushed,) = compat.batched_pull(compat.edge_of(pulled[0]), (seed,), tangents)
            except Exception as error:
                raise CannotBatch(_first_line(error)) from error
            if pushed is None:
                raise CannotBatch("a backward on the path drops its seed")
            said = None if pulled[-1] is None else _to_dense(pulled[-1].detach()).reshape(-1)
            return _own(pushed.detach().reshape(tangents.shape[0], -1), tangents), said

    def _pull_one(self, seed: Tensor, ins: tuple[GradientEdge | Tensor, ...] | None = None) -> list[Tensor | None]:
        return [_dense(g) for g in self._pulled_to(seed, self.ins if ins is None else ins)]

    def _pulled_to(self, seed: Tensor, ins: tuple[GradientEdge | Tensor, ...]) -> tuple[Tensor | None, ...]:
        try:
            return compat.pull(self.out, ins, seed)
        except RuntimeError as error:
            raise in_our_words(error) from error

    def _pull_by_rules(self, program: Rules | None, seeds: Tensor, *, spent: bool = False) -> list[Tensor | None]:
        if program is None:
            raise CannotBatch("an operation on the way has no rule")
        try:
            return program.pull(seeds, spent=spent)
        except Exception as error:
            put_aside(self.y)
            raise CannotBatch(_first_line(error)) from error

    def _vouched(self) -> bool:
        """Whether the batches of every operation that led to y are known to be right."""
        vouch = getattr(self.y.record, "trusted", None)
        return vouch is not None and bool(vouch(self.y))

    def _pull_vmap(self, seeds: Tensor) -> list[Tensor | None]:
        try:
            if self._vouched():
                pulled = compat.batched_pull(self.out, self.ins, seeds)
            else:
                pulled = compat.batched(lambda seed: compat.pull(self.out, self.ins, seed), seeds)
            return [g if g is None or type(g) is Tensor else whole(g) for g in pulled]
        except Exception as error:
            raise CannotBatch(_first_line(error)) from error

    def _pull_batched(self, seeds: Tensor) -> list[Tensor | None]:
        try:
            with compat.silent_vmap():
                pulled = torch.autograd.grad(
                    [self.out],
                    self.ins,
                    [seeds],
                    retain_graph=True,
                    allow_unused=True,
                    is_grads_batched=True,
                )
        except Exception as error:
            raise CannotBatch(_first_line(error)) from error
        return list(pulled)

    def _push_by_rules(self, tangents: Sequence[Tensor | None]) -> Tensor | None:
        """(k, *y.shape); None where nothing that moves leads to y."""
        rules = self._rules()
        if rules is None:
            raise NotForThis("an operation on the path has no rule")
        with compat.Undisturbed():
            try:
                return rules.push(tangents)
            except NoRule as error:
                self._forward = (None,)
                raise NotForThis(str(error)) from error

    def _rules(self) -> Program | None:
        if self._forward is None:
            watched = may_act() or compat.is_transformed() or any(is_sharded(x.key.tensor()) for x in self.xs)
            self._forward = (None if watched else program(self.out, self.ins),)
        return self._forward[0]

    def push(self, tangents: Sequence[Tensor | None], rung: str) -> Tensor | None:
        if rung == FORWARD:
            pushed = self._push_by_rules(tangents)
            moving = next((t for t in tangents if t is not None), None)
            return pushed if pushed is None or moving is None else _own(pushed, moving)
        with compat.Undisturbed(), torch.enable_grad():
            seed, pulled = self._set_up_push()
            live = [
                (g, t) for g, t in zip(pulled, tangents, strict=True) if g is not None and t is not None
            ]
            if not live:
                return None
            outputs = [g for g, _ in live]

            def one(*columns: Tensor) -> Tensor:
                (pushed,) = torch.autograd.grad(outputs, [seed], list(columns), retain_graph=True, allow_unused=True)
                return torch.zeros_like(seed) if pushed is None else pushed

            columns = [t for _, t in live]
            try:
                if rung == DOUBLE_BACKWARD and self._weights is None:
                    self._weights = (spared.weights_of(pulled),)
                if columns[0].shape[0] == 1:
                    weights = None if self._weights is None else self._weights[0]
                    return spared.push_one(one, [t[0] for t in columns], weights).unsqueeze(0).detach()
                if rung == DOUBLE_BACKWARD:
                    assert self._weights is not None
                    return spared.push(one, columns, *self._weights).detach()
                return torch.stack([one(*each) for each in zip(*columns, strict=True)]).detach()
            except CannotBatch:
                raise
            except Exception as error:
                raise CannotBatch(_first_line(error)) from error

    def start_push(self, seeds: Tensor) -> list[Tensor | None]:
        """Set up the push, where it has to be, by a pull of this one seed: the engine's own unbatched pass."""
        if self._rules() is not None:
            return self.pull(seeds[:1], ONE_BY_ONE)
        with compat.Undisturbed(), torch.enable_grad():
            pulled = self._set_up_push(seeds[0])[1]
            return [None if g is None else _to_dense(g.detach()).unsqueeze(0) for g in pulled]

    def _set_up_push(self, start: Tensor | None = None) -> tuple[Tensor, list[Tensor | None]]:
        if self._seed is None:
            self.set_up = True
            if start is None:
                start = torch.zeros(self.y.shape, dtype=self.y.dtype, device=self.y.key.device)
            seed = (start.clone() if start.is_inference() else start.detach()).requires_grad_()
            try:
                pulled = torch.autograd.grad([self.out], self.ins, [seed], create_graph=True, allow_unused=True)
            except Exception as error:
                raise CannotBatch(_first_line(error)) from error
            for g in pulled:
                if g is None:
                    continue
                if not g.requires_grad:
                    raise CannotBatch("a backward on the path cannot be differentiated again")
                if g.grad_fn is not None and compat.holds_a_refusal(g.grad_fn):
                    raise CannotBatch("a backward on the path is marked once_differentiable")
            self._seed, self._pulled = seed, list(pulled)
            self._weights = None
        return self._seed, self._pulled

    def pull_traceable(self, seeds: Tensor, by: Sequence[Value]) -> list[Value | None]:
        def rows(seeds: Tensor) -> list[tuple[Tensor | None, ...]]:
            return [
                torch.autograd.grad([self.out], self.ins, [seed], create_graph=True, allow_unused=True)
                for seed in seeds
            ]

        with compat.Undisturbed(), torch.enable_grad(), translated():
            pulled = refuse_lost(rows, seeds.clone() if seeds.is_inference() else seeds, self.out.node, by)
            lifted: list[Value | None] = []
            for column in zip(*pulled, strict=True):
                lifted.append(None if column[0] is None else self.y.record.backend.lift(torch.stack(column)))
            return lifted


def _far(tensor: Tensor) -> bool:
    return tensor.is_cuda


def _own(block: Tensor, seeds: Tensor | None) -> Tensor:
    """A block in memory of its own: seeds are kept for the next question, and a view passes them on as they are."""
    if block.is_contiguous() and (seeds is None or block.untyped_storage().data_ptr() != seeds.untyped_storage().data_ptr()):
        return block
    return block.clone(memory_format=torch.contiguous_format)


def row(out: GradientEdge, into: GradientEdge | Tensor, seed: Tensor) -> Tensor | None:
    """One plain pull to one place."""
    try:
        if compat.is_calm():
            (pulled,) = compat.pull(out, (into,), seed)
        else:
            with compat.Undisturbed():
                (pulled,) = compat.pull(out, (into,), seed)
    except RuntimeError as error:
        raise in_our_words(error) from error
    return _dense(pulled)


def _dense(gradient: Tensor | None) -> Tensor | None:
    """An ordinary tensor in memory of its own: the backward of a CUDA graph, for one, writes all its results to one place."""
    if gradient is None:
        return None
    dense = _to_dense(gradient)
    return dense.clone() if dense is gradient and compat.is_shared(dense) else dense


def _to_dense(gradient: Tensor) -> Tensor:
    """Sparse embedding gradients, and zeros that torch never made (of `sgn`), as ordinary tensors."""
    if gradient.layout == torch.strided and not gradient._is_zerotensor():
        return gradient if type(gradient) is Tensor else whole(gradient)
    return gradient.to_dense() if gradient.layout != torch.strided else torch.zeros_like(gradient).clone()


def _first_line(error: Exception) -> str:
    words = str(error).strip().splitlines()
    return words[0][:160] if words else type(error).__name__
