"""An irregular pattern that no rule tells: sums of rows rule out where entries cannot be, and colors do the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from wrt._core.plan import Compressed, Direct
from wrt._planner.strategies.colored import colored
from wrt._sparsity.samples import Samples
from wrt._sparsity.sieve import Sieve, enough, moduli

Sums = Callable[[list[int]], list[npt.NDArray[np.bool_]]]
"""Moduli -> for each of them where the rows of a class, weighted at random and summed, are nonzero: (modulus, n)."""

SHARE = 0.25  # of the direct passes that sums may take, colors not included
WRONG = 0.5  # of a row's own entries: so many wrong ones cost less than another family
DENSE = 0.1  # a share of entries beyond which nobody gains anything


def probed(shape: tuple[int, int], samples: Samples, sums: Sums, instead_of: Direct, push_cost: float) -> Compressed | None:
    """The plan, where sums of rows and colors together take clearly fewer passes than there are."""
    m, n = shape
    in_a_column = max(1.0, samples.density * m)
    most = SHARE * instead_of.passes
    wrong = WRONG * samples.density
    together = enough(in_a_column, wrong)
    more = (modulus for modulus in moduli(in_a_column) if modulus > together[-1])
    sieve, spent = Sieve(m, n), 0
    while sieve.left > wrong:
        spent += sum(together)
        if spent > most:
            return None  # too full, or fuller somewhere than where the samples looked
        for touched in sums(together):
            sieve.add(touched)
        together = [next(more)]
    pattern = sieve.pattern(DENSE)
    return None if pattern is None else colored(pattern, instead_of, push_cost, f"{spent} sums of rows")
