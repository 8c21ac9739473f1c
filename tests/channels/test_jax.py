"""Every way that numbers take in JAX: followed, or refused; never zeros that nobody proved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from tests.channels.jax_rows import CHANNELS, scan_elements, stacked_elements
from tests.channels.judge import differences, judge
from wrt import d, errors

CASES = [(happens, program) for happens, programs in CHANNELS.values() for program in programs]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(("happens", "program"), CASES, ids=[program.__name__ for _, program in CASES])
def test_a_channel_is_followed_or_refused(happens: str, program: Any) -> None:
    start = np.array([0.3, 0.7, 1.2])

    def ask() -> Any:
        t = wrt.trace(program, jnp.array(start))
        return np.asarray((d(t.output) / d(t.inputs[0])).value)

    truth = differences(lambda array: np.asarray(program(jnp.array(array))), start, 1e-2)
    if program.__name__ == "pure_callback":  # JAX itself refuses
        with pytest.raises(errors.EngineRefused):
            ask()
        return
    judge(happens, ask, truth)


@pytest.mark.parametrize("program", [scan_elements, stacked_elements])
def test_elements_that_were_computed_from_one_another_and_stacked_are_refused(program: Any) -> None:
    t = wrt.trace(program, jnp.array([0.3, 0.7, 1.2]))
    J = d(t.output)[2] / d(t.output)[0]
    assert not J.connected
    with pytest.raises(errors.NotRecorded, match="stack"):
        _ = J.value


def test_elements_that_never_met_are_zero() -> None:
    t = wrt.trace(lambda x: jax.lax.map(jnp.sin, x), jnp.array([0.3, 0.7]))
    assert float(d(t.output)[1] / d(t.output)[0]) == 0


def test_a_bare_array_has_no_history() -> None:
    path = scan_elements(jnp.array([0.3, 0.7, 1.2]))
    with pytest.raises(errors.NotRecorded, match="bare JAX array"):
        _ = (d(path)[2] / d(path)[0]).value
