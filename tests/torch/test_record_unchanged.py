"""A recording changes nothing: results, random numbers, statistics, gradients, hooks, modes; nor when code raises."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import wrt
from tests._snapshot import unchanged
from wrt import d


def training_step(model, x, optimizer):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


def fresh(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 5)
    )
    return model, torch.randn(2, 3, 8, 8), torch.optim.Adam(model.parameters(), lr=0.01)


def test_recorded_training_step_equals_the_plain_one_bit_for_bit():
    model, x, optimizer = fresh()
    for _ in range(3):
        plain = training_step(model, x, optimizer)
    recorded_model, recorded_x, recorded_optimizer = fresh()
    for _ in range(3):
        with wrt.record():
            recorded = training_step(recorded_model, recorded_x, recorded_optimizer)
    assert torch.equal(plain, recorded)
    for (name, a), (_, b) in zip(model.state_dict().items(), recorded_model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    for a, b in zip(model.parameters(), recorded_model.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
        assert a._version == b._version
    assert x._version == recorded_x._version == 0


def test_random_numbers_of_the_run_are_those_of_the_plain_run():
    model, x, _ = fresh()
    torch.manual_seed(7)
    plain = [model(x), torch.rand(3)]
    model, x, _ = fresh()
    torch.manual_seed(7)
    with wrt.record():
        recorded = [model(x), torch.rand(3)]
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_stays_behind_when_the_code_raises(error):
    model = nn.Linear(3, 2)
    x = torch.randn(3)

    def stumble():
        h = model(x)
        h += 1
        raise error("in the middle")

    with unchanged(model, x), pytest.raises(error):
        with wrt.record():
            stumble()
    with unchanged(model, x), pytest.raises(error):
        wrt.trace(stumble)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_trace_function_of_a_debugger_is_restored(error):
    seen = []

    def debugger(frame, event, arg):
        seen.append(event)
        return debugger

    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        with pytest.raises(error):
            with wrt.record():
                y = torch.ones(2) * 2
                raise error
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)
    assert "line" in seen
    assert y.tolist() == [2.0, 2.0]


def test_global_hooks_and_patches_are_gone_after_a_recording():
    from torch.nn.modules import module as torch_module

    apply = torch.autograd.Function.__dict__["apply"]
    before = [len(hooks) for hooks in (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)]
    with wrt.record():
        nn.Linear(2, 2)(torch.ones(2))
    after = [len(hooks) for hooks in (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)]
    assert before == after
    assert torch.autograd.Function.__dict__["apply"] is apply
    assert torch._C._len_torch_function_stack() == 0


def test_questions_about_a_recording_change_nothing():
    model, x, _ = fresh()
    model.eval()
    with wrt.record() as t:
        h = model[0](x)
        y = model[5](model[4](model[3](model[2](model[1](h)))))
        loss = y.sum()
    with unchanged(model, x, h=h, y=y):
        (d(loss) / d(x)).value
        (d(y)[0, 1] / d(t["h"])[0, 1]).value
        (d(loss) / d(model))["5.weight"].value
        t.names
        t.graph


def test_no_grad_and_inference_stay_what_they_are():
    x = torch.ones(3)
    with wrt.record():
        with torch.no_grad():
            a = x * 2
            assert not torch.is_grad_enabled()
        with torch.inference_mode():
            b = x * 3
        c = x * 4
    assert (a.requires_grad, b.is_inference(), c.requires_grad) == (False, True, False)
    with pytest.raises(wrt.errors.GradientCut, match="a = x \\* 2"):
        (d(a) / d(x)).value
    assert (d(c) / d(x)).value.diagonal().tolist() == [4.0, 4.0, 4.0]


def test_memory_of_a_recording_is_freed_with_it():
    import gc
    import weakref

    x = torch.randn(10, requires_grad=True)
    with wrt.record() as t:
        y = (x.exp() * 2).sum()
    gone = weakref.ref(t._one)
    del t, y
    gc.collect()
    assert gone() is None


def test_values_of_dead_tensors_are_not_kept_unless_asked_for():
    with wrt.record() as t:
        h = torch.ones(3) * 2
        del h
    with pytest.raises(wrt.errors.NotRecorded, match="values=True"):
        t["h"].value
    with wrt.record(values=True) as t:
        h = torch.ones(3) * 2
        del h
    assert t["h"].value.tolist() == [2.0, 2.0, 2.0]


def test_recordings_of_two_threads_may_end_in_any_order():
    import threading

    before = (torch.autograd.Function.__dict__["apply"], torch.nn.Parameter.__new__, torch.autograd._engine_run_backward)
    began, leave, found = threading.Event(), threading.Event(), []

    def elsewhere():
        with wrt.record() as t:
            began.set()
            leave.wait(10)
            h = torch.nn.Parameter(torch.ones(2)) * 2
        found.append((t["h"].shape, h.shape))

    with wrt.record() as t:
        other = threading.Thread(target=elsewhere)
        other.start()
        began.wait(10)
    leave.set()
    other.join(10)
    assert found == [((2,), (2,))]
    assert "h" not in t.names
    after = (torch.autograd.Function.__dict__["apply"], torch.nn.Parameter.__new__, torch.autograd._engine_run_backward)
    assert after == before
