"""A ladder of questions from 10⁴ to 10¹² entries, under a limit on this process's memory. Run as a program.

    python -m tests.run._ladder 1500        (megabytes beyond what is taken at the start)

One line for each step: what was asked, and whether it was answered rightly or refused in words.
"""

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.run.test_memory import STEPS
from wrt import d, errors


def stencil(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(1, 2, n).requires_grad_()
    return x**2 - torch.roll(x, 1) * torch.roll(x, -1), x


def dense(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(1, 2, n).requires_grad_()
    return x * x.mean(), x


def slope_of_dense(x: torch.Tensor, i: int) -> np.ndarray:
    """Row i in closed form: x_i / n everywhere, and the mean at i."""
    row = np.full(len(x), float(x[i].detach()) / len(x))
    row[i] += float(x.detach().double().mean())
    return row


def whole(J: Any, y: torch.Tensor, x: torch.Tensor) -> bool:
    found = J.value
    return found.shape == (len(y), len(x)) and np.allclose(found[3].numpy(), J[3].numpy(), rtol=1e-4, atol=1e-6)


def row(J: Any, y: torch.Tensor, x: torch.Tensor) -> bool:
    found = J[5].numpy()
    return bool(np.allclose(found, slope_of_dense(x, 5), rtol=1e-4)) if found.all() else int((found != 0).sum()) == 3


def push(J: Any, y: torch.Tensor, x: torch.Tensor) -> bool:
    """J x: both maps are quadratic, so it is 2 y."""
    return bool(torch.allclose(J @ x.detach(), 2 * y.detach(), rtol=1e-3, atol=1e-4))


def pull(J: Any, y: torch.Tensor, x: torch.Tensor) -> bool:
    """u J x = 2 u y."""
    found = torch.ones(len(y)) @ J
    return bool(np.isclose(float(found.double() @ x.detach().double()), 2 * float(y.detach().double().sum()), rtol=1e-3))


def sparse(J: Any, y: torch.Tensor, x: torch.Tensor) -> bool:
    found = J.sparse()
    return bool(np.allclose(found @ x.detach().numpy(), 2 * y.detach().numpy(), rtol=1e-3, atol=1e-4))


def diagonal(J: Any, y: torch.Tensor, x: torch.Tensor) -> bool:
    return bool(torch.allclose(J.diagonal(), 2 * x.detach(), rtol=1e-4))


def the_identity(J: Any, y: torch.Tensor, x: torch.Tensor) -> bool:
    same = d(x) / d(x)
    return same.connected and bool((same @ x.detach() == x.detach()).all()) and same.sparse().nnz == len(x)


def of_the_identity(J: Any, y: torch.Tensor, x: torch.Tensor) -> bool:
    return bool((d(x) / d(x)).value[0, 0] == 1)


QUESTIONS: dict[str, tuple[Callable[[int], Any], Callable[..., bool]]] = {
    "dense J.value": (dense, whole),
    "dense J[5]": (dense, row),
    "dense J @ v": (dense, push),
    "dense u @ J": (dense, pull),
    "dense J.sparse()": (dense, sparse),
    "stencil J.value": (stencil, whole),
    "stencil J[5]": (stencil, row),
    "stencil J.sparse()": (stencil, sparse),
    "stencil J.diagonal()": (stencil, diagonal),
    "the identity": (stencil, the_identity),
    "the identity's value": (stencil, of_the_identity),
}


def main() -> None:
    torch.set_num_threads(1)
    y, x = stencil(2)
    (d(y) / d(x)).sparse()  # what is loaded at the first question counts at the start
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = taken + int(sys.argv[1]) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for cells in STEPS:
        n = round(cells**0.5)
        for name, (make, ask) in QUESTIONS.items():
            y, x = make(n)
            try:
                outcome = "answered" if ask(d(y) / d(x), y, x) else "WRONG"
            except errors.TooLarge as error:
                outcome = "refused" if str(error).count("\n") == 2 else f"NOT IN THREE LINES: {error}"
            print(f"{cells:.0e} | {name} | {outcome}", flush=True)


if __name__ == "__main__":
    main()
