"""Sums of rows rule columns out: never one that has an entry, and nearly all others."""

from itertools import islice

import numpy as np
import pytest

from wrt._plan.patterns.irregular import Sieve, enough, moduli


def random_pattern(m, n, entries, seed=0):
    rng = np.random.default_rng(seed)
    made = np.zeros((m, n), dtype=bool)
    for row in made:
        row[rng.choice(n, entries, replace=False)] = True
    return made


def touched(pattern, modulus):
    return np.stack([pattern[residue::modulus].any(0) for residue in range(modulus)])


@pytest.mark.parametrize(("m", "n"), [(300, 300), (301, 97), (64, 1000)])
@pytest.mark.parametrize("entries", [1, 4])
def test_what_is_left_holds_every_entry_and_few_others(m, n, entries):
    pattern = random_pattern(m, n, entries)
    sieve = Sieve(m, n)
    chosen = enough(entries * m / n, 0.5 * entries / n)
    for modulus in chosen:
        sieve.add(touched(pattern, modulus))
    left = sieve.pattern(1.0).toarray()
    assert (left | ~pattern).all()
    assert left.sum() <= 2.5 * pattern.sum()
    assert sum(chosen) < 40 * max(1, entries * m / n)


def test_a_band_is_found_as_well_as_what_is_scattered():
    band = np.abs(np.subtract.outer(np.arange(500), np.arange(500))) <= 2
    sieve = Sieve(500, 500)
    for modulus in islice(moduli(5), 5):
        sieve.add(touched(band, modulus))
    left = sieve.pattern(1.0).toarray()
    assert (left | ~band).all()
    assert left.sum() <= 2 * band.sum()


def test_moduli_are_primes_with_room_for_every_entry():
    assert list(islice(moduli(1), 4)) == [5, 7, 11, 13]
    assert list(islice(moduli(10), 3)) == [31, 37, 41]


def test_what_fills_up_is_given_up():
    sieve = Sieve(100, 100)
    sieve.add(np.ones((7, 100), dtype=bool))
    assert sieve.left == 1.0
    assert sieve.pattern(0.1) is None
