"""The page of a JAX function with a scan and a cut: the numbers of jax.jacrev, the cut with its line."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import wrt
from tests.microscope.numbers import decode
from wrt._microscope.model import Microscope


def f(x: Any, w: Any) -> Any:
    h = jnp.tanh(x @ w)

    def step(carry: Any, u: Any) -> Any:
        carry = jnp.tanh(carry + u)
        return carry, carry

    last, states = jax.lax.scan(step, jnp.zeros(4), h)
    held = jax.lax.stop_gradient(last)
    y = states.sum(1) + held.sum()
    return y


X = np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3)
W = np.linspace(-0.5, 0.5, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def glass() -> Microscope:
    return Microscope(wrt.trace(f, jnp.asarray(X), jnp.asarray(W)))


def side(name: str, index: Any = None) -> dict[str, Any]:
    return {"name": name, "index": index}


def test_rows_and_columns_are_those_of_jacrev(glass: Microscope) -> None:
    whole = np.asarray(jax.jacrev(f)(jnp.asarray(X), jnp.asarray(W)))
    told = glass.ask("derivative", {"target": side("y", [3]), "source": side("x")})
    np.testing.assert_allclose(decode(told["data"]), whole[3], rtol=1e-5, atol=1e-6)
    told = glass.ask("derivative", {"target": side("y"), "source": side("x", [1, 2])})
    np.testing.assert_allclose(decode(told["data"]), whole[:, 1, 2], rtol=1e-5, atol=1e-6)


def test_a_recurrence_shows_its_triangle(glass: Microscope) -> None:
    told = glass.ask("map", {"target": side("states"), "source": side("h"), "keep": [0, 0]})
    table = decode(told["data"])
    assert (np.triu(table, 1) == 0).all()
    assert (np.diag(table) > 0).all()


def test_the_cut_is_drawn_at_its_line(glass: Microscope) -> None:
    (cut,) = [node for node in glass.ask("graph", {})["nodes"] if node["gradient"] == "cut"]
    assert (cut["label"], cut["finding"]["cause"], cut["file"]) == ("held", "stop_gradient", "test_microscope.py")
    told = glass.ask("derivative", {"target": side("held", [0]), "source": side("x")})
    assert (told["connected"], told["data"]) == (False, None)
    assert told["finding"]["line"] == cut["line"]


def test_sizes_are_gradients(glass: Microscope) -> None:
    told = glass.ask("sizes", {"target": side("y", [5])})["sizes"]
    ids = {node["name"]: str(node["id"]) for node in glass.ask("graph", {})["nodes"]}
    g = np.asarray(jax.grad(lambda x: f(x, jnp.asarray(W))[5])(jnp.asarray(X)))
    assert told[ids["x"]]["max"] == pytest.approx(np.abs(g).max(), rel=1e-5)
    assert told[ids["x"]]["mean"] == pytest.approx(np.abs(g).mean(), rel=1e-5)


def test_the_page_opens_at_the_output_by_the_first_input(glass: Microscope) -> None:
    hello = glass.ask("hello", {})
    assert (hello["default"]["target"], hello["default"]["source"]) == ("y", "x")
