"""Asking and recording leave every function of torch where it was, seen in a process that has never asked before."""

import subprocess
import sys
import weakref

import pytest
import torch

from tests.torch._rows import agree
from wrt import d

PROGRAM = """
import concurrent.futures
import threading

import torch
import torch.optim
import torch.utils.checkpoint

PLACES = [
    torch, torch.Tensor, torch.Tensor.__mro__[1], torch.autograd, torch.autograd.graph, torch.autograd.graph.Node,
    torch.autograd.graph.saved_tensors_hooks, torch.autograd.Function, *torch.autograd.Function.__mro__, torch.nn.Module,
    torch.nn.Parameter, torch.nn.modules.module, torch.optim.Optimizer, torch.utils.checkpoint,
    torch.utils.hooks.RemovableHandle, torch.jit.ScriptFunction, torch.overrides, torch.nn.functional, threading.Thread,
    concurrent.futures.ThreadPoolExecutor,
]


def functions():
    return {
        (str(place), name): found for place in PLACES for name, found in vars(place).items()
        if callable(found) or isinstance(found, (staticmethod, classmethod, property))
    }


def same(step):
    after = functions()
    wrong = [where for where, found in before.items() if after.get(where) is not found]
    wrong += [where for where in after if where not in before and where[0].startswith("<class")]
    assert not wrong, (step, wrong)


# Torch itself replaces `torch.manual_seed` when its first checkpoint imports its compiler.
torch.utils.checkpoint.checkpoint(torch.sin, torch.ones(2, requires_grad=True), use_reentrant=False)
before = functions()

import wrt

same("import")
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
x = torch.randn(3, requires_grad=True)
y = model(x)
(wrt.d(y)[0] / wrt.d(x)[1]).value
same("d")
(wrt.d(y) / wrt.d(x)).value, str((wrt.d(y) / wrt.d(x)).explain())
(wrt.d(y)[0] / wrt.d(x) / wrt.d(x)).value
same("more of d")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with wrt.record() as t:
    z = torch.randn(3)
    h = torch.utils.checkpoint.checkpoint(model, z, use_reentrant=False)
    h.retain_grad()
    h.register_hook(lambda gradient: None)
    loss = (h**2).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
same("record")
(wrt.d(loss) / wrt.d(z)).value
same("d of a recording")
w = torch.randn(3, requires_grad=True)
with wrt.record():
    v = (w.detach() * 2).sum()
str(wrt.why(v, w))
same("why")
wrt.trace(model, z)
same("trace")
try:
    with wrt.record():
        raise ZeroDivisionError
except ZeroDivisionError:
    same("a recording that raised")
print("nothing stays")
"""


def test_no_function_of_torch_stays_replaced() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.strip() == "nothing stays", done.stderr


HOOKED_ONCE = """
import torch
layer = torch.nn.Conv2d(1, 1, 3, padding=1)
{hook}
import wrt
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5)).double()
x = torch.randn(6, dtype=torch.float64, requires_grad=True)
y = model(x)
J = wrt.d(y) / wrt.d(x)
print(J.value.tolist())
print("\\n".join(line for line in str(J.explain()).splitlines() if "hook" in line or "note" in line))
"""


def test_a_forward_hook_set_and_removed_before_the_first_question_changes_nothing() -> None:
    hook = "layer.register_forward_hook(lambda *given: None).remove()"
    plain, hooked = (
        subprocess.run([sys.executable, "-c", HOOKED_ONCE.format(hook=line)], capture_output=True, text=True, check=True).stdout
        for line in ("", hook)
    )
    assert plain == hooked
    assert "hook" not in plain


class Cam:
    """Keeps an activation with its gradient, as tools for saliency maps do."""

    def __init__(self) -> None:
        self.layers: dict[str, list[torch.Tensor]] = {"last": []}


@pytest.mark.parametrize("keep", ["object", "module", "container"])
def test_retained_gradients_are_found_where_programs_keep_them(keep: str) -> None:
    x = torch.linspace(0.5, 2.0, 3, dtype=torch.float64).requires_grad_()
    cam, model, nested = Cam(), torch.nn.Sequential(torch.nn.Tanh()), [({},)]
    model[0].kept = None
    h = x * 2
    h.retain_grad()
    y = torch.sin(h)
    y.sum().backward(retain_graph=True)
    before = h.grad
    {"object": cam.layers["last"].append, "module": lambda t: setattr(model[0], "kept", t),
     "container": lambda t: nested[0][0].update(h=t)}[keep](h)
    del h
    agree((d(y) / d(x)).value, torch.diag(2 * torch.cos(2 * x)).detach())
    (d(y)[0] / d(x)).value
    (h,) = [*cam.layers["last"], *([] if model[0].kept is None else [model[0].kept]), *nested[0][0].values()]
    assert h.grad is before


def test_hooks_on_nodes_are_told_where_they_lie_on_the_path_and_nowhere_else() -> None:
    x = torch.ones(3, requires_grad=True)
    elsewhere = (3 * x).sum()
    elsewhere.grad_fn.register_hook(lambda into, out: None)
    h = x * 2
    y = h.sum()
    assert "hook" not in str((d(y) / d(x)).explain())
    handle = h.grad_fn.register_prehook(lambda out: (10 * out[0],))
    J = d(y) / d(x)
    assert J.value.tolist() == [20.0] * 3
    assert "a hook of yours acts on nodes of the graph: the answer is the gradient you train with" in str(J.explain())
    handle.remove()
    assert "hook" not in str((d(y) / d(x)).explain())


def test_looking_for_retained_gradients_keeps_nothing_alive_and_leaves_locals_alone() -> None:
    x = torch.ones(3, requires_grad=True)
    h = x * 2
    y = h.sum()
    held = weakref.ref(h)
    mine = locals()
    (d(y) / d(x)).value
    assert mine["h"] is h
    del mine, h
    (d(y) / d(x)).value
    assert held() is None


HIDDEN: list[dict[str, torch.Tensor]] = []


def test_a_retained_gradient_that_is_not_found_stops_no_question() -> None:
    x = torch.linspace(0.5, 2.0, 3, dtype=torch.float64).requires_grad_()
    h = x * 2
    h.retain_grad()
    y = torch.sin(h)
    HIDDEN.append({"h": h})
    del h
    for _ in range(2):
        agree((d(y) / d(x)).value, torch.diag(2 * torch.cos(2 * x)).detach())
    assert HIDDEN.pop()["h"].grad is None
