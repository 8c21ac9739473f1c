"""What a recording of a pull reads, and when it may be replayed; without a GPU, where to replay is to run the rules again."""

import pytest
import torch
import torch.nn.functional as F

from tests.torch.test_rules import MORE, as_in_a_new_process, rows_of
from tests.torch.test_trusted import EXAMPLES, SQUARE
from wrt._backends.torch import replay
from wrt._backends.torch.backend import BACKEND
from wrt._backends.torch.nodes import NoRule
from wrt._backends.torch.replay import MISSES, OFTEN, WITH_A_WORKSPACE, Notes, Recording, Replay, standing_in
from wrt._backends.torch.rules.products import PRODUCTS
from wrt._backends.torch.rules.question import program_of

__all__ = ["as_in_a_new_process"]  # a fixture for all of these, too
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_on_a_device(monkeypatch):
    """A device that is told once what to do, and then does it wherever the numbers lie."""

    def captured(run, device):
        out = run().clone()
        return (lambda: out.copy_(run())), out

    monkeypatch.setattr(replay, "captured", captured)
    monkeypatch.setattr(replay, "_stream", lambda device: None)
    monkeypatch.setattr(replay, "may_be_recorded", lambda program, seeds: True)


def numbers(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def asked(f, x):
    """A question as the backend gets it."""
    x = x.clone().requires_grad_()
    y = f(x)
    return y, x, BACKEND.lift(y), [BACKEND.lift(x)]


def stencil(u, shift=1, factor=2.0):
    inner = 0.1 * (u[2:] - factor * u[1:-1] + u[:-2]) - u[1:-1] * (u[2:] - u[:-2])
    return torch.cat([u[:1], inner, u[-1:]]) + u.roll(shift).tanh() * u


NEVER = ("IndexBackward0", "index of two axes", "index of the second axis", *PRODUCTS)
RECORDED = {name: f for name, f in (EXAMPLES | MORE).items() if name not in NEVER}


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recording_answers_with_the_numbers_of_the_next_run(name):
    shape = (4, 4) if name in SQUARE else (5, 4)
    for _ in range(2):  # views are looked through once their kinds have been met
        _, _, Y, X = asked(RECORDED[name], numbers(*shape).abs() + 0.3)
        program = program_of(Y, X)
        if program is None or any(step[0] in WITH_A_WORKSPACE for step in program.steps):
            pytest.skip("never recorded")
    seeds = numbers(3, *Y.shape, seed=7)
    recording = Recording(program, seeds)
    y, x, Y, X = asked(RECORDED[name], numbers(*shape, seed=1).abs() + 0.3)
    program = program_of(Y, X)
    found = recording.replayed(program, seeds)
    assert torch.equal(found.reshape(3, *x.shape), program.pull(seeds)[0])
    (expected,) = rows_of(y, [x], seeds)
    torch.testing.assert_close(found.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


def test_lists_of_tensors_are_not_recorded():
    _, _, Y, X = asked(MORE["index of two axes"], numbers(5, 4))
    with pytest.raises(NoRule, match="cannot be part of a recording"):
        Recording(program_of(Y, X), numbers(3, *Y.shape))


OTHERS = {
    "another shift": lambda u: stencil(u, shift=2),
    "another operation": lambda u: stencil(u).sin(),
    "other parts": lambda u: torch.cat([u[:2], stencil(u)[2:]]),
    "one more term": lambda u: stencil(u) + u,
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_graph_is_not_answered(name):
    _, _, Y, X = asked(stencil, numbers(40))
    seeds = numbers(3, 40, seed=7)
    recording = Recording(program_of(Y, X), seeds)
    _, _, Y, X = asked(OTHERS[name], numbers(40))
    assert recording.replayed(program_of(Y, X), seeds) is None


def test_lengths_of_pieces_beside_x_are_compared():
    """A constant that is joined to x needs no rule, but where x begins depends on it."""
    w = numbers(9).requires_grad_()
    _, _, Y, X = asked(lambda u: torch.cat([w[:4].sin(), u.sin(), w[4:].sin()]), numbers(6))
    seeds = numbers(3, 15, seed=7)
    recording = Recording(program_of(Y, X), seeds)
    _, _, Y, X = asked(lambda u: torch.cat([w[:5].sin(), u.sin(), w[5:].sin()]), numbers(6))
    assert recording.replayed(program_of(Y, X), seeds) is None


def test_a_factor_is_that_of_the_run():
    seeds = numbers(3, 40, seed=7)
    _, _, Y, X = asked(stencil, numbers(40))
    recording = Recording(program_of(Y, X), seeds)
    y, x, Y, X = asked(lambda u: stencil(u, factor=3.0), numbers(40, seed=1))
    found = recording.replayed(program_of(Y, X), seeds)
    if found is not None:  # on a CPU it is a tensor like any other
        torch.testing.assert_close(found, rows_of(y, [x], seeds)[0], rtol=1e-12, atol=1e-13)
    node = y.grad_fn.next_functions[0][0]
    assert replay._plain(torch.tensor(3.0)) == (torch.float32, 3.0) != replay._plain(torch.tensor(2.0))
    assert replay.setting(node, "_saved_dim") == node._saved_dim


def test_a_parameter_is_that_of_the_run():
    """Whatever an optimizer has done to it since."""
    nu, seeds = torch.nn.Parameter(numbers(40, seed=3)), numbers(3, 40, seed=7)
    _, _, Y, X = asked(lambda u: stencil(u) * nu, numbers(40))
    recording = Recording(program_of(Y, X), seeds)
    with torch.no_grad():
        nu.mul_(2.0)
    y, x, Y, X = asked(lambda u: stencil(u) * nu, numbers(40, seed=1))
    found = recording.replayed(program_of(Y, X), seeds)
    torch.testing.assert_close(found, rows_of(y, [x], seeds)[0], rtol=1e-12, atol=1e-13)


def test_seeds_that_somebody_wrote_to_are_not_those_of_the_recording():
    _, _, Y, X = asked(stencil, numbers(40))
    seeds, program = numbers(3, 40, seed=7), program_of(Y, X)
    recording = Recording(program, seeds)
    assert recording.replayed(program, seeds) is not None
    assert recording.replayed(program, seeds.clone()) is None
    seeds[0, 0] = 5.0
    assert recording.replayed(program, seeds) is None


def pulled(again, seeds, seed, f=stencil):
    """What a plan gets, and the rows of a loop."""
    y, x, Y, X = asked(f, numbers(40, seed=seed))
    return again.pull(Y, X, seeds), rows_of(y, [x], seeds)[0]


def test_it_is_recorded_once_it_was_asked_for_often_and_seen_to_be_right_once():
    again, seeds = Replay(), numbers(3, 40, seed=7)
    for k in range(OFTEN + 6):
        found, expected = pulled(again, seeds, k)
        assert (found is None) == (k <= OFTEN)  # the time it is recorded the rules answer as before
        assert (again.recording is None) == (k < OFTEN)
        if found is not None:
            assert again.recording.shown
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    assert str(again).startswith("rules, replayed; 0.0 MiB")


def test_a_copy_that_is_not_written_over_is_found_out(monkeypatch):
    again, seeds = Replay(), numbers(3, 40, seed=7)
    real = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda copies, fresh: real(copies[1:], fresh[1:]))
    for _ in range(OFTEN + 4):
        assert pulled(again, seeds, 0)[0] is None  # even with the same numbers every time
    assert again.recording is None


def test_a_rule_that_remembers_is_found_out(monkeypatch):
    """What is read past the nodes is not in the notes."""
    again, seeds, first = Replay(), numbers(3, 40, seed=7), []

    def remembers(run, device):
        first.append(run().clone())
        return (lambda: None), first[0]

    monkeypatch.setattr(replay, "captured", remembers)
    for k in range(OFTEN + 4):
        assert pulled(again, seeds, k)[0] is None
    assert first
    assert again.recording is None


def test_it_is_given_up_where_runs_differ_every_time():
    again, seeds = Replay(), numbers(3, 40, seed=7)
    for k in range(OFTEN + 2):
        pulled(again, seeds, k)
    for k in range(MISSES):
        assert again.recording is not None
        assert pulled(again, seeds, 0, lambda u, k=k: stencil(u, shift=k + 2))[0] is None
    assert again.recording is None
    assert pulled(again, seeds, 0)[0] is None


def test_now_and_then_another_run_is_no_reason_to_give_up():
    again, seeds = Replay(), numbers(3, 40, seed=7)
    for k in range(OFTEN + 2):
        pulled(again, seeds, k)
    for k in range(2 * MISSES):
        assert pulled(again, seeds, 0, lambda u: stencil(u, shift=5))[0] is None
        assert pulled(again, seeds, k)[0] is not None


def test_what_was_changed_in_place_is_left_to_the_engine():
    again, seeds = Replay(), numbers(3, 40, seed=7)
    for k in range(OFTEN + 2):
        pulled(again, seeds, k)
    _, x, Y, X = asked(stencil, numbers(40))
    with torch.no_grad():
        x.add_(1.0)  # torch refuses to read what was saved of it
    assert again.pull(Y, X, seeds) is None


def test_the_shape_of_what_a_node_gave_is_compared():
    """Of a view, whose numbers a rule takes in another shape."""
    _, _, Y, X = asked(lambda u: u.view(4, 10).sin().sum(0).view(2, 5) * 2, numbers(40))
    node = next(step[1] for step in program_of(Y, X).steps)
    assert replay.setting(node, "_input_metadata") == [((2, 5), torch.float64)]


def test_stand_ins_cannot_be_called():
    """A node's own backward would read what that run saved, wherever it was."""
    _, _, Y, X = asked(lambda u: F.relu(u).sigmoid(), numbers(40))
    notes = Notes(CPU)
    still = standing_in(program_of(Y, X), notes)
    assert not any(callable(step[1]) for step in still.steps)
    still.pull(numbers(3, 40))
    assert [name for _, name in notes.tensors] == ["_saved_result"] * 2
