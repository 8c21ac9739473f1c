"""What is asked of JAX's drifting API."""

import jax
import jax.numpy as jnp
import pytest

from wrt._backends.jax import compat


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As far as anybody can tell who asks; programs run where they always do, which takes options for a GPU too."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    compat._one_piece.cache_clear()
    yield
    compat._one_piece.cache_clear()


def test_on_a_cpu_programs_are_compiled_as_ever():
    assert compat._one_piece() == {}


def test_on_a_gpu_kernels_are_handed_over_in_one_piece(on_a_gpu):
    assert compat._one_piece()
    assert compat.kept_program(lambda x: jnp.sin(x) * x)(2.0) == pytest.approx(2 * jnp.sin(2.0))


def test_an_option_that_xla_does_not_know_is_left_out(on_a_gpu, monkeypatch):
    real = jax.jit

    def refusing(function, *, compiler_options=None, **more):
        return real(function, compiler_options=compiler_options and {"xla_no_such_option": 2}, **more)

    monkeypatch.setattr(jax, "jit", refusing)
    assert compat._one_piece() == {}
    assert compat.kept_program(lambda x: x + 1)(2.0) == 3.0
