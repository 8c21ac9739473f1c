"""Names and lines of the user's own code, found without annotation."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import wrt
from wrt import d
from wrt._backends.torch.compat import is_leaf_node, reachable
from wrt.errors import UnknownName

F64 = torch.float64


def nodes_on_the_way(tensor):
    return [n for n in reachable(tensor.grad_fn) if not is_leaf_node(n) and type(n).__name__ != "EnterBackward"]


def test_variables_loops_unpacking_walrus_containers_and_attributes():
    class Holder:
        pass

    def helper(a):
        inner = a + 1
        return inner * 2, a - 1

    x = torch.tensor([1.0, 2.0], dtype=F64)
    with wrt.record() as t:
        h = x * 1
        for _ in range(3):
            h = h * 2
        first, second = helper(h)
        if (seen := first.sum()) > 0:
            outs = [first, second]
        cache = {"k": h * 5}
        squares = [v**2 for v in outs]
        holder = Holder()
        holder.kept = h * 7
    assert torch.equal(t["h"].value, h)
    assert (d(t["h"]) / d(t["h", 0])).value.diagonal().tolist() == [8.0, 8.0]
    assert (d(t["h#2"]) / d(t["h#1"])).value.diagonal().tolist() == [2.0, 2.0]
    assert float(d(t["seen"])[()] / d(t["x"])[0]) == 16.0
    assert torch.equal(t["first"].value, first)
    assert torch.equal(t["second"].value, second)
    assert torch.equal(t["outs[1]"].value, second)
    assert torch.equal(t["cache['k']"].value, cache["k"])
    assert torch.equal(t["squares[0]"].value, squares[0])
    assert t["helper.inner"].shape == (2,)
    assert t["h"].line.text == "h = h * 2"
    assert "times" in repr(t.names)
    with pytest.raises(UnknownName, match="did you mean 'first'"):
        t["frist"]


def test_self_attributes_and_the_same_name_in_two_functions():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3).double()

        def encode(self, x):
            h = torch.tanh(self.fc(x))
            self.code = h * 2
            return h

        def forward(self, x):
            h = self.encode(x) + 1
            return h.sum()

    net = Net()
    x = torch.randn(3, dtype=F64)
    t = wrt.trace(net, x, values=True)
    assert torch.equal(t["self.code"].value, net.code)
    assert torch.allclose(t["forward.h"].value, t["encode.h"].value + 1)
    slope = 1 - t["encode.h"].value ** 2
    assert torch.allclose((d(t.output) / d(t["fc"])).value, slope, rtol=1e-14)
    assert torch.allclose((d(t.output) / d(t["fc.weight"])).value, slope[:, None] * x, rtol=1e-14)
    assert (d(t["fc"]) / d(t["fc.input"])).value.equal(net.fc.weight.detach())


def test_module_calls_are_counted_and_wrappers_leave_no_trace():
    shared = nn.Linear(2, 2).double()
    model = nn.Sequential(shared, nn.Tanh(), shared)
    x = torch.randn(2, dtype=F64)
    t = wrt.trace(torch.compile(model, backend="eager"), x, values=True)
    assert torch.equal(t["0#0"].value, shared(x))
    assert torch.equal(t["0#1"].value, model(x))
    assert "0.weight" in t.names
    assert not [name for name in t.names if "_orig_mod" in name]


def test_tap_names_what_has_no_name():
    x = torch.tensor(3.0, dtype=F64)
    with wrt.record() as t:
        y = wrt.tap("inner", x * 2) ** 2
    assert float(d(y) / d(t["inner"])) == 12.0
    assert wrt.tap("outside", y) is y


def test_every_autograd_node_of_a_hand_written_lstm_a_unet_and_an_encoder_carries_a_line():
    models = [
        (HandLSTM(), torch.randn(6, 4)),
        (TinyUNet(), torch.randn(1, 1, 8, 8)),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8)),
    ]
    for model, x in models:
        t = wrt.trace(model, x)
        nodes = nodes_on_the_way(t._one.held[2])
        assert nodes
        assert all(t.line(node) is not None for node in nodes), type(model)


class HandLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(4 + 3, 12)

    def forward(self, xs):
        h = torch.zeros(3)
        c = torch.zeros(3)
        outs = []
        for x in xs:
            i, f, g, o = self.gates(torch.cat([x, h])).chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outs.append(h)
        return torch.stack(outs)


class TinyUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, padding=1)
        self.mid = nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        skip = torch.relu(self.down(x))
        low = torch.relu(self.mid(nn.functional.max_pool2d(skip, 2)))
        high = self.up(low)
        return self.out(torch.cat([skip, high], 1))


def test_names_of_a_hand_written_lstm_match_the_values_they_had():
    torch.manual_seed(0)
    model, xs = HandLSTM(), torch.randn(6, 4)
    kept = []

    class Spy(HandLSTM):
        def forward(self, xs):
            h = torch.zeros(3)
            c = torch.zeros(3)
            for x in xs:
                i, f, g, o = self.gates(torch.cat([x, h])).chunk(4)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                kept.append({"i": i, "f": f, "g": g, "o": o, "c": c, "h": h})
            return h

    spy = Spy()
    spy.load_state_dict(model.state_dict())
    spy(xs)
    with wrt.record(values=True) as t:
        model(xs)
    for step, values in enumerate(kept):
        for name, value in values.items():
            times = step + 1 if name in ("h", "c") else step
            assert torch.equal(t[name, times].value, value), (name, step)


def test_place_of_an_in_place_slice_and_of_a_custom_function():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = torch.randn(4, requires_grad=True)
    with wrt.record() as t:
        h = x * 1
        h[1:3] = 2 * h[:2]
        y = Square.apply(h)
    lines = {type(node).__name__: t.line(node).text for node in nodes_on_the_way(y)}
    assert lines["CopySlices"] == "h[1:3] = 2 * h[:2]"
    assert lines["SquareBackward"] == "y = Square.apply(h)"
    where = t.line(y.grad_fn)
    assert (where.function, where.column) == (
        "test_place_of_an_in_place_slice_and_of_a_custom_function",
        12,
    )
    assert [node.gradient for node in t.graph if node.op == "Square"] == ["custom"]


def test_recording_belongs_to_its_thread():
    seen = {}

    def elsewhere():
        b = torch.ones(2) * 5
        seen["b"] = b

    with wrt.record() as t:
        a = torch.ones(2) * 3
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
    assert "a" in t.names
    assert "b" not in t.names
    assert sum(node.op == "__mul__" or node.op == "mul" for node in t.graph) == 1


def test_nested_recordings_both_see_the_inner_block():
    x = torch.tensor(2.0, dtype=F64)
    with wrt.record() as outer:
        a = x * 3
        with wrt.record() as inner:
            b = a**2
        c = b + 1
    assert "b" in inner.names
    assert "a" in outer.names
    assert float(d(b) / d(a)) == 12.0
    assert float(d(c) / d(x)) == 36.0


def test_graph_is_plain_data_that_survives_saving(tmp_path):
    model = nn.Linear(3, 2)
    with wrt.record() as t:
        h = model(torch.ones(3))
        k = h.detach()
        loss = (k**2).sum()
    assert loss.shape == ()
    path = tmp_path / "run.json"
    t.save(path)
    back = wrt.load_graph(path)
    assert back.to_dict() == t.graph.to_dict()
    cuts = [node for node in back if node.gradient == "cut"]
    assert [(node.op, node.where.text) for node in cuts] == [("detach", "k = h.detach()")]
    assert {node.module for node in back} >= {""}
