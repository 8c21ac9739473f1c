"""A model travels as the recipe from which any process builds the same one."""

import itertools
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

import wrt
from tests.beyond._models import BUILT, jacobian, mlp, model, truth, weights
from wrt import d
from wrt._beyond.model import forget
from wrt._beyond.source import source_of
from wrt._core.index import Elements
from wrt._notation.derivative import Derivative
from wrt.errors import CannotTravel, NotATensor

X = torch.linspace(-1, 1, 4, dtype=torch.float64)


def words(error: pytest.ExceptionInfo[BaseException]) -> list[str]:
    return str(error.value).splitlines()


def test_its_run_is_recorded_once_however_often_it_is_asked_about() -> None:
    one = model(4, 6, 5, seed=11)
    built, before = len(BUILT), wrt.Model.counts()["recorded"]
    first, second = jacobian(one), jacobian(one)
    assert first.ask.y.record is second.ask.y.record
    assert (len(BUILT) - built, wrt.Model.counts()["recorded"] - before) == (1, 1)
    assert np.allclose(first.numpy(), truth(4, 6, 5, seed=11), rtol=1e-12)


def test_the_same_model_has_the_same_token_in_another_process() -> None:
    program = "from tests.beyond._models import model; print(model(4, 6, 5).token)"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == model(4, 6, 5).token


@pytest.mark.parametrize("changed", ["state", "inputs", "build", "device"])
def test_another_model_has_another_token(changed: str) -> None:
    state = weights(4, 5)
    same = wrt.Model(mlp, state, X).token
    other = {
        "state": lambda: wrt.Model(mlp, weights(4, 5, seed=1), X),
        "inputs": lambda: wrt.Model(mlp, state, X + 1e-9),
        "build": lambda: wrt.Model(lambda state: lambda x: x @ state[0], state, X),
        "device": lambda: wrt.Model(mlp, state, X, device="cpu"),
    }[changed]()
    assert wrt.Model(mlp, weights(4, 5), X.clone()).token == same
    assert other.token != same


FACTOR = 2.0


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR


def test_a_change_in_what_the_builder_names_is_a_change_of_the_model(monkeypatch) -> None:
    build = lambda: lambda x: scaled(x)
    same = wrt.Model(build, None, X).token
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert wrt.Model(build, None, X).token != same
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert wrt.Model(build, None, X).token == same
    monkeypatch.setattr(scaled, "__code__", (lambda x: x * FACTOR + 1).__code__)
    assert wrt.Model(build, None, X).token != same


def test_what_is_alive_in_a_closure_is_refused_in_words() -> None:
    alive = (k for k in range(3))
    with pytest.raises(CannotTravel) as error:
        wrt.Model(lambda: lambda x: x * next(alive), None, X)
    assert words(error)[0] == "a generator is alive in this process and cannot be sent"


def test_it_arrives_as_it_was_sent() -> None:
    scale = 3.0
    state = {"w": torch.eye(3, dtype=torch.bfloat16), "p": torch.nn.Parameter(torch.ones(())), "n": 2, "a": np.ones(2)}
    sent = wrt.Model(lambda state: lambda x: x * scale * state["n"] * state["p"], state, torch.ones(3))
    got = pickle.loads(pickle.dumps(sent))
    assert got.token == sent.token
    run = got.trace()
    assert torch.equal((d(run.output) / d(run.inputs[0])).value, 6 * torch.eye(3))


def test_a_history_stays_behind() -> None:
    x = torch.ones(3, requires_grad=True)
    one = wrt.Model(lambda: lambda x: x**2, None, x * 2)
    run = pickle.loads(pickle.dumps(one)).trace()
    assert torch.equal((d(run.output) / d(run.inputs[0])).diagonal(), torch.full((3,), 4.0))


def test_random_numbers_are_the_same_wherever_it_is_built(unchanged) -> None:
    def build():
        return lambda x: torch.nn.functional.dropout(x * float(np.random.rand() + random.random()), 0.5) * torch.rand(64)

    model = wrt.Model(build, None, torch.ones(64))
    with unchanged():
        first = jacobian(model).dask(chunks=16).compute(scheduler="synchronous")
    forget()
    torch.rand(3)
    again = jacobian(pickle.loads(pickle.dumps(model))).dask(chunks=16).compute(scheduler="synchronous")
    assert first.any()
    assert np.array_equal(first, again)


def test_another_run_than_was_asked_about_is_refused() -> None:
    J = jacobian(wrt.Model("tests.beyond.test_model:counts_its_builds", None, torch.ones(3))).dask()
    forget()
    with pytest.raises(CannotTravel) as error:
        J.compute(scheduler="synchronous")
    assert words(error) == [
        "the model built in this process is not the one that was asked about",
        "  y differs by 1.0e+00 from the run that the question was asked of, whose numbers are up to 1.0e+00",
        "  let build(state) give the same model everywhere: no random numbers, the same files and versions",
    ]


BUILDS = itertools.count(1)


def counts_its_builds():
    factor = next(BUILDS)
    return lambda x: x * factor


def test_a_state_dict_keeps_its_kind() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()

    def build(state: dict[str, torch.Tensor]) -> torch.nn.Module:
        made = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()
        made.load_state_dict(state)
        return made

    run = wrt.Model(build, net.state_dict(), torch.ones(1, 3)).trace()
    x = torch.ones(1, 3, requires_grad=True)
    assert torch.equal((d(run.output) / d(run.inputs[0])).value, (d(net(x)) / d(x)).value)


def test_a_default_dtype_travels_too(watched) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        one = wrt.Model(lambda: lambda x: x * torch.full((3,), 2.0), None, torch.ones(3))
    finally:
        torch.set_default_dtype(torch.float32)
    assert one.trace().output.dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_questions_about_names_and_elements_travel() -> None:
    def build(state: list[torch.Tensor]):
        def f(x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(x @ state[0])
            return hidden @ state[1]

        return f

    run = wrt.Model(build, weights(4, 6, 5), X).trace()
    J = d(run.output)[1::2] / d(run["hidden"])[[0, 3]]
    assert np.allclose(J.dask(chunks=1).compute(scheduler="synchronous"), weights(4, 6, 5)[1].T[1::2][:, [0, 3]])


def test_an_object_that_is_alive_is_refused() -> None:
    with pytest.raises(CannotTravel) as error:
        wrt.Model(torch.nn.Linear(2, 2), None, torch.ones(2))
    assert words(error) == [
        "wrt.Model of a Linear",
        "  a model travels as the function that builds it, never as an object that is alive here",
        "  write wrt.Model(build, model.state_dict(), x) with def build(state): ...; return model",
    ]


def test_an_import_path_is_looked_at_at_once() -> None:
    assert wrt.Model("tests.beyond._models:mlp", weights(4, 5), X).trace().output.shape == (5,)
    with pytest.raises(CannotTravel, match="is not an import path"):
        wrt.Model("tests.beyond._models.mlp", weights(4, 5), X)
    with pytest.raises(CannotTravel, match="is not found"):
        wrt.Model("tests.beyond._models:nothing", weights(4, 5), X)


def test_a_builder_that_builds_nothing_is_told() -> None:
    with pytest.raises(NotATensor, match="the builder returned a Tensor"):
        wrt.Model(lambda: torch.ones(2), None, torch.ones(2)).trace()


def filled():
    def f(x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(3, dtype=torch.float64)
        h[0] = x[0]
        h[1] = h[0] * 2
        h[2] = h[0] * h[1]
        return h

    return f


def test_a_tensor_filled_in_place_travels_under_its_name() -> None:
    run = wrt.Model(filled, None, X).trace()
    J = d(run["h"]) / d(run["h"])
    source = pickle.loads(pickle.dumps(source_of(J)))
    a = float(X[0])
    expected = np.array([[1, 0, 0], [2, 1, 0], [4 * a, a, 1]])
    assert np.allclose(source.block((slice(0, 3), slice(0, 3))), expected)
    assert np.allclose(J[1:, ::2].dask(chunks=(1, 1)).compute(scheduler="synchronous"), expected[1:, ::2])


def test_a_tensor_filled_in_place_without_a_name_is_refused_in_words() -> None:
    run = wrt.Model(filled, None, X).trace()
    (side,) = (d(run["h"]) / d(run["h"]))._sides
    for part in side.parts:
        part.value.name = ""
    with pytest.raises(CannotTravel) as error:
        Derivative(run["h"]._value, Elements.all((3,)), (side,)).dask()
    assert words(error) == [
        "this question is about a tensor that was filled in place",
        "  its elements were written at 3 moments of the run, which have no address",
        "  ask for one of them with .at(k), or take J.value here",
    ]


def test_a_view_that_was_filled_in_place_travels_whole_and_in_part_is_refused_in_words() -> None:
    run = wrt.Model(lambda: lambda x: into(x.new_zeros(2, 3), x), None, X).trace()
    J = d(run.output) / d(run["rows"])
    assert np.allclose(J.dask(chunks=(1, -1)).compute(scheduler="synchronous"), J.numpy())
    with pytest.raises(CannotTravel) as error:
        J[:, :2].dask()
    assert words(error)[0] == "a tensor of this question has no name in its run"


def into(whole: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = whole[1]
    rows[0] = x[0]
    rows[1] = rows[0] * x[0]
    rows[2] = x[1]
    return rows * 2


def test_it_says_what_it_is() -> None:
    assert repr(model(4, 6, 5)) == "Model  built by mlp, a state of 2 tensors, 1 inputs"
    assert model(4, 6, 5).nbytes == 8 * (4 * 6 + 6 * 5 + 4)
