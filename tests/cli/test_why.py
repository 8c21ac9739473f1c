"""`wrt why`: a script is run, watched and examined; the exit status tells a machine."""

from __future__ import annotations

import json
import textwrap

import pytest
from typer.testing import CliRunner

from wrt._cli.app import app

pytest.importorskip("torch")

CUT = """
    import torch
    x = torch.ones(3, requires_grad=True)
    w = torch.ones(3, requires_grad=True)
    h = (x * 2).detach()
    loss = (h * w).sum()
"""
HEALTHY = """
    import torch
    net = torch.nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        opt.zero_grad()
        loss = net(torch.rand(4, 3)).pow(2).mean()
        loss.backward()
        opt.step()
"""
DIES = """
    import torch
    x = torch.ones(3, requires_grad=True)
    x += 1
"""


def run(tmp_path, source, *words):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(source))
    return CliRunner().invoke(app, ["why", str(script), *words])


def test_a_question_is_answered_with_the_line(tmp_path):
    result = run(tmp_path, CUT, "loss / x")
    assert result.exit_code == 1
    assert "train.py:5: detach cuts the path from x to loss  [detach]" in result.output
    assert "    5 | h = (x * 2).detach()" in result.output


def test_without_a_question_everything_is_looked_at(tmp_path):
    result = run(tmp_path, CUT)
    assert result.exit_code == 1
    assert "[detach]" in result.output


def test_a_healthy_script_ends_with_zero(tmp_path):
    result = run(tmp_path, HEALTHY)
    assert result.exit_code == 0, result.output
    assert "nothing wrong found" in result.output


def test_an_exception_is_explained(tmp_path):
    result = run(tmp_path, DIES)
    assert result.exit_code == 1
    assert "train.py:4" in result.output
    assert "[view_inplace]" in result.output


def test_json_is_for_programs(tmp_path):
    told = json.loads(run(tmp_path, CUT, "loss / x", "--json").stdout)
    assert [(f["cause"], f["line"], f["certain"]) for f in told["findings"]] == [("detach", 5, True)]


def test_a_question_nobody_can_read_ends_with_two(tmp_path):
    assert run(tmp_path, CUT, "loss / / x").exit_code == 2


def test_a_cause_is_explained():
    result = CliRunner().invoke(app, ["explain-cause", "detach"])
    assert result.exit_code == 0
    assert result.output.startswith("detach: .detach() cuts the path")
    assert CliRunner().invoke(app, ["explain-cause", "detch"]).exit_code == 2
