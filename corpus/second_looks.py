"""Random programs of stock torch operators: how many right answers need a second look, and that none is refused.

Each program composes a few operators on a random shape in float64, float32 or bfloat16; seeds are fixed. Its whole Jacobian is
asked for and compared with a loop of plain backward passes. A second look is anything beyond one plan and one independent
pass: a fallback, or doubtful columns that were swept alone.

python -m corpus.second_looks [--count 1000] [--seed 0] [--planned] [--show]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

Tensor = torch.Tensor
Operator = Callable[[Tensor, np.random.Generator], Tensor]

MOST_SHARE = 0.02
"""Of healthy answers that may need a second look."""
MOST_NUMBERS = 240
ROUNDING = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8}
SHAPES: tuple[tuple[int, ...], ...] = (
    (7,), (40,), (90,), (150,), (6, 5), (12, 8), (9, 16), (20, 4), (3, 4, 5), (4, 8, 5),
    (1, 2, 7, 7), (2, 3, 5, 5), (1, 1, 12, 12),
)  # fmt: skip
DEEPEST = 6


def _weights(x: Tensor, chance: np.random.Generator, *shape: int) -> Tensor:
    made = chance.standard_normal(shape) / shape[-1] ** 0.5
    return torch.from_numpy(made).to(x.dtype)


def _elementwise(f: Callable[[Tensor], Tensor]) -> Operator:
    return lambda x, chance: f(x)


def _axis(x: Tensor, chance: np.random.Generator) -> int:
    return int(chance.integers(x.ndim))


def _linear(x: Tensor, chance: np.random.Generator) -> Tensor:
    wide = int(chance.integers(3, 2 * x.shape[-1] + 4))
    wide = max(2, min(wide, MOST_NUMBERS * x.shape[-1] // max(1, x.numel())))
    return F.linear(x, _weights(x, chance, wide, x.shape[-1]), _weights(x, chance, wide))


def _convolution(x: Tensor, chance: np.random.Generator) -> Tensor:
    if x.ndim < 3:
        return F.conv1d(x.reshape(1, 1, -1), _weights(x, chance, 1, 1, 3), padding=1).reshape(x.shape)
    image = x.reshape(1, -1, *x.shape[-2:])
    return F.conv2d(image, _weights(x, chance, image.shape[1], image.shape[1], 3, 3) / 3, padding=1).reshape(x.shape)


def _attention(x: Tensor, chance: np.random.Generator) -> Tensor:
    tokens = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x[:, None]
    mixed = torch.softmax(tokens @ tokens.T / tokens.shape[-1] ** 0.5, -1) @ tokens
    return mixed.reshape(x.shape)


def _gather(x: Tensor, chance: np.random.Generator) -> Tensor:
    axis = _axis(x, chance)
    return x.index_select(axis, torch.from_numpy(chance.integers(0, x.shape[axis], x.shape[axis])))


def _scatter(x: Tensor, chance: np.random.Generator) -> Tensor:
    return torch.zeros_like(x).index_add(0, torch.from_numpy(chance.integers(0, len(x), len(x))), x)


def _stencil(x: Tensor, chance: np.random.Generator) -> Tensor:
    axis = _axis(x, chance)
    return -x * (x.roll(-1, axis) - x.roll(1, axis)) + 0.01 * (x.roll(-1, axis) - 2 * x + x.roll(1, axis))


def _reduce(x: Tensor, chance: np.random.Generator) -> Tensor:
    if x.ndim == 1:
        return x
    name = chance.choice(["sum", "mean", "logsumexp", "amax", "std", "prod"])
    axis = _axis(x, chance)
    return getattr(torch, name)(x, dim=axis) if x.shape[axis] > 1 else x.sum(axis)


def _pool(x: Tensor, chance: np.random.Generator) -> Tensor:
    if x.ndim != 4:
        return F.avg_pool1d(x.reshape(1, 1, -1), 2).reshape(-1)
    return (F.max_pool2d if chance.random() < 0.5 else F.avg_pool2d)(x, 2)


def _normalize(x: Tensor, chance: np.random.Generator) -> Tensor:
    return F.layer_norm(x, x.shape[-1:]) if chance.random() < 0.7 else F.normalize(x, dim=-1)


def _move(x: Tensor, chance: np.random.Generator) -> Tensor:
    choice = int(chance.integers(5))
    if choice == 0:
        return x.permute(*chance.permutation(x.ndim).tolist()).contiguous()
    if choice == 1:
        return x.flip(_axis(x, chance))
    if choice == 2:
        return x.roll(int(chance.integers(1, 4)), _axis(x, chance))
    return x.reshape(-1) if choice == 3 else x.unsqueeze(0).expand(2, *x.shape) if x.numel() * 2 < MOST_NUMBERS else x


def _join(x: Tensor, chance: np.random.Generator) -> Tensor:
    return torch.cat([x.sin(), x.exp().log1p()], 0) if 2 * x.numel() <= MOST_NUMBERS else torch.maximum(x, x.flip(0))


def _narrow(x: Tensor, chance: np.random.Generator) -> Tensor:
    flat, width = x.reshape(-1), int(chance.integers(2, 9))
    inner = torch.tanh(_weights(x, chance, width, flat.numel()) @ flat)
    return (_weights(x, chance, x.numel(), width) @ inner).reshape(x.shape)


OPERATORS: dict[str, Operator] = {
    "tanh": _elementwise(torch.tanh),
    "sin": _elementwise(torch.sin),
    "softplus": _elementwise(F.softplus),
    "gelu": _elementwise(F.gelu),
    "relu": _elementwise(lambda x: F.relu(x) + 0.1 * x),
    "sigmoid": _elementwise(torch.sigmoid),
    "square": _elementwise(lambda x: 0.3 * x**2),
    "rational": _elementwise(lambda x: x / (1 + x * x)),
    "root": _elementwise(lambda x: (x * x + 0.1).sqrt()),
    "exp": _elementwise(lambda x: torch.exp(-0.3 * x * x)),
    "clamp": _elementwise(lambda x: x.clamp(-1, 1) + 0.2 * x),
    "abs log": _elementwise(lambda x: torch.log1p(x.abs())),
    "softmax": _elementwise(lambda x: x.softmax(-1)),
    "log softmax": _elementwise(lambda x: x.log_softmax(-1)),
    "cumsum": lambda x, chance: x.cumsum(_axis(x, chance)),
    "cumprod": _elementwise(lambda x: (1 + 0.1 * x).cumprod(-1)),
    "sort": _elementwise(lambda x: x.sort(-1).values),
    "where": _elementwise(lambda x: torch.where(x > 0, x.sin(), 2 * x)),
    "residual": _elementwise(lambda x: x + torch.tanh(x.flip(-1))),
    "product": _elementwise(lambda x: x * x.roll(1, -1)),
    "linear": _linear,
    "convolution": _convolution,
    "attention": _attention,
    "gather": _gather,
    "scatter": _scatter,
    "stencil": _stencil,
    "reduce": _reduce,
    "pool": _pool,
    "normalize": _normalize,
    "move": _move,
    "join": _join,
    "narrow": _narrow,
}


@dataclass(frozen=True)
class Program:
    """Operators one after another on an input of a shape and a type; the number seeds everything that is drawn."""

    number: int
    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype

    def run(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """(y, x), in another type where one is given."""
        chance = np.random.default_rng([self.number, 1])
        x = torch.from_numpy(chance.standard_normal(self.shape)).to(self.dtype).to(dtype or self.dtype).requires_grad_()
        y: Tensor = x
        for name in self.names:
            y = OPERATORS[name](y, chance)
        return y, x

    def __str__(self) -> str:
        return f"program {self.number}: {' > '.join(self.names)} of {self.shape}, {str(self.dtype)[6:]}"


def programs(count: int, seed: int = 0) -> Iterator[Program]:
    """So many of them, always the same."""
    known = list(OPERATORS)
    for number in range(seed, seed + count):
        chance = np.random.default_rng([number, 0])
        names = tuple(chance.choice(known, size=int(chance.integers(1, DEEPEST + 1))).tolist())
        shape = SHAPES[int(chance.integers(len(SHAPES)))]
        yield Program(number, names, shape, list(ROUNDING)[number % len(ROUNDING)])


@dataclass
class Seen:
    """One program: what ran, whether the answer was right and accepted, and what made a second look."""

    program: Program
    strategy: str
    right: bool
    accepted: bool
    share: float
    looks: list[str]
    off: float = 0.0


@contextmanager
def _planned() -> Iterator[None]:
    """Plans are made for every question, also for those that a direct sweep answers before planning could pay."""
    from wrt._plan import cache, chain, plans

    before = plans.QUICK_SECONDS, chain.SAMPLE_SECONDS
    plans.QUICK_SECONDS = chain.SAMPLE_SECONDS = 0.0
    cache.forget()
    try:
        yield
    finally:
        plans.QUICK_SECONDS, chain.SAMPLE_SECONDS = before
        cache.forget()


def examine(program: Program, *, planned: bool = False) -> Seen | None:
    """The whole Jacobian next to a loop of plain backward passes; None where there is nothing to ask or it is not finite."""
    from wrt import d

    y, x = program.run()
    if y.numel() < 2 or not y.requires_grad:
        return None
    truth = row_loop(y, x)
    if not np.isfinite(truth).all() or np.abs(truth).max() < 1e3 * ROUNDING[torch.float64]:
        return None  # a y that is constant but for roundings has none but those
    J = d(y) / d(x)
    with _planned() if planned else nullcontext():
        got = J.value.double().numpy().reshape(truth.shape)
    explained: Any = J.explain()
    looks = [words for words in explained.fallbacks if not _is_refusal(words)]
    certificate = J.certificate
    assert certificate is not None
    if certificate.words and certificate.kind != "exact":
        looks.append(certificate.words)
    sizes = np.linalg.norm(truth, axis=0)
    off = np.linalg.norm(got - truth, axis=0)
    allowed = ROUNDING[program.dtype] * (64 * sizes + 16 * sizes.max())
    if not (off <= allowed).all() and program.dtype != torch.float64:  # as right as rows one by one, where terms cancel?
        y, x = program.run(torch.float64)
        allowed = np.maximum(allowed, 2 * np.linalg.norm(truth - row_loop(y, x), axis=0).max())
    worst = float(np.max(off / allowed))
    return Seen(program, explained.strategy, worst <= 1, bool(certificate), certificate.share, looks, worst)


def _is_refusal(words: str) -> bool:
    """vmap that has no rule for an operator is no second look: nothing was computed."""
    return words.startswith(("vmap:", "double backward, vmap:", "is_grads_batched:"))


def row_loop(y: Tensor, x: Tensor) -> Any:
    """The truth: one plain backward for each row."""
    seeds = torch.eye(y.numel(), dtype=y.dtype).reshape(-1, *y.shape)
    rows = [torch.autograd.grad(y, x, seed, retain_graph=True)[0].reshape(-1) for seed in seeds]
    return torch.stack(rows).double().numpy()


def summary(seen: list[Seen]) -> str:
    """Shares by type, and the largest share of what is allowed that a right answer used."""
    lines = []
    for dtype in ROUNDING:
        some = [one for one in seen if one.program.dtype == dtype]
        refused, wrong = sum(not one.accepted for one in some), sum(not one.right for one in some)
        used = np.quantile([one.share for one in some], [0.5, 0.99, 1.0]) if some else [0.0] * 3
        strategies = Counter(one.strategy for one in some)
        lines.append(
            f"{str(dtype)[6:]:9} {_looked(some)}, {refused} refused, {wrong} wrong; "
            f"of what is allowed, half use {used[0]:.2f}, 99 % {used[1]:.2f}, all {used[2]:.2f}; "
            + ", ".join(f"{name} {count}" for name, count in strategies.most_common())
        )
    return "\n".join([*lines, f"all       {_looked(seen)}"])


def _looked(seen: list[Seen]) -> str:
    looked = sum(bool(one.looks) for one in seen)
    return f"{len(seen):5} answers, {looked} needed a second look ({100 * looked / max(1, len(seen)):.1f} %)"


def main(arguments: list[str]) -> int:
    """0 where few answers needed a second look, none was refused and all are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planned", action="store_true", help="make plans for every question, however small")
    parser.add_argument("--show", action="store_true", help="every program that needed a second look")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for program in programs(chosen.count, chosen.seed):
            found = examine(program, planned=chosen.planned)
            if found is None:
                continue
            seen.append(found)
            if not found.right or not found.accepted or (chosen.show and found.looks):
                state = "" if found.right and found.accepted else "WRONG " if not found.right else "REFUSED "
                print(f"{state}{program} ({found.strategy}; off by {found.off:.2g}): {'; '.join(found.looks)}", flush=True)
    print(summary(seen))
    looked = sum(bool(one.looks) for one in seen)
    return int(looked > MOST_SHARE * len(seen) or not all(one.right and one.accepted for one in seen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
