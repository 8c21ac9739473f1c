"""`%%why` as a notebook runs it: in IPython's own shell, and in a kernel of its own process."""

from __future__ import annotations

import importlib.util
import os
import queue
import sys
import textwrap

import pytest

needs_ipython = pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
needs_kernel = pytest.mark.skipif(importlib.util.find_spec("ipykernel") is None, reason="ipykernel is not installed")

SICK = """\
%%why
import torch
x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([0.5, 0.5], requires_grad=True)
h = (x * 2).detach()
y = (h * w).sum()
"""


@pytest.fixture
def shell(capsys):
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    before = sys.displayhook, sys.excepthook, dict(sys.modules)
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}), colors="nocolor")
    shell.run_cell("%load_ext wrt").raise_error()
    yield shell
    InteractiveShell.clear_instance()
    sys.displayhook, sys.excepthook = before[:2]
    if "__main__" in before[2]:
        sys.modules["__main__"] = before[2]["__main__"]  # the shell puts a module of its own there


@needs_ipython
def test_a_cell_is_run_recorded_and_examined(shell, capsys):
    shell.run_cell(SICK).raise_error()
    said = capsys.readouterr().out
    assert "detach cuts the path from x to y  [detach]" in said
    assert "h = (x * 2).detach()" in said, "the line of the cell is shown"
    assert ":4: " in said.splitlines()[2], "counted from the line below %%why"
    assert shell.user_ns["y"].item() == pytest.approx(3.0), "the names of the cell stay"


@needs_ipython
def test_one_pair_of_names(shell, capsys):
    shell.run_cell(SICK.replace("%%why", "%%why y, w")).raise_error()
    assert "why d(y) / d(w): nothing wrong found" in capsys.readouterr().out


@needs_ipython
def test_a_cell_that_raises_is_explained(shell, capsys):
    shell.run_cell("%%why\nimport torch\nx = torch.ones(3, requires_grad=True)\n(x * 2).backward()")
    said = capsys.readouterr().out
    assert "[nonscalar_backward]" in said
    assert "(x * 2).backward()" in said


@needs_ipython
def test_a_healthy_cell(shell, capsys):
    shell.run_cell("%%why\nimport torch\nx = torch.ones(3, requires_grad=True)\ny = (x**2).sum()").raise_error()
    assert "nothing wrong found" in capsys.readouterr().out
    assert sys.gettrace() is None


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """A kernel in a process of its own. Not within a test: its client may start a thread that stays."""
    from jupyter_client import KernelManager
    from jupyter_client.kernelspec import KernelSpec

    manager = KernelManager(ip="127.0.0.1")
    manager._kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], display_name="wrt", language="python"
    )
    settings = str(tmp_path_factory.mktemp("ipython"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "IPYTHONDIR": settings}
    manager.start_kernel(env=environment)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@needs_kernel
def test_a_kernel_of_its_own(kernel):
    assert _said(kernel, "%load_ext wrt") == ""
    said = _said(kernel, SICK)
    assert "detach cuts the path from x to y  [detach]" in said
    assert textwrap.dedent("h = (x * 2).detach()") in said
    assert "cell:4" in said, "a cell is called a cell, not a file in a temporary folder"


def _said(client, code):
    """What the cell printed."""
    request = client.execute(code)
    printed = []
    while True:
        try:
            message = client.get_iopub_msg(timeout=120)
        except queue.Empty:
            raise AssertionError("the kernel does not answer") from None
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream" and content["name"] == "stdout":
            printed.append(content["text"])
        elif kind == "error":
            raise AssertionError("\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return "".join(printed)
