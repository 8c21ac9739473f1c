"""What the page is told equals what a program would compute, element by element."""

from typing import Any

import numpy as np
import pytest
import torch

import wrt
from tests.microscope.conftest import Net
from tests.microscope.numbers import decode
from wrt import d
from wrt._microscope.answer import Limits
from wrt._microscope.model import Microscope
from wrt._microscope.server import Cancelled, Job, Worker
from wrt.errors import NotATensor, TooLarge, UnknownName, WrongIndex, WrongQuery


@pytest.fixture(scope="module")
def glass(run: wrt.Trace) -> Microscope:
    return Microscope(run)


def side(name: str, index: Any = None) -> dict[str, Any]:
    return {"name": name, "index": index}


def asked(glass: Microscope, y: dict[str, Any], x: dict[str, Any], **more: Any) -> dict[str, Any]:
    return glass.ask("derivative", {"target": y, "source": x, **more})


def by_hand(net: Net, x: torch.Tensor) -> np.ndarray:
    """The whole Jacobian of the output by the input, a plain backward for each row."""
    x = x.clone().requires_grad_()
    y = net(x)
    rows = [torch.autograd.grad(one, x, retain_graph=True)[0] for one in y.reshape(-1)]
    return torch.stack(rows).reshape(*y.shape, *x.shape).numpy()


def source_of(glass: Microscope) -> str:
    return str(glass.ask("hello", {})["default"]["source"])


def test_the_page_opens_at_the_output_by_the_input(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    hello = glass.ask("hello", {})
    assert hello["default"]["target"] == "fc"
    assert glass.t[hello["default"]["source"]].shape == x.shape
    assert hello["default"]["index"] == [0, int(net(x).argmax())]
    assert hello["framework"] == "torch"
    assert set(hello["targets"]) >= {"fc", "conv1", "conv2"}


def test_a_row_is_the_row_of_a_plain_backward(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    whole = by_hand(net, x)
    for k in range(5):
        told = asked(glass, side("fc", [0, k]), side(source_of(glass)))
        assert (told["kind"], told["passes"], told["connected"]) == ("row", 1, True)
        np.testing.assert_array_equal(decode(told["data"]), whole[0, k])


def test_a_row_agrees_with_finite_differences(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    told = decode(asked(glass, side("fc", [0, 2]), side(source_of(glass)))["data"])
    step = 1e-6
    for at in [(0, 0, 3, 4), (0, 0, 7, 7), (0, 0, 0, 0)]:
        up, down = x.clone(), x.clone()
        up[at] += step
        down[at] -= step
        with torch.no_grad():
            slope = float(net(up)[0, 2] - net(down)[0, 2]) / (2 * step)
        assert told[at] == pytest.approx(slope, abs=1e-8)


def test_a_column_has_the_shape_of_the_target(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    told = asked(glass, side("fc"), side(source_of(glass), [0, 0, 3, 4]))
    assert (told["kind"], told["over"]) == ("column", "target")
    np.testing.assert_allclose(decode(told["data"]), by_hand(net, x)[..., 0, 0, 3, 4], rtol=0, atol=1e-14)


def test_an_element_is_one_number(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    told = asked(glass, side("fc", [0, 1]), side(source_of(glass), [0, 0, 3, 4]))
    assert (told["kind"], told["shape"]) == ("element", [])
    assert float(decode(told["data"])) == pytest.approx(by_hand(net, x)[0, 1, 0, 0, 3, 4], abs=1e-15)


def test_a_region_gives_the_sum_and_the_small_block_itself(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    whole = by_hand(net, x)
    told = asked(glass, side("fc", [0, [1, 4]]), side(source_of(glass)))
    assert (told["kind"], told["reduced"], told["over"]) == ("block", "sum", "source")
    np.testing.assert_allclose(decode(told["data"]), whole[0, 1:4].sum(0), atol=1e-14)
    np.testing.assert_allclose(decode(told["block"]["data"]), whole[0, 1:4], atol=1e-14)


def test_a_large_region_is_summed_by_one_pass(glass: Microscope) -> None:
    told = asked(glass, side("conv1", [0, [0, 3], [0, 8], [2, 8]]), side(source_of(glass)))
    assert (told["passes"], told["reduced"], "block" in told) == (1, "sum", False)
    want = (d(glass.t["conv1"])[0, :3, :8, 2:8] / d(glass.t[source_of(glass)])).numpy().sum(axis=(0, 1, 2))
    np.testing.assert_allclose(decode(told["data"]), want, atol=1e-13)


def test_a_region_of_the_source_sums_its_columns(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    told = asked(glass, side("fc"), side(source_of(glass), [0, 0, [2, 5], [1, 3]]))
    assert (told["over"], told["reduced"]) == ("target", "sum")
    want = by_hand(net, x)[..., 0, 0, 2:5, 1:3].sum(axis=(-1, -2))
    np.testing.assert_allclose(decode(told["data"]), want, atol=1e-14)


def test_the_norm_of_a_region(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    told = asked(glass, side("fc", [0, [0, 5]]), side(source_of(glass)), reduce="norm")
    np.testing.assert_allclose(decode(told["data"]), np.sqrt((by_hand(net, x)[0] ** 2).sum(0)), atol=1e-14)


def test_what_stands_under_copy_as_python_gives_the_same_numbers(glass: Microscope) -> None:
    x = source_of(glass)
    for y_index, x_index, more in [
        ([0, 1], None, {}), (None, [0, 0, 1, 2], {}), ([0, [0, 3]], None, {}), (None, [0, 0, [0, 2], [1, 3]], {}),
        ([0, [0, 3]], None, {"reduce": "norm"}), ([0, 2], [0, 0, [0, 2], [1, 3]], {}),
    ]:  # fmt: skip
        told = asked(glass, side("fc", y_index), side(x, x_index), **more)
        again = eval(told["python"], {"d": d, "t": glass.t, "np": np})
        again = again.numpy() if hasattr(again, "numpy") else np.asarray(again)
        np.testing.assert_allclose(decode(told["data"]), again, atol=1e-14)


def test_independence_is_exact_zeros_and_not_connected(glass: Microscope) -> None:
    told = asked(glass, side("conv1", [0, 0, 0, 0]), side("fc.bias"))
    assert told["connected"] is False
    assert not decode(told["data"]).any()


def test_a_cut_is_told_with_its_line() -> None:
    with wrt.record(values=True) as t:
        x = torch.ones(3, requires_grad=True)
        h = (x * 2).detach()
        y = (h * 3).sum()
    glass = Microscope(t)
    told = asked(glass, side("y", []), side("x"))
    assert (told["connected"], told["data"]) == (False, None)
    assert told["finding"]["cause"] == "detach"
    (finding,) = glass.ask("why", {"target": side("y"), "source": side("x")})["findings"]
    assert finding["cause"] == "detach"
    assert finding["file"] == "test_model.py"
    assert [line["text"].strip() for line in finding["source_lines"] if line["mark"]] == ["h = (x * 2).detach()"]
    cut = [node for node in glass.ask("graph", {})["nodes"] if node["gradient"] == "cut"]
    assert [(node["label"], node["finding"]["cause"], node["line"]) for node in cut] == [("h", "detach", finding["line"])]


def test_the_graph_finds_its_way_back_by_every_name(glass: Microscope) -> None:
    nodes = glass.ask("graph", {})["nodes"]
    named = [node for node in nodes if node["name"] is not None]
    assert len({node["name"] for node in named}) == len(named)
    for node in named:
        for name in node["names"]:
            handle = glass.t[name]
            assert list(handle.shape) == node["shape"]
            assert handle._recording.numbered(handle.__wrt_differential__()[0]) == node["id"]
    known = {node["id"] for node in nodes}
    assert all(source in known for node in nodes for source in node["inputs"])


def test_modules_hold_their_outputs_and_parameters(glass: Microscope) -> None:
    nodes = {node["name"]: node for node in glass.ask("graph", {})["nodes"]}
    assert (nodes["conv1"]["kind"], nodes["conv1"]["module"]) == ("module-output", "conv1")
    assert (nodes["conv1.weight"]["kind"], nodes["conv1.weight"]["module"]) == ("parameter", "conv1")
    assert nodes[source_of(glass)]["kind"] == "input"
    assert nodes[source_of(glass)]["label"] == "x"


def test_sizes_are_those_of_a_plain_backward(glass: Microscope, net: Net, x: torch.Tensor) -> None:
    told = glass.ask("sizes", {"target": side("fc", [0, 3])})["sizes"]
    ids = {node["name"]: str(node["id"]) for node in glass.ask("graph", {})["nodes"]}
    x = x.clone().requires_grad_()
    h = net.conv1(x)
    z = net.conv2(torch.tanh(h))
    y = net.fc(torch.tanh(z).flatten(1))
    for name, g in zip([source_of(glass), "conv1", "conv2"], torch.autograd.grad(y[0, 3], [x, h, z]), strict=True):
        one = told[ids[name]]
        assert one["max"] == pytest.approx(float(g.abs().max()), rel=1e-12)
        assert one["mean"] == pytest.approx(float(g.abs().mean()), rel=1e-12)
        assert (one["zeros"], one["nonfinite"]) == (int((g == 0).sum()), 0)


def test_sizes_count_what_is_not_finite() -> None:
    with wrt.record(values=True) as t:
        x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
        h = torch.sqrt(x)
        y = (h * torch.tensor([0.0, 1.0, 0.0])).sum()
    glass = Microscope(t)
    ids = {node["name"]: str(node["id"]) for node in glass.ask("graph", {})["nodes"]}
    told = glass.ask("sizes", {"target": side("y", [])})["sizes"]
    assert told[ids["x"]]["nonfinite"] == 1
    assert told[ids["h"]] == {"max": 1.0, "mean": pytest.approx(1 / 3), "zeros": 2, "nonfinite": 0, "size": 3}


def test_numbers_that_are_not_finite_arrive_to_the_bit() -> None:
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0], dtype=torch.float64)
    t = wrt.trace(lambda x: x * 1.0, odd, values=True)
    told = Microscope(t).ask("tensor", {"name": "x"})
    assert decode(told["data"]).tobytes() == odd.numpy().tobytes()
    assert (told["nonfinite"], told["zeros"], told["min"], told["max"]) == (3, 1, 0.0, 0.0)


def test_numbers_that_were_not_kept_leave_an_empty_grid(net: Net, x: torch.Tensor) -> None:
    t = wrt.trace(net, x)
    told = Microscope(t).ask("tensor", {"name": "conv1"})
    assert told["data"] is None
    assert "values=True" in told["note"]
    assert asked(Microscope(t), side("conv1", [0, 0, 1, 1]), side(source_of(Microscope(t))))["connected"]


def test_elements_of_one_tensor_filled_in_place() -> None:
    with wrt.record(values=True) as t:
        h = torch.zeros(6, dtype=torch.float64)
        h[0] = 0.5
        for k in range(1, 6):
            h[k] = 3 * h[k - 1]
    told = asked(Microscope(t), side("h", [5]), side("h"))
    np.testing.assert_array_equal(decode(told["data"]), 3.0 ** np.arange(5, -1, -1))


def test_too_many_passes_are_refused_before_they_run(run: wrt.Trace) -> None:
    glass = Microscope(run, limits=Limits(passes=10))
    with pytest.raises(TooLarge, match="passes"):
        asked(glass, side("conv1", [0, [0, 3]]), side(source_of(glass)), reduce="norm")
    assert asked(glass, side("conv1", [0, 0, 0, 0]), side(source_of(glass)))["passes"] == 1


def test_too_many_bytes_are_refused(run: wrt.Trace) -> None:
    glass = Microscope(run, limits=Limits(bytes=100))
    with pytest.raises(TooLarge, match="64 numbers"):
        asked(glass, side("fc", [0, 0]), side(source_of(glass)))


REFUSED = [
    ("nothing", {}, UnknownName),
    ("tensor", {}, WrongQuery),
    ("tensor", {"name": 3}, WrongQuery),
    ("tensor", {"name": "x" * 2000}, WrongQuery),
    ("tensor", {"name": "__class__"}, UnknownName),
    ("tensor", {"name": "fc", "index": "0"}, WrongQuery),
    ("tensor", {"name": "fc", "index": [0, 0, 0]}, WrongIndex),
    ("tensor", {"name": "fc", "index": [True]}, WrongQuery),
    ("tensor", {"name": "fc", "index": [1.5]}, WrongQuery),
    ("tensor", {"name": "fc", "index": [9]}, WrongIndex),
    ("tensor", {"name": "fc", "index": [-1]}, WrongIndex),
    ("tensor", {"name": "fc", "index": [0, [3, 3]]}, WrongIndex),
    ("tensor", {"name": "fc", "index": [0, [1, 10**30]]}, WrongQuery),
    ("derivative", {"target": "fc", "source": {"name": "fc"}}, WrongQuery),
    ("derivative", {"target": {"name": "fc"}, "source": {"name": "fc"}, "reduce": "eval"}, WrongQuery),
    ("map", {"target": {"name": "fc"}, "source": {"name": "fc"}, "keep": [0]}, WrongQuery),
]


@pytest.mark.parametrize(("verb", "args", "error"), REFUSED)
def test_a_malformed_question_is_refused_in_words(glass: Microscope, verb: str, args: Any, error: type) -> None:
    with pytest.raises(error) as caught:
        glass.ask(verb, args)
    assert len(str(caught.value).splitlines()) == 3


def test_the_map_of_a_causal_run_is_a_triangle() -> None:
    t = wrt.trace(lambda x: torch.cumsum(x * 2, dim=1), torch.ones(1, 5, 3, dtype=torch.float64), values=True)
    told = Microscope(t).ask("map", {"target": side(target_of(t)), "source": side("x"), "keep": [1, 1]})
    np.testing.assert_allclose(decode(told["data"]), np.tril(np.full((5, 5), 2 * np.sqrt(3))), atol=1e-12)
    assert told["python"] == 'd(t.output) / d(t["x"])'
    assert Microscope(t).ask("tensor", {"name": "output"})["python"] == "t.output"


def target_of(t: wrt.Trace) -> str:
    return str(Microscope(t).ask("hello", {})["default"]["target"])


def test_a_tensor_too_large_to_send_is_shown_in_parts(monkeypatch: pytest.MonkeyPatch, glass: Microscope) -> None:
    monkeypatch.setattr("wrt._microscope.model.MANY_CELLS", 100)
    whole, part = (glass.ask("tensor", side("conv1", index)) for index in (None, [0, 1]))
    assert (whole["data"], "192 numbers" in whole["note"]) == (None, True)
    np.testing.assert_array_equal(decode(part["data"]), glass.t["conv1"].value.numpy()[0, 1])


def test_what_went_in_has_the_name_of_the_function_that_was_called() -> None:
    def inner(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2

    def outer(pixels: torch.Tensor) -> torch.Tensor:
        h = inner(pixels)
        return h + 1

    glass = Microscope(wrt.trace(outer, torch.ones(3), values=True))
    assert glass.ask("hello", {})["default"]["source"] == "pixels"


def test_the_page_opens_where_it_is_told(run: wrt.Trace) -> None:
    glass = Microscope(run, target=run["conv2"][0, 3, 1], source="conv1")
    assert glass.ask("hello", {})["default"] == {"target": "conv2", "source": "conv1", "index": [0, 3, 1, 0]}
    with pytest.raises(NotATensor, match="a Tensor is no value of this recording"):
        Microscope(run, target=torch.ones(2)).ask("hello", {})


def test_real_work_tells_how_far_it_is_and_ends_when_nobody_wants_it() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x, 0) * x.sum()
        return y

    glass = Microscope(wrt.trace(f, torch.linspace(0, 1, 1500, dtype=torch.float64), values=True))
    asked_for = {"target": side("y", [[0, 1500]]), "source": side("x"), "reduce": "norm"}
    heard: list[tuple[int, int]] = []
    worker = Worker()
    told = worker.submit(lambda: glass.ask("derivative", asked_for))
    assert told.done.wait(20)
    assert told.error is None
    assert told.share == 1.0

    def impatient(job: Job) -> None:
        heard.append((round(1000 * (job.share or 0)), 1000))
        worker.cancel(job)

    other = asked_for | {"target": side("y", [[1, 1500]])}
    stopped = worker.submit(lambda: glass.ask("derivative", other), on_progress=impatient)
    assert stopped.done.wait(20)
    assert isinstance(stopped.error, Cancelled)
    assert heard[0][0] < 1000
    again = worker.submit(lambda: glass.ask("derivative", {"target": side("y", [3]), "source": side("x")}))
    assert again.done.wait(20)
    assert again.result["passes"] == 1
    worker.close()


def test_a_training_loop_opens_at_its_last_loss_by_its_data() -> None:
    model = torch.nn.Linear(3, 2).double()
    with wrt.record(values=True) as t:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)
        for _ in range(2):
            optimizer.zero_grad()
            weight = model.weight.detach().clone()
            loss = (model(data) ** 2).mean()
            loss.backward()
            optimizer.step()
    glass = Microscope(t)
    default = glass.ask("hello", {})["default"]
    assert (default["target"], default["source"]) == ("loss", "data")
    told = glass.ask("derivative", {"target": side("loss", []), "source": side("data")})
    again = data.clone().requires_grad_()
    with torch.no_grad():
        bias = model.bias + 0.1 * model.bias.grad
    ((again @ weight.T + bias) ** 2).mean().backward()
    np.testing.assert_allclose(decode(told["data"]), again.grad.numpy(), atol=1e-14)


def test_a_map_tells_its_positions_and_not_the_passes_within() -> None:
    t = wrt.trace(lambda x: torch.cumsum(x * 2, dim=1), torch.ones(1, 6, 40, dtype=torch.float64), values=True)
    heard: list[float] = []
    worker = Worker()
    asked_for = {"target": side("output"), "source": side("x"), "keep": [1, 1]}
    job = worker.submit(lambda: Microscope(t).ask("map", asked_for), on_progress=lambda one: heard.append(one.share or 0.0))
    assert job.done.wait(20)
    assert job.error is None
    assert heard == sorted(heard)
    assert {round(6 * share) for share in heard} == set(range(6))
    worker.close()
