"""A graph on disk: read with suspicion, written without a folder of the machine in it."""

import copy
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import wrt
from wrt.errors import WrtError

SECRET = "the words of somebody else"


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("def f(x):\n    h = x * 2\n    return h.detach() + 1\n")
    scope: dict[str, Any] = {}
    exec(compile((tmp_path / "train.py").read_text(), str(tmp_path / "train.py"), "exec"), scope)
    t = wrt.trace(scope["f"], torch.ones(2))
    t.save("run.json")
    return dict(json.loads((tmp_path / "run.json").read_text()))


def load(data: Any) -> Any:
    Path("forged.json").write_text(data if isinstance(data, str) else json.dumps(data))
    return wrt.load_graph("forged.json")


def test_a_graph_names_no_folder_of_the_machine(saved: dict[str, Any], tmp_path: Path) -> None:
    assert str(tmp_path) not in json.dumps(saved)
    back = wrt.load_graph("run.json")
    assert json.loads(json.dumps(back.to_dict())) == saved
    assert [node.where.text for node in back if node.gradient == "cut"] == ["return h.detach() + 1"]
    assert str(back.nodes[0].where) == "train.py:2"


def test_a_file_of_code_elsewhere_is_known_by_its_name_alone(saved: dict[str, Any], tmp_path: Path) -> None:
    t = wrt.trace(lambda x: x * 2, torch.ones(2))
    t.save("here.json")
    assert str(Path(__file__).parent) not in Path("here.json").read_text()
    assert "test_graph_file.py" in Path("here.json").read_text()


@pytest.mark.parametrize("file", ["{outside}", "../{name}", "link.py", "fifo.py", "/dev/zero", "sub/../../{name}"])
def test_only_files_below_this_folder_are_read(saved: dict[str, Any], tmp_path: Path, file: str) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-secret.py"
    outside.write_text(f"{SECRET}\n" * 5)
    Path("link.py").symlink_to(outside)
    os.mkfifo("fifo.py")
    Path("sub").mkdir()
    for node in saved["nodes"]:
        node["where"]["file"] = file.format(outside=outside, name=outside.name)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(str(node.where.text) for node in load(saved)), daemon=True)
    reader.start()
    reader.join(timeout=10)
    assert not reader.is_alive()
    assert SECRET not in "".join(said)


@pytest.mark.parametrize("place", ["fifo", "/dev/zero", ".", "nowhere.json"])
def test_only_a_regular_file_is_a_graph(saved: dict[str, Any], place: str) -> None:
    os.mkfifo("fifo")
    told: list[BaseException] = []

    def read() -> None:
        try:
            wrt.load_graph(place)
        except BaseException as error:
            told.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(timeout=10)
    assert not reader.is_alive()
    assert isinstance(told[0], WrtError)
    assert len(str(told[0]).splitlines()) == 3


MALFORMED: dict[str, Any] = {
    "no JSON": "{",
    "bytes": "\x00\x01",
    "nested deep": "[" * 100_000,
    "a list": [],
    "another format": {"format": "something"},
    "a later version": lambda one: one | {"version": 99},
    "no nodes": lambda one: {key: value for key, value in one.items() if key != "nodes"},
    "nodes are a number": lambda one: one | {"nodes": 5},
    "a node is a number": lambda one: one | {"nodes": [5]},
    "a node with another field": lambda one: one | {"nodes": [one["nodes"][0] | {"more": 1}]},
    "a node without a field": lambda one: one | {"nodes": [{"id": 0}]},
    "a shape is a word": lambda one: one | {"tensors": [one["tensors"][0] | {"shape": "abc"}]},
    "a shape is negative": lambda one: one | {"tensors": [one["tensors"][0] | {"shape": [-1]}]},
    "a tensor of a node that is not there": lambda one: one | {"tensors": [one["tensors"][0] | {"node": 999}]},
    "an input that is not there": lambda one: one | {"inputs": [999_999]},
    "an operation on what is not there": lambda one: one | {"nodes": [one["nodes"][0] | {"inputs": [999_999]}]},
    "a place without a line": lambda one: one | {"nodes": [one["nodes"][0] | {"where": {"file": "a"}}]},
    "a line that is a word": lambda one: one | {"nodes": [one["nodes"][0] | {"where": one["nodes"][0]["where"] | {"line": "1"}}]},
    "a framework that is a list": lambda one: one | {"framework": []},
    "a gradient that is a word of its own": lambda one: one | {"nodes": [one["nodes"][0] | {"gradient": "maybe"}]},
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_no_graph_is_refused_in_three_lines(saved: dict[str, Any], what: str) -> None:
    change = MALFORMED[what]
    with pytest.raises(WrtError) as caught:
        load(change(copy.deepcopy(saved)) if callable(change) else change)
    assert len(str(caught.value).splitlines()) == 3


def test_a_graph_is_not_written_over_what_is_none(saved: dict[str, Any]) -> None:
    t = wrt.trace(lambda x: x * 2, torch.ones(2))
    before = Path("train.py").read_bytes()
    with pytest.raises(WrtError, match="wrt did not write"):
        t.save("train.py")
    assert Path("train.py").read_bytes() == before
    t.save("run.json")  # its own, again
