"""Ctrl-C while a recording begins, lasts or ends: torch is as it was, and the next recording is right."""

from __future__ import annotations

import gc
import signal
import sys

import pytest
import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import wrt
from wrt import d
from wrt._backends.torch.recording import patching
from wrt._backends.torch.recording.record import recording
from wrt._backends.torch.recording.recorder import Recorder

PLACES = [
    (torch.nn.Parameter, "__new__"),
    (torch.Tensor, "set_"),
    (torch.autograd, "_engine_run_backward"),
    (torch.optim.Optimizer, "__init__"),
    (torch.optim.Optimizer, "zero_grad"),
]


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def torch_is_as_it_was():
    before = [(vars(owner).get(name)) for owner, name in PLACES]
    yield
    gc.collect()
    assert [vars(owner).get(name) for owner, name in PLACES] == before
    assert sys.gettrace() is None
    assert _get_current_function_mode_stack() == []
    x = torch.tensor([1.0, 2.0])
    with wrt.record():
        y = x**3
    assert (d(y) / d(x)).value.tolist() == [[3.0, 0.0], [0.0, 12.0]]


def interrupted_run() -> None:
    with pytest.raises(KeyboardInterrupt), wrt.record():
        _ = torch.ones(2) * 2


@pytest.mark.parametrize("patch", [interrupt, lambda: patching._UNDO.append(interrupt)], ids=["replaced", "put back"])
def test_while_functions_are(patch, monkeypatch):
    for place in (0, len(patching.PATCHES) // 2, len(patching.PATCHES)):
        with monkeypatch.context() as changed:
            changed.setattr(patching, "PATCHES", [*patching.PATCHES[:place], patch, *patching.PATCHES[place:]])
            interrupted_run()


def test_in_the_middle_of_an_operation(monkeypatch):
    perform = Recorder.perform

    def stopped(self, *args, **kwargs):
        interrupt()
        return perform(self, *args, **kwargs)

    monkeypatch.setattr(Recorder, "perform", stopped)
    interrupted_run()
    monkeypatch.undo()


def test_before_the_first_line_of_the_end():
    (backend,) = (backend for backend in wrt._backends.loaded() if backend.name == "torch")
    recording(backend).__enter__()  # nobody holds the context: whoever would have ended it was stopped
    assert _get_current_function_mode_stack() == []


def test_a_listener_that_an_interrupted_call_took_away_is_not_missed():
    with wrt.record():
        torch._C._pop_torch_function_stack()


def test_modes_above_the_listener_stay():
    class Mine(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    mine = Mine()
    with wrt.record():
        torch._C._push_on_torch_function_stack(mine)
    assert _get_current_function_mode_stack() == [mine]
    torch._C._pop_torch_function_stack()
