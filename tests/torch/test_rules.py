"""Rules for batches, each held to a row loop of plain autograd; what they refuse; and how a wrong one is found."""

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from tests.torch.test_trusted import EXAMPLES, SQUARE, names
from wrt import d
from wrt._backends.torch import hooks
from wrt._backends.torch.backend import BACKEND
from wrt._backends.torch.compat import edge_of, reachable
from wrt._backends.torch.nodes import NoRule
from wrt._backends.torch.rules import gain, proof, table
from wrt._backends.torch.rules import program as programs
from wrt._backends.torch.rules.families import Joined, Many, One, Product, Same
from wrt._backends.torch.rules.program import program
from wrt._backends.torch.rules.question import program_of
from wrt._backends.torch.sweep import RULES, VMAP
from wrt._run.tally import IN_THE_BATCH

Tensor = torch.Tensor
F64 = torch.float64


def without_hooks(monkeypatch) -> None:
    """As in a process in which nobody has set any."""
    monkeypatch.setattr(hooks, "_ALL_SEEN", [True])
    for known in ("_ON_TENSORS", "_ON_NODES", "_OF_MODULES"):
        monkeypatch.setattr(hooks, known, {})


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch):
    """Nothing is proven yet, and no hook of another test is in the way; rules are looked up however small a batch is."""
    for least in ("SOME", "MANY"):
        monkeypatch.setattr(gain, least, 0)
    without_hooks(monkeypatch)
    proof.forget()
    yield
    proof.forget()
    table.BY_KIND.clear()


def random(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def spot(tensor: Tensor) -> tuple[object, int]:
    edge = edge_of(tensor)
    return edge.node, edge.output_nr


def rows_of(y: Tensor, xs: list[Tensor], seeds: Tensor) -> list[Tensor | None]:
    """A row loop of plain autograd."""
    rows = [torch.autograd.grad(y, xs, seed, retain_graph=True, allow_unused=True) for seed in seeds]
    return [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]


def held_to_a_row_loop(y: Tensor, *xs: Tensor, tolerance: float = 1e-12) -> None:
    """What the rules say of random seeds is what plain autograd says; without the proof, which would hide a wrong rule."""
    for passing in (set(), {type(node) for node in reachable(y.grad_fn) if isinstance(table.BY_KIND[type(node)], Same)}):
        proof.PASSING.clear()  # steps of their own when they are first met, afterwards looked through
        proof.PASSING.update(passing)
        _held_to_a_row_loop(y, *xs, tolerance=tolerance)


def _held_to_a_row_loop(y: Tensor, *xs: Tensor, tolerance: float) -> None:
    found = program(spot(y), [spot(x) for x in xs])
    assert found is not None, names(y)
    seeds = random(3, *y.shape, seed=7, dtype=y.dtype)
    before = seeds.clone()
    expected = rows_of(y, list(xs), seeds)
    for answer in (found.pull(seeds), found.pull(seeds.clone(), spent=True)):
        for pulled, rows, x in zip(answer, expected, xs, strict=True):
            if rows is None:
                assert pulled is None
                continue
            assert pulled.shape == (3, *x.shape)
            assert pulled.dtype == x.dtype
            scale = max(1.0, float(rows.abs().max())) if rows.numel() else 1.0
            torch.testing.assert_close(pulled, rows, rtol=tolerance, atol=tolerance * scale)
    assert torch.equal(seeds, before)


@pytest.fixture
def unproven(monkeypatch):
    """Rules are used as they are, right or wrong."""
    monkeypatch.setattr(programs, "holds", lambda *given: True)


W, V = random(4, 3, seed=1), random(4, seed=2)
B3 = random(2, 4, 3, seed=3)

MORE: dict[str, Callable[[Tensor], Tensor]] = {
    "alpha": lambda x: torch.add(x, x[:1], alpha=2.5) + torch.sub(x[:, :1], x, alpha=-3),
    "rsub with alpha": lambda x: torch.rsub(x, 2.0, alpha=1.5),
    "stretched both ways": lambda x: x[:, :1] * x[:1] / (2 + x[:1, :1]) + x[0, 0],
    "a number times": lambda x: x.sum() * x,
    "addmm with factors": lambda x: torch.addmm(x[0, :3], x, W, beta=2, alpha=3),
    "addmm of a term that is stretched": lambda x: torch.addmm(x[:, :1], x, W),
    "right factor": lambda x: x @ x.T @ x, "left is fixed": lambda x: W.T @ x.T,
    "addmv": lambda x: torch.addmv(x[:, 0], x, x[1], beta=0.5, alpha=2),
    "mv": lambda x: x @ x[0], "matrix is fixed": lambda x: random(3, 5) @ x[:, 0],
    "bmm": lambda x: torch.bmm(x.expand(2, 5, 4), B3) + torch.bmm(B3.mT[:, :1], x.T.expand(2, 4, 5)).sum(),
    "baddbmm": lambda x: torch.baddbmm(x[:1, :3], x.expand(2, 5, 4), B3, beta=2, alpha=3),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x), "outer": lambda x: torch.outer(x[0], x[1]),
    "linear": lambda x: F.linear(x[0], W.T, x[0, :3]),
    "a chain of views": lambda x: x.view(-1).view(2, 10)[1].unsqueeze(0).tanh(),
    "views that meet": lambda x: x.view(-1).sin() + x.reshape(1, -1).cos() + x.reshape(-1),
    "slices that meet": lambda x: x[1:] * x[:-1] - x[::2][:1] + x[-1:],
    "negative step of axes": lambda x: x.select(-1, -2) + x[..., 1],
    "sum with axes": lambda x: x[None].sum((0, -1)), "sum that keeps": lambda x: x.sum(-1, keepdim=True) * x,
    "mean with axes": lambda x: x[None].mean((0, 2)), "mean that keeps": lambda x: x - x.mean(0, keepdim=True),
    "logsumexp over all": lambda x: x.logsumexp((0, 1)),
    "norm of all": lambda x: x / x.norm(),
    "norm that keeps": lambda x: x.norm(dim=0, keepdim=True),
    "variance, uncorrected": lambda x: x.var(0, correction=0, keepdim=True), "deviation of all": lambda x: x.std(),
    "softmax of the first axis": lambda x: x.softmax(-2), "log softmax, negative axis": lambda x: x.log_softmax(-2),
    "layer norm with weights": lambda x: F.layer_norm(x, (4,), V, V + 1),
    "layer norm of two axes": lambda x: F.layer_norm(x[None], (5, 4)),
    "layer norm of a row": lambda x: F.layer_norm(x[0], (4,)), "cumsum, negative axis": lambda x: x.cumsum(-1),
    "roll of two axes": lambda x: x.roll((1, -2), (0, 1)), "flat roll": lambda x: x.roll(3), "flip": lambda x: x.flip(-1, 0),
    "permute": lambda x: x[None].permute(-1, 0, 1),
    "transpose": lambda x: x[None].transpose(-1, 0),
    "pad": lambda x: F.pad(x, (1, 0, 2, 3)),
    "tril below": lambda x: x.tril(-1), "triu above": lambda x: x.triu(1), "diagonal beside": lambda x: x.diagonal(-1),
    "cat along the last": lambda x: torch.cat([x, x * x, x[:, :1]], -1),
    "cat with a constant": lambda x: torch.cat([x, random(2, 4), x]),
    "stack last": lambda x: torch.stack([x, x.sin()], -1),
    "index of two axes": lambda x: x[torch.tensor([0, 0, 3]), torch.tensor([1, 1, 2])],
    "index of the second axis": lambda x: x[:, torch.tensor([[0, 1], [1, 1]])],
    "gather of a part": lambda x: x.gather(0, torch.tensor([[4, 0], [4, 1]])),
    "index_add": lambda x: x.index_add(0, torch.tensor([0, 0, 2]), x[:3], alpha=2),
    "larger of two": lambda x: torch.maximum(x, 0.1 * x) + torch.maximum(x[:, :1], x.flip(1)),
    "smaller of two": lambda x: torch.minimum(x.sin(), x[:1].sin()) * torch.minimum(x, torch.zeros(5, 4, dtype=F64)),
    "max": lambda x: x.max(0, keepdim=True).values,
    "min": lambda x: x.min(-1).values,
    "unbind in part": lambda x: x.unbind(1)[0] * x.unbind(1)[2],
    "split": lambda x: x.split([1, 4])[1] * x.split(4)[0],
    "chunk": lambda x: x.chunk(3)[2] + x.chunk(2, 1)[1].sum(), "masked_fill": lambda x: x.masked_fill(V > 0, 0.0),
    "where with numbers": lambda x: torch.where(x > 0, x, 2.0) + torch.where(x > 0, x[:1], x[:, :1]),
    "clamp below": lambda x: x.clamp(min=0.1), "clamp above": lambda x: x.clamp(max=0.1), "power zero": lambda x: x**0 + x,
    "power one half": lambda x: x.abs() ** 0.5, "square": lambda x: x**2, "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "clone of a transpose": lambda x: x.t().contiguous().view(-1), "reshape of a transpose": lambda x: x.t().reshape(-1) * 2,
    "one tensor used often": lambda x: (h := x.tanh()) * h + h @ h.T @ h + h[:1],
    "through a number": lambda x: x.sum().sin().expand(3),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(MORE))
def test_a_rule_equals_a_row_loop(name, unproven):
    x = random(5, 4).requires_grad_()
    held_to_a_row_loop(MORE[name](x), x)


@pytest.mark.parametrize("name", sorted(table.RULES))
def test_every_rule_has_an_example_and_equals_a_row_loop(name, unproven):
    examples = {
        **EXAMPLES,
        "AddmmBackward0": MORE["addmm with factors"],
        "IndexAddBackward0": MORE["index_add"],
        "MinBackward0": MORE["min"],
        "NativeBatchNormBackward0": lambda x: F.batch_norm(x[None], random(5), random(5).abs()),
        "SplitWithSizesBackward0": MORE["split"],
        "SqueezeBackward2": lambda x: x[:1].squeeze((0,)),
    }
    x = (random(*((4, 4) if name in SQUARE else (5, 4))).abs() + 0.3).requires_grad_()
    y = examples[name](x)
    if name not in names(y):
        pytest.skip(f"this version of torch records {sorted(names(y))}")
    held_to_a_row_loop(y, x)


@pytest.mark.parametrize("name", sorted(MORE))
def test_the_engine_agrees_where_a_rule_is_first_met(name):
    """No rule is refused by the proof that it has to pass: the proof has no false alarms."""
    x = random(5, 4).requires_grad_()
    held_to_a_row_loop(MORE[name](x), x)


def pictures(*shape: int) -> Tensor:
    return random(*shape, seed=5).requires_grad_()


KERNEL = random(4, 2, 3, 3, seed=6)
ON_PICTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "convolution": lambda x: F.conv2d(x, KERNEL, random(4), padding=1),
    "with strides and dilation": lambda x: F.conv2d(x, KERNEL, stride=2, dilation=2, padding=(2, 1)),
    "in groups": lambda x: F.conv2d(x, KERNEL[:, :1], groups=2),
    "transposed": lambda x: F.conv_transpose2d(x, KERNEL.transpose(0, 1), stride=2, padding=1, output_padding=1),
    "along one axis": lambda x: F.conv1d(x[:, :, 0], KERNEL[..., 0], padding=1),
    "average pool": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "average pool of one picture": lambda x: F.avg_pool2d(x[0], 2),
    "max pool": lambda x: F.max_pool2d(x, 3, 1, 1),
    "max pool of one picture": lambda x: F.max_pool2d(x[0], 2, padding=1),
    "batch norm": lambda x: F.batch_norm(x, random(2), random(2).abs(), random(2), random(2)),
    "batch norm without weights": lambda x: F.batch_norm(x, random(2), random(2).abs()),
    "a network": lambda x: F.max_pool2d(F.relu(F.conv2d(F.relu(F.conv2d(x, KERNEL)), KERNEL.transpose(0, 1))), 2).flatten(1),
}


@pytest.mark.parametrize("name", sorted(ON_PICTURES))
@pytest.mark.parametrize("count", [1, 3])
def test_a_rule_for_pictures_equals_a_row_loop(name, count, unproven):
    x = pictures(count, 2, 7, 6)
    held_to_a_row_loop(ON_PICTURES[name](x), x)


@pytest.mark.parametrize("name", sorted(ON_PICTURES))
def test_the_engine_agrees_about_pictures_too(name):
    x = pictures(2, 2, 7, 6)
    held_to_a_row_loop(ON_PICTURES[name](x), x)


def test_weights_of_a_convolution_and_batch_norms_in_training_are_left_to_the_engine():
    x, kernel = pictures(1, 2, 5, 5), KERNEL.clone().requires_grad_()
    assert program(spot(F.conv2d(x, kernel)), [spot(kernel)]) is None
    assert program(spot(F.batch_norm(pictures(4, 2), None, None, training=True)), [spot(x)]) is None
    x = pictures(4, 2)
    assert program(spot(F.batch_norm(x, None, None, training=True)), [spot(x)]) is None


SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
UNARY = [torch.tanh, torch.sigmoid, torch.exp, torch.sin, F.relu, F.gelu, F.silu, F.softplus, F.elu, F.leaky_relu, torch.abs,
         torch.neg, lambda x: x**3, lambda x: x.clamp(-0.5, 0.5), torch.erf, torch.expm1, lambda x: F.hardtanh(x)]  # fmt: skip
DTYPES = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-4, F64: 1e-11}


@settings(max_examples=150, deadline=None)
@given(SHAPES, st.sampled_from(UNARY), st.sampled_from(sorted(DTYPES, key=str)), st.booleans())
def test_unary_rules_for_all_shapes_and_numbers(shape, f, dtype, transposed):
    x = random(*shape, dtype=dtype).requires_grad_()
    y = f(x.mT if transposed and x.dim() > 1 else x)
    held_to_a_row_loop(y, x, tolerance=DTYPES[dtype])


@st.composite
def stretched(draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast."""
    full = draw(SHAPES)
    each = [tuple(n if draw(st.booleans()) else 1 for n in full)[draw(st.integers(0, len(full))) :] for _ in range(2)]
    return each[0], each[1]


BINARY = [torch.add, torch.sub, torch.mul, lambda a, b: a / (b.abs() + 1), lambda a, b: torch.where(a > b, a, b)]


@settings(max_examples=150, deadline=None)
@given(stretched(), st.sampled_from(BINARY), st.sampled_from(sorted(DTYPES, key=str)), st.integers(0, 2))
def test_binary_rules_for_all_pairs_of_shapes(shapes, f, dtype, wanted):
    a, b = (random(*shape, seed=k, dtype=dtype).requires_grad_(wanted in (k, 2)) for k, shape in enumerate(shapes))
    held_to_a_row_loop(f(a, b), *(x for x in (a, b) if x.requires_grad), tolerance=DTYPES[dtype])


@settings(max_examples=100, deadline=None)
@given(SHAPES.filter(len), st.data())
def test_reductions_and_slices_along_any_axis(shape, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    keep = data.draw(st.booleans())
    start, stop, step = data.draw(st.integers(-5, 5)), data.draw(st.integers(-5, 5)), data.draw(st.integers(1, 3))
    f = data.draw(st.sampled_from([
        lambda x: x.sum(dim, keepdim=keep), lambda x: x.mean(dim, keepdim=keep), lambda x: x.softmax(dim),
        lambda x: x.cumsum(dim),
        lambda x: x.transpose(dim, 0)[start:stop:step], lambda x: x.roll(start, dim), lambda x: torch.stack([x, x], dim),
        lambda x: torch.cat([x, x], dim), lambda x: x.flip(dim), lambda x: x.logsumexp(dim, keepdim=keep)]))  # fmt: skip
    x = random(*shape).requires_grad_()
    if x.numel() or f(x).numel():
        held_to_a_row_loop(f(x), x)


def test_several_x_one_on_the_way_to_another():
    x, w = random(4).requires_grad_(), random(4, 4, seed=1).requires_grad_()
    h = (w @ x).tanh()
    view = h.view(2, 2)
    y = (view * 2).view(-1) + h.sin() + x
    apart = random(3).requires_grad_()
    held_to_a_row_loop(y, x, h, w, view, apart)


def test_an_output_of_an_operation_with_several_is_not_the_others():
    whole = random(3, 4).requires_grad_()
    first, second, _ = (whole * 2).unbind()
    held_to_a_row_loop(first.sin() + second * first, second)
    held_to_a_row_loop(first.sin() + second * first, first, whole)


def test_what_leads_elsewhere_is_not_computed():
    """A custom Function off the way has no rule and needs none."""

    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise AssertionError("nobody asked for this")

    x, w = random(4).requires_grad_(), random(4, seed=1).requires_grad_()
    held_to_a_row_loop(x * 3 + Odd.apply(w), x)
    assert program(spot(Odd.apply(x) * 2), [spot(x)]) is None


def question(y: Tensor, x: Tensor) -> bool:
    """Whether rules would answer."""
    return program_of(BACKEND.lift(y), [BACKEND.lift(x)]) is not None


def test_hooks_anomaly_mode_and_transforms_are_left_to_the_engine():
    x = random(4).requires_grad_()
    y = x.tanh()
    assert question(y.sin(), x)
    handle = y.register_hook(lambda g: 2 * g)
    assert not question(y.sin(), x)
    torch.testing.assert_close((d(y.sin()) / d(x)).value.diagonal(), 2 * y.cos().detach() * (1 - y.detach() ** 2))
    handle.remove()
    assert question(y.sin(), x)
    with torch.autograd.detect_anomaly(check_nan=False):
        assert not question(x.tanh(), x)
    asked = []
    torch.func.vmap(lambda a: (asked.append(question(x.tanh(), x)), a)[1])(torch.zeros(2))
    assert asked == [False]


def test_hooks_on_nodes_are_left_to_the_engine():
    x = random(4).requires_grad_()
    y = x.tanh()
    handle = y.grad_fn.register_prehook(lambda gs: tuple(3 * g for g in gs))
    try:
        torch.testing.assert_close((d(y) / d(x)).value.diagonal(), 3 * (1 - y.detach() ** 2))
    finally:
        handle.remove()


def test_numbers_of_several_kinds_are_left_to_the_engine():
    x = random(4, dtype=torch.float32).requires_grad_()
    double, half = x * random(4), x.half().float()
    assert not question(double, x)  # x is single, y is double
    assert not question(half * 2, x)  # there and back
    for y in (double.float() * 2, half * 2, torch.fft.fft(x).abs(), (x + 1j).abs()):
        J = d(y) / d(x)
        assert torch.allclose(J.value, rows_of(y, [x], torch.eye(4, dtype=y.dtype))[0])
        assert RULES not in str(J.explain())


def test_what_was_saved_elsewhere_is_left_to_the_engine():
    """Reading what a checkpoint saved runs it again, each time."""
    runs = []

    def f(a: Tensor) -> Tensor:
        runs.append(1)
        return a.tanh().sin()

    x = random(4).requires_grad_()
    y = checkpoint(f, x, use_reentrant=False)
    assert not question(y, x)
    assert len(runs) == 1
    with torch.autograd.graph.save_on_cpu():
        assert not question(x.tanh(), x)


def test_a_tensor_that_was_overwritten_gives_the_same_error_as_ever():
    from wrt.errors import EngineRefused, GraphFreed

    x = random(4).requires_grad_()
    h = x.tanh()
    y = h.sin()
    with torch.no_grad():
        h.mul_(2)
    with pytest.raises(EngineRefused, match="a tensor that backward needs was changed in place"):
        (d(y) / d(x)).value
    y = x.tanh().sin()
    y.sum().backward()
    with pytest.raises(GraphFreed, match="the graph of y was freed"):
        (d(y) / d(x)).value


def test_nodes_that_were_made_in_several_threads():
    """Their numbers do not tell in which order they were made; then the engine is asked, which counts readers."""
    x = random(4).requires_grad_()
    made: list[Tensor] = []
    h = x
    for _ in range(50):
        h = h.sin()
    thread = threading.Thread(target=lambda: made.append((h * 2).tanh()))
    thread.start()
    thread.join()
    y = made[0] + x
    seeds = torch.eye(4, dtype=F64)
    torch.testing.assert_close((d(y) / d(x)).value, rows_of(y, [x], seeds)[0])


N = 20


def network(x: Tensor) -> Tensor:
    h = torch.tanh(random(N + 1, N, seed=3) @ x)
    h = torch.cat([h[1:], h[:1] * 2]) + h
    return F.linear(h, random(N, N + 1, seed=4), random(N, seed=5)).softmax(0) - h[:N].sin()


FAULTS: dict[str, tuple[str, Callable[[], object]]] = {
    "a wrong sign": ("SinBackward0", lambda: One(lambda node, g, free: -g * node._saved_self.cos())),
    "a wrong slope": ("TanhBackward0", lambda: One(lambda node, g, free: g * (1 - node._saved_result))),
    "a slope that is a little off": ("SinBackward0", lambda: One(lambda node, g, free: g * node._saved_self.cos() * (1 + 1e-9))),
    "a lost branch": ("SubBackward0", lambda: Many(lambda node, g, free: g, lambda node, g, free: torch.zeros_like(g))),
    "a swapped transpose": ("MvBackward0", lambda: Many(*[lambda node, g, free: g @ node._saved_self.flip(0)] * 2)),
    "pieces in another order": ("CatBackward0", lambda: Joined(lambda node, g: [g[:, 1:], g[:, :1]][::-1])),
    "rows that are mixed": ("SoftmaxBackward0", lambda: One(lambda node, g, free: g.flip(0) * node._saved_result)),
    "factors of another layer": ("AddmmBackward0", lambda: Product(1, "_saved_mat2", "_saved_mat1")),
    "a rule that fails": ("SinBackward0", lambda: One(lambda node, g, free: node._saved_nothing)),
}  # fmt: skip


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_wrong_rule_is_found_when_it_is_first_met_and_not_used(monkeypatch, fault):
    name, wrong = FAULTS[fault]
    monkeypatch.setitem(table.RULES, name, wrong())
    table.BY_KIND.clear()
    x = random(N).requires_grad_()
    y = network(x)
    assert name in names(y)
    for _ in range(2):
        J = d(y) / d(x)
        torch.testing.assert_close(J.value, rows_of(y, [x], torch.eye(N, dtype=F64))[0], rtol=1e-12, atol=1e-12)
        assert J.certificate
        assert [step.rung for step in J.explain().steps][:1] == [VMAP]


def test_a_node_that_is_wrongly_called_a_view_is_found(monkeypatch):
    monkeypatch.setitem(table.RULES, "FlipBackward0", Same())
    table.BY_KIND.clear()
    x = random(N).requires_grad_()
    y = x.flip(0).sin()
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, rows_of(y, [x], torch.eye(N, dtype=F64))[0])
    assert RULES not in str(J.explain())


def test_a_batch_that_goes_wrong_later_is_found_by_the_probe(monkeypatch):
    """Rules that were proven, rows that are mixed up afterwards: the probe is one of these rows."""
    x = random(N).requires_grad_()
    y = network(x)
    right = programs.Program.pull

    def mixed(self, seeds, *, spent=False):
        return [g[[1, 0, *range(2, len(g))]] for g in right(self, seeds, spent=spent)]

    monkeypatch.setattr(programs.Program, "pull", mixed)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, rows_of(y, [x], torch.eye(N, dtype=F64))[0], rtol=1e-12, atol=1e-12)
    assert "rules: the certificate disagreed" in "\n".join(J.explain().fallbacks)


def test_explain_says_that_rules_ran():
    x = random(N).requires_grad_()
    J = d(network(x)) / d(x)
    assert J.value.shape == (N, N)
    assert [(step.rung, step.passes, step.calls) for step in J.explain().steps] == [(RULES, N, 1), (RULES, 1, 0)]


def test_a_kind_of_node_is_proven_once(monkeypatch):
    calls = []
    right = proof._agrees

    def agrees(steps):
        calls.append(type(steps[0][1]).__name__)
        return right(steps)

    monkeypatch.setattr(proof, "_agrees", agrees)
    x = random(5).requires_grad_()
    for _ in range(2):
        program(spot(x.softmax(0).sin().sin()), [spot(x)])
    assert calls == ["SoftmaxBackward0", "SinBackward0"]
    for _ in range(2):
        program(spot(x.view(1, 5).softmax(1).sin()), [spot(x)])
    assert calls[2:] == ["ViewBackward0", "SoftmaxBackward0"]  # along another axis


def test_nothing_that_was_given_or_saved_is_written_to():
    x = random(5, 4).requires_grad_()
    h = x.exp()
    y = torch.cat([h, h.view(-1)[:4].view(1, 4)]) + 0
    y = y[:5] + y[1:] + h.view(5, 4)
    saved = h.detach().clone()
    held_to_a_row_loop(y, x, h)
    assert torch.equal(h, saved)
    J = (d(y) / d(x)).value
    J.zero_()
    held_to_a_row_loop(y, x)


def test_a_question_about_a_weight_does_not_refute_the_rule_for_the_input() -> None:
    norm = torch.nn.LayerNorm(6, dtype=F64)
    x = random(5, 6).requires_grad_()
    y = norm(x)
    assert program(spot(y), [spot(norm.weight)]) is None
    assert program(spot(y), [spot(x)]) is not None


def test_rules_that_fail_leave_nobody_to_trust_an_unknown_batch(monkeypatch):
    """`index_add` has a rule, but nobody vouches for its batches under `vmap`: the engine proves them with a pull of its own."""
    x = random(N).requires_grad_()
    y = x.index_add(0, torch.tensor([0, 0, 2]), x[:3].sin())
    for _ in range(30):
        y = y * 1.01
    right = programs.Program.pull
    calls = []

    def fails(self, seeds, *, spent=False):
        calls.append(len(right(self, seeds, spent=spent)))
        raise NoRule("met something else")

    monkeypatch.setattr(programs.Program, "pull", fails)
    J = d(y) / d(x)
    torch.testing.assert_close(J.value, rows_of(y, [x], torch.eye(N, dtype=F64))[0], rtol=1e-12, atol=1e-12)
    assert calls
    assert J.certificate.probe != IN_THE_BATCH
