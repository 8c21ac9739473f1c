"""Columns pushed by rules: each rule is held to a row loop, and a wrong one is found."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.torch._rows import row_loop
from tests.torch.test_trusted import EXAMPLES
from wrt import d
from wrt._backends.torch import compat
from wrt._backends.torch.forward import program as programs
from wrt._backends.torch.forward.program import program
from wrt._backends.torch.forward.rules import DIAGONAL, RULES
from wrt._backends.torch.nodes import ByKind, NoRule
from wrt._backends.torch.sweep import FORWARD


def numbers(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def positive(f):
    return lambda x: f(x.exp())


MAPS = {
    "views": lambda x: x.view(2, 6).unsqueeze(1).squeeze(1).reshape(4, 3).clone() * 2,
    "squeezed": lambda x: (x[None, :, None] * 2).squeeze(),
    "squeezed along": lambda x: (x[None, None] * 2).squeeze(0).squeeze((0,)),
    "an alias": lambda x: torch.ops.aten.alias(x) * 2,
    "transposed": lambda x: x.t().transpose(-1, 0).permute(1, 0) * numbers(3, 4),
    "one number turned": lambda x: x[0, 0].t().transpose(0, -1) * x,
    "permuted": lambda x: x.reshape(2, 2, 3).permute(-1, 0, 1) * 2,
    "picked": lambda x: x[-1] * x[1] + x[:, -2].sum(),
    "sliced": lambda x: x[-3:-1, ::2] * x[1:3, 1:],
    "sliced in steps": lambda x: x.reshape(-1)[1:11:3] * 2,
    "stretched": lambda x: (x[:, None].expand(4, 2, 3) * numbers(5, 4, 2, 3)),
    "sums": lambda x: x.sum(-1)[:, None] * x.sum((0, 1)) + x.sum(0, keepdim=True),
    "sums of one number": lambda x: x[0, 0].sum(0) * x[1, 1].mean(-1) * x,
    "sliced from the start": lambda x: torch.ops.aten.slice(x, 0, None, 2) * 2,
    "means": lambda x: x.mean(0) * x.mean() + x.mean((0, 1)),
    "a sum of differently shaped": lambda x: torch.add(x[0], x, alpha=3) - torch.sub(x[:, :1], x, alpha=2),
    "constants": lambda x: 3 - x * 2 / 7 + 1,
    "products and quotients": lambda x: x * x[0] / (x[:, :1] * x[:, :1] + 1) / (2 + numbers(5, 4, 3).square()),
    "matrices": lambda x: x @ numbers(3, 5) @ numbers(5, 4) @ x,
    "a matrix and a vector": lambda x: numbers(6, 3) @ x[0] + x @ numbers(3)[:3].tanh() @ numbers(4, 6),
    "a vector that x moves": lambda x: x @ x[1],
    "a layer": lambda x: F.linear(x, numbers(5, 3), numbers(5)),
    "a layer of one sample": lambda x: F.linear(x[0], numbers(5, 3), numbers(5)),
    "a layer made of x": lambda x: torch.addmm(x[0], x, x[1:4], beta=2, alpha=3),
    "a batch of matrices": lambda x: torch.bmm(x.reshape(2, 2, 3), numbers(2, 3, 3)) @ x.reshape(2, 2, 3)[:, :1].mT,
    "convolutions": lambda x: F.conv2d(F.conv2d(x[None, None], numbers(2, 1, 3, 3), padding=1).tanh(), numbers(3, 2, 2, 2)),
    "strided, dilated": lambda x: F.conv1d(x[None], numbers(5, 4, 2), numbers(5), stride=2, padding=2, dilation=2),
    "in groups": lambda x: F.conv1d(x[None], numbers(4, 2, 2), groups=2).sin(),
    "a transposed convolution": lambda x: F.conv_transpose2d(x[None, None], numbers(1, 2, 3, 3), stride=2, output_padding=1),
    "several samples": lambda x: F.conv1d(x[:, None], numbers(2, 1, 2)),
    "joined": lambda x: torch.cat([x, x * 2], -1),
    "stacked": lambda x: torch.stack([x, numbers(4, 3), x * 2], -1),
    "rolled": lambda x: x.roll((1, -1), (0, -1)) * x.roll(2),
    "padded": lambda x: F.pad(x, (1, 2, 0, 1)) * 2,
    "cropped": lambda x: F.pad(x, (-1, 1)) * 2,
    "cut above": lambda x: torch.clamp(x, -0.5, 0.7) + F.hardtanh(x) + F.relu(x) + F.leaky_relu(x, 0.2),
    "bends": lambda x: F.elu(x) + F.gelu(x) + F.silu(x) + F.softplus(x) + x.sigmoid() + x.tanh() + x.abs(),
    "waves": lambda x: x.sin() * x.cos() + x.tan() + x.atan() + x.sinh() + x.cosh() + x.erf(),
    "powers": positive(lambda x: x**3 + x.sqrt() + x.rsqrt() + x.reciprocal() + x.log() + x.log1p() + x.expm1() - -x),
    "masked": lambda x: x[0].masked_fill(numbers(4, 3) > 0, 2.0) * x.masked_fill(numbers(3) > 0, 1.0),
    "chosen": lambda x: torch.where(numbers(4, 3) > 0, x, 1.0) * torch.where(numbers(2, 4, 3) > 0, x[0], x * 2),
    "rows by number": lambda x: x.index_select(-1, torch.tensor([2, 0, 2])) * 2,
    "weights that sum to one": lambda x: x.softmax(-1) * x.log_softmax(0),
    "normed": lambda x: F.layer_norm(x, (3,), numbers(3), numbers(3)) + F.layer_norm(x, (4, 3)),
    "normed as trained": lambda x: F.batch_norm(x[None], numbers(4), numbers(4).square() + 1, numbers(4), numbers(4)),
    "pooled": lambda x: F.max_pool2d(x[None, None], 2, 1) * F.max_pool2d(x[None], (2, 2), 1),
    "one tensor twice": lambda x: (h := x.sin()) * h + h,
}  # fmt: skip


def asked(f):
    x = numbers(4, 3).requires_grad_()
    return f(x), x


@pytest.mark.parametrize("name", MAPS)
def test_a_batch_of_columns_is_that_of_the_row_loop(name):
    y, x = asked(MAPS[name])
    truth = row_loop(y, x).reshape(y.numel(), -1)
    J = d(y) / d(x)
    linear = J.ask.y.record.linear(J.ask.y, J.ask.x.values)
    tangents = numbers(5, *x.shape, seed=1)
    pushed = linear.push([tangents], FORWARD)
    torch.testing.assert_close(pushed.reshape(5, -1), tangents.reshape(5, -1) @ truth.T, rtol=1e-12, atol=1e-12)


def test_every_rule_is_held_to_a_row_loop():
    met = set()
    for f in MAPS.values():
        y, x = asked(f)
        found = program(compat.inner_edge(y), (x,))
        met |= {type(step.node).__name__ for step in found.steps}
    older = {"ReshapeAliasBackward0", "SqueezeBackward2", "UnsafeViewBackward0"}  # views that other versions of torch make
    assert set(RULES) - met - older == set()


def test_a_tensor_in_between_and_one_that_stands_still():
    x = numbers(4, 3).requires_grad_()
    h = x.sin()
    y = h * x.cos()
    J = d(y) / d(h)
    linear = J.ask.y.record.linear(J.ask.y, [*J.ask.x.values, (d(y) / d(x)).ask.x.values[0]])
    tangents = numbers(5, 4, 3, seed=1)
    torch.testing.assert_close(linear.push([tangents, None], FORWARD), tangents * x.cos())


def test_statistics_that_x_moves_are_left_to_double_backward():
    y, x = asked(lambda x: F.batch_norm(x, None, None, training=True))
    torch.testing.assert_close((d(y) / d(x)[1, 2]).value, row_loop(y, x)[..., 1, 2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", [lambda x: x.cumsum(0), lambda x: torch.cat([x, numbers(1, 3)]), lambda x: x.float() * 2])
def test_what_has_no_rule_is_left_to_double_backward(f):
    y, x = asked(f)
    J = d(y) / d(x)[0, 0]
    truth = torch.stack([torch.autograd.grad(one, x, retain_graph=True)[0].reshape(-1)[0] for one in y.reshape(-1)])
    torch.testing.assert_close(J.value.reshape(-1), truth)
    assert not J.explain().fallbacks


def test_a_checkpoint_is_run_again_once():
    runs = []

    def block(h):
        runs.append(1)
        return (numbers(20, 20) @ torch.tanh(numbers(20, 20, seed=1) @ h)).sin()

    x = numbers(20).requires_grad_()
    y = torch.sin(numbers(300, 20) @ checkpoint(block, x, use_reentrant=False))
    runs.clear()
    J = d(y) / d(x)
    assert J.value is not None
    assert len(runs) <= 2  # by the pull that sets the push up, and by the push
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-11)


def test_what_was_pushed_is_no_view_of_the_tangents():
    y, x = asked(lambda x: x.view(3, 4))
    J = d(y) / d(x)
    linear = J.ask.y.record.linear(J.ask.y, J.ask.x.values)
    tangents = numbers(5, 4, 3)
    pushed = linear.push([tangents], FORWARD)
    assert pushed.untyped_storage().data_ptr() != tangents.untyped_storage().data_ptr()


def test_a_graph_that_was_freed_is_refused_in_the_usual_words():
    y, x = asked(lambda x: x.sin() @ numbers(3, 30))
    y.sum().backward()
    with pytest.raises(Exception, match="retain_graph"):
        (d(y) / d(x)).value


def tall():
    x = numbers(20).requires_grad_()
    return torch.sin(numbers(300, 20) @ torch.tanh(x)), x


@pytest.mark.parametrize("size", [1.0, 1e-6])
@pytest.mark.parametrize("kind", ["TanhBackward0", "MvBackward0", "SinBackward0"])
def test_a_wrong_rule_is_found(monkeypatch, kind, size):
    right = RULES[kind]

    def wrong(node, tangents, shape):
        pushed = right(node, tangents, shape).clone()
        pushed[7] += size * pushed.abs().max()
        return pushed

    monkeypatch.setitem(RULES, kind, wrong)
    monkeypatch.setattr(programs, "BY_KIND", ByKind(RULES))
    y, x = tall()
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-11)
    assert "forward, by rules: the certificate disagreed" in " ".join(J.explain().fallbacks)


def test_a_hook_has_its_say():
    x = numbers(20).requires_grad_()
    h = torch.tanh(x)
    h.register_hook(lambda g: 3 * g)
    y = torch.sin(numbers(300, 20) @ h)
    torch.testing.assert_close((d(y) / d(x)).value, row_loop(y, x), rtol=1e-11, atol=1e-11)


def test_tall_jacobians_are_pushed_by_rules_and_proven_by_one_pull():
    y, x = tall()
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, row_loop(y, x), rtol=1e-11, atol=1e-11)
    assert [(step.way, step.rung, step.passes) for step in J.explain().steps] == [
        ("push", "forward, by rules", 20), ("pull", "one by one", 1),
    ]  # fmt: skip
    assert "by one unbatched pull" in str(J.explain())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(DIAGONAL))
def test_each_number_by_itself_is_pushed_in_any_precision(name, dtype):
    """GELU in single precision, for one: its own backward takes no batch there."""
    x = (numbers(6).abs() + 0.3).to(dtype).requires_grad_()
    y = EXAMPLES[name](x[:, None]).squeeze(1)
    pushed = program(compat.edge_of(y), (x,)).push([torch.eye(6, dtype=dtype)])
    torch.testing.assert_close(pushed.T, row_loop(y, x), rtol=1e-5, atol=1e-6)


def test_a_power_that_is_constant_is_pushed_as_zeros():
    x = numbers(5).requires_grad_()
    assert torch.equal((d(numbers(40, 5) @ x**0) / d(x)).value, torch.zeros(40, 5, dtype=torch.float64))


def test_a_rule_refuses_where_its_input_does_not_move():
    with pytest.raises(NoRule):
        RULES["SumBackward0"](None, [None], ())
