"""The snapshot fixture can fail: one test per kind of change, and the changes it must let pass."""

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests._snapshot import Changed, chance, unchanged

EXAMPLE = torch.ones(3, requires_grad=True)
ROOT = Path(__file__).parents[1]


class Subject:
    """A leaf with a gradient, an intermediate, and a module with buffers: what a user has in hand."""

    def __init__(self) -> None:
        self.x = torch.arange(3.0, requires_grad=True)
        self.x.grad = torch.ones(3)
        self.h = self.x.exp()
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        self.array = np.arange(3.0)

    def unchanged(self) -> AbstractContextManager[None]:
        return unchanged(x=self.x, h=self.h, model=self.model, several={"array": [self.array]})


def set_item(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor[0] = 7.0


def behind_autograds_back(tensor: torch.Tensor) -> None:
    tensor.detach().numpy()[0] = 7.0  # leaves the version counter alone


def patch(module: torch.nn.Module) -> None:
    module.forward = lambda x: x  # type: ignore[method-assign]


CHANGES_OF_OBJECTS: dict[str, tuple[Callable[[Subject], object], str]] = {
    "grad set to None": (lambda s: setattr(s.x, "grad", None), r"x\.grad: was the Tensor"),
    "grad replaced by an equal one": (lambda s: setattr(s.x, "grad", torch.ones(3)), r"x\.grad: was the Tensor"),
    "grad accumulated in place": (lambda s: s.x.grad.add_(1), r"x\.grad\._version"),
    "grad born": (lambda s: s.model(torch.ones(2, 3)).sum().backward(), r"model\.0\.weight\.grad: was None"),
    "requires_grad": (lambda s: s.model[0].bias.requires_grad_(False), r"model\.0\.bias\.requires_grad: was True"),
    "retain_grad": (lambda s: s.h.retain_grad(), r"h\.retains_grad: was False"),
    "in-place write": (lambda s: set_item(s.x), r"x\._version: was 0, is 1"),
    "write unseen by autograd": (lambda s: behind_autograds_back(s.x), r"x values"),
    "history rebased": (lambda s: s.h.mul_(1.0), r"h\.grad_fn"),
    "detached in place": (lambda s: s.h.detach_(), r"h\.grad_fn"),
    "anomaly metadata": (lambda s: s.h.grad_fn.metadata.update(seen=True), r"h\.grad_fn\.metadata"),
    "attribute on a tensor": (lambda s: setattr(s.x, "_mark", 1), r"x attributes"),
    "tensor hook": (lambda s: s.h.register_hook(lambda g: g), r"h hooks"),
    "accumulation hook": (lambda s: s.x.register_post_accumulate_grad_hook(lambda g: None), r"x hooks"),
    "forward hook": (lambda s: s.model[0].register_forward_hook(lambda *a: None), r"model\.0\._forward_hooks"),
    "backward hook": (lambda s: s.model.register_full_backward_hook(lambda *a: None), r"model\._backward_hooks"),
    "eval": (lambda s: s.model.eval(), r"model\.training: was True, is False"),
    "eval of one layer": (lambda s: s.model[1].eval(), r"model\.1\.training"),
    "patched forward": (lambda s: patch(s.model[0]), r"model\.0 attributes"),
    "buffer updated": (lambda s: s.model(torch.ones(2, 3)), r"model\.1\.running_mean"),
    "parameter replaced": (lambda s: setattr(s.model[0], "weight", torch.nn.Parameter(torch.ones(3, 3))), r"0\.weight"),
    "layer replaced": (lambda s: s.model.__setitem__(0, torch.nn.Identity()), r"model\.0: was the Linear"),
    "array in a container": (lambda s: s.array.__setitem__(0, 7.0), r"several\['array'\]\[0\] values"),
}


@pytest.mark.parametrize("name", CHANGES_OF_OBJECTS)
def test_a_change_to_a_named_object_is_seen(name: str) -> None:
    change, words = CHANGES_OF_OBJECTS[name]
    subject = Subject()
    with pytest.raises(Changed, match=words), subject.unchanged():
        change(subject)


def test_a_nan_is_equal_to_itself() -> None:
    with unchanged(torch.tensor([float("nan"), 1.0]), np.array([np.nan])):
        pass


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(()),
        torch.ones(0, 3),
        torch.ones(2, 1).expand(2, 5),
        torch.ones(2, 3).T,
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2, dtype=torch.bool),
        torch.eye(2).to_sparse(),
        torch.ones(2, device="meta"),
    ],
    ids=lambda t: f"{t.dtype}-{tuple(t.shape)}-{t.layout}-{t.device}",
)
def test_every_sort_of_tensor_can_be_watched(tensor: torch.Tensor) -> None:
    with unchanged(tensor):
        pass


def test_an_inference_tensor_can_be_watched() -> None:
    with torch.inference_mode():
        x = torch.ones(3)
    with unchanged(x):
        pass


def test_looking_is_not_seen_by_an_active_mode() -> None:
    with SomeFunctionMode(), SomeDispatchMode():  # both raise when they are reached
        with unchanged(x=EXAMPLE, model=torch.nn.Module()):
            pass


def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot watch a object"), unchanged(object()):
        pass


CHANGES_OF_CHANCE: dict[str, tuple[Callable[[], object], str]] = {
    "python": (random.random, r"random\.getstate"),
    "numpy": (np.random.rand, r"numpy\.random\.get_state"),
    "torch": (lambda: torch.rand(1), r"torch\.get_rng_state"),
}


@pytest.mark.parametrize("name", CHANGES_OF_CHANCE)
def test_a_draw_from_a_shared_generator_is_seen(name: str) -> None:
    draw, words = CHANGES_OF_CHANCE[name]
    with pytest.raises(Changed, match=words), unchanged():
        draw()


def test_a_generator_put_back_is_unchanged() -> None:
    with unchanged():
        state = torch.get_rng_state()
        torch.rand(1)
        torch.set_rng_state(state)


def test_a_test_may_draw_numbers_outside_the_block() -> None:
    before = chance()
    torch.rand(1)
    assert chance() != before


class SomeFunctionMode(TorchFunctionMode):
    pass


class SomeDispatchMode(TorchDispatchMode):
    pass


def stay(thread_may_end: threading.Event) -> None:
    threading.Thread(target=thread_may_end.wait, daemon=True).start()
    restore.callback(thread_may_end.set)


def tracer(*_: object) -> None:
    return None


def swap(setter: Callable[..., object], new: object, old: object) -> None:
    restore.callback(setter, old)
    setter(new)


def enter(context: AbstractContextManager[object]) -> None:
    restore.enter_context(context)


restore = ExitStack()

CHANGES_OF_MODES: dict[str, tuple[Callable[[], object], str]] = {
    "grad mode": (lambda: swap(torch.set_grad_enabled, False, True), "torch: grad mode: was True, is False"),
    "inference mode": (lambda: enter(torch.inference_mode()), "torch: inference mode"),
    "anomaly mode": (lambda: swap(torch.autograd.set_detect_anomaly, True, False), "torch: anomaly mode"),
    "forward mode": (lambda: enter(torch.autograd.forward_ad.dual_level()), "torch: forward mode level"),
    "saved-tensor hooks": (
        lambda: enter(torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)),
        "torch: saved-tensor hooks",
    ),
    "saved-tensor hooks disabled": (
        lambda: enter(torch.autograd.graph.disable_saved_tensors_hooks("no")),
        "torch: saved-tensor hooks allowed",
    ),
    "global module hook": (
        lambda: restore.callback(torch.nn.modules.module.register_module_forward_hook(lambda *a: None).remove),
        "torch: global module hooks",
    ),
    "function mode": (lambda: enter(SomeFunctionMode()), "torch: function modes"),
    "dispatch mode": (lambda: enter(SomeDispatchMode()), "torch: dispatch modes"),
    "function overrides": (lambda: enter(torch._C.DisableTorchFunction()), "torch: function overrides"),
    "autocast": (lambda: enter(torch.autocast("cpu", dtype=torch.bfloat16)), "torch: autocast"),
    "default dtype": (
        lambda: swap(torch.set_default_dtype, torch.float64, torch.float32),
        "torch: default dtype: was torch.float32, is torch.float64",
    ),
    "default device": (lambda: swap(torch.set_default_device, "meta", None), "function modes: .*DeviceContext"),
    "deterministic": (lambda: swap(torch.use_deterministic_algorithms, True, False), "torch: deterministic"),
    "attention kernel": (
        lambda: enter(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)),
        "torch: attention kernels",
    ),
    "torch threads": (
        lambda: swap(torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()),
        "torch: number of threads",
    ),
    "numpy errors": (lambda: enter(np.errstate(all="raise")), "numpy: errors"),
    "print options": (lambda: enter(np.printoptions(precision=2)), "numpy: print options"),
    "trace function": (lambda: swap(sys.settrace, tracer, sys.gettrace()), r"sys\.gettrace"),
    "profile function": (lambda: swap(sys.setprofile, tracer, sys.getprofile()), r"sys\.getprofile"),
    "trace function of threads": (lambda: swap(threading.settrace, tracer, threading.gettrace()), r"threading\.gettr"),
    "a thread that stays": (lambda: stay(threading.Event()), "threads"),
    "interrupt handler": (
        lambda: restore.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, lambda *_: None)),
        "SIGINT handler",
    ),
    "warnings filter": (lambda: (enter(warnings.catch_warnings()), warnings.simplefilter("ignore")), "warnings filt"),
    "excepthook": (lambda: swap(lambda hook: setattr(sys, "excepthook", hook), tracer, sys.excepthook), "excepthook"),
    "recursion limit": (lambda: swap(sys.setrecursionlimit, 5000, sys.getrecursionlimit()), "recursion limit"),
    "garbage collection": (lambda: (gc.disable(), restore.callback(gc.enable)), "gc enabled"),
    "working directory": (lambda: swap(os.chdir, "/", os.getcwd()), "working directory"),
}


@pytest.mark.parametrize("name", CHANGES_OF_MODES)
def test_a_global_mode_left_changed_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, words = CHANGES_OF_MODES[name]
    monkeypatch.setattr("tests._snapshot.compare.GRACE", 0.01)
    with restore:
        with pytest.raises(Changed, match=words), unchanged():
            change()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_a_monitoring_tool_left_registered_is_seen() -> None:
    with pytest.raises(Changed, match="monitoring"), unchanged():
        sys.monitoring.use_tool_id(4, "left over")
    sys.monitoring.free_tool_id(4)


def test_a_mode_that_was_left_again_is_unchanged() -> None:
    with unchanged(), torch.no_grad(), SomeFunctionMode(), torch.autocast("cpu", dtype=torch.bfloat16):
        pass


def test_a_thread_that_is_about_to_end_is_waited_for() -> None:
    with unchanged():
        threading.Timer(0.05, lambda: None).start()


def test_a_filter_added_by_an_import_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings(), unchanged():
        monkeypatch.setitem(sys.modules, "a_module_imported_just_now", sys)
        warnings.filterwarnings("ignore", message="numpy.dtype size changed")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_passes_through_when_nothing_changed(error: type[BaseException]) -> None:
    with pytest.raises(error, match="in the middle"), unchanged(torch.ones(3)):
        raise error("in the middle")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_change_is_seen_when_an_exception_ends_the_block(error: type[BaseException]) -> None:
    x = torch.ones(3)
    with pytest.raises(Changed, match="_version") as caught, unchanged(x):
        x.add_(1)
        raise error("in the middle")
    assert isinstance(caught.value.__cause__, error)


class InterruptedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *grads: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt


def test_ctrl_c_in_the_middle_of_a_backward_pass() -> None:
    x = torch.ones(3, requires_grad=True)
    y = InterruptedBackward.apply(x)
    with pytest.raises(KeyboardInterrupt), unchanged(x, y):
        torch.autograd.grad(y.sum(), x)
    with pytest.raises(Changed, match=r"grad mode"), unchanged(x, y):
        torch.set_grad_enabled(False)
        try:
            torch.autograd.grad(y.sum(), x)
        finally:
            torch.set_grad_enabled(True)
            swap(torch.set_grad_enabled, False, True)
    restore.close()


SUITE = '''
import torch
from tests.conftest import *

def test_leaves_a_mode():
    torch.set_default_dtype(torch.float64)

def test_after_it():
    torch.set_default_dtype(torch.float32)

def test_watched(watched):
    x = torch.ones(3)
    watched(x)
    x.add_(1)

def test_watched_while_raising(watched):
    x = torch.ones(3)
    watched(x)
    x.add_(1)
    raise ValueError

def test_good(watched, unchanged):
    x = torch.rand(3)
    watched(x, several=[x, x])
    with unchanged(x):
        x + 1
'''


def test_the_fixtures_fail_a_suite_that_changes_things(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "test_suite.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    report = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    for line in (
        "ERROR test_suite.py::test_leaves_a_mode",
        "ERROR test_suite.py::test_after_it",
        "ERROR test_suite.py::test_watched - ",
        "ERROR test_suite.py::test_watched_while_raising",
        "FAILED test_suite.py::test_watched_while_raising",
        "PASSED test_suite.py::test_good",
    ):
        assert line in report, report
    assert "ERROR test_suite.py::test_good" not in report
