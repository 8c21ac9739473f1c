"""Rows and columns of local maps, through patches: the same numbers as a row loop, for every operation of the tables."""

import pytest
import torch
import torch.nn.functional as F

from wrt import d
from wrt._backends.torch import patch
from wrt._plan import cache, plans
from wrt.errors import EngineRefused


@pytest.fixture(autouse=True)
def patches_always_pay(monkeypatch):
    monkeypatch.setattr(plans, "PATCH_SECONDS", 0.0)
    monkeypatch.setattr(plans, "LOCAL_NUMBERS", 0)
    real = patch.TorchPatches.__init__

    def for_nothing(self, recipe, nodes):
        real(self, recipe, nodes)
        self.work = 0.0

    monkeypatch.setattr(patch.TorchPatches, "__init__", for_nothing)
    cache.forget()
    yield
    cache.forget()


def weights(*shape):
    made = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))
    return (made / 3).requires_grad_()


def conv(x, channels=2, size=3, **options):
    return F.conv2d(x, weights(channels, x.shape[1], size, size), weights(channels), **options)


def normed(channels, **options):
    """A batch norm that has been trained."""
    layer = torch.nn.BatchNorm2d if options.get("affine", True) else torch.nn.BatchNorm1d
    made = layer(channels, **options).double().eval()
    with torch.no_grad():
        made.running_mean.copy_(weights(channels))
        made.running_var.copy_(weights(channels) ** 2 + 0.1)
        if made.affine:
            made.weight.copy_(weights(channels) + 0.5)
    return made


UNARY = {
    "Tanh": torch.tanh, "Relu": F.relu, "Sigmoid": torch.sigmoid, "Gelu": F.gelu, "Silu": F.silu, "Elu": F.elu,
    "Softplus": F.softplus, "LeakyRelu": F.leaky_relu, "Hardtanh": F.hardtanh, "Hardswish": F.hardswish, "Mish": F.mish,
    "Exp": torch.exp, "Log": lambda x: (x * x + 1).log(), "Sin": torch.sin, "Cos": torch.cos, "Abs": torch.abs,
    "Sqrt": lambda x: (x * x + 1).sqrt(), "Neg": torch.neg, "Reciprocal": lambda x: (x * x + 1).reciprocal(),
    "Clone": torch.clone, "Erf": torch.erf, "Log1P": lambda x: (x * x).log1p(), "Expm1": torch.expm1,
    "Add": lambda x: x + 2 * x, "Sub": lambda x: x.sin() - x, "Mul": lambda x: x * x.cos() * 3,
    "Div": lambda x: x.sin() / (x * x + 2), "Pow": lambda x: x**3,
}  # fmt: skip
MAPS = {
    **{name: lambda x, f=f: conv(f(conv(x, padding=1)), padding=1) for name, f in UNARY.items()},
    "no padding": lambda x: conv(torch.tanh(conv(x))),
    "strided": lambda x: conv(torch.tanh(conv(x, stride=2, padding=1)), stride=2, padding=1),
    "strided without padding": lambda x: conv(conv(x, stride=3, size=2).tanh(), padding=2),
    "dilated": lambda x: conv(torch.tanh(conv(x, dilation=2, padding=2)), padding=1, dilation=3),
    "uneven kernel": lambda x: F.conv2d(x, weights(3, 2, 5, 2), padding=(1, 0), stride=(1, 2)).sin(),
    "in groups": lambda x: F.conv2d(conv(x, 4, padding=1).tanh(), weights(6, 2, 3, 3), padding=1, groups=2),
    "depthwise, strided": lambda x: conv(F.conv2d(x, weights(4, 1, 3, 3), padding=1, stride=2, groups=2).sin(), padding=1),
    "ends depthwise, strided": lambda x: F.conv2d(conv(x).tanh(), weights(4, 1, 3, 3), stride=2, groups=2),
    "max-pool": lambda x: conv(F.max_pool2d(conv(x, padding=1), 2), padding=1),
    "max-pool that overlaps": lambda x: F.max_pool2d(conv(x, padding=1).sin(), 3, 2, 1),
    "max-pool, uneven": lambda x: conv(F.max_pool2d(x, (2, 3), (1, 2), (1, 1), (2, 1), ceil_mode=True), padding=1),
    "skip": lambda x: x + conv(torch.tanh(conv(x, padding=1)), padding=1),
    "two branches": lambda x: conv(x, size=5, padding=2).sin() * conv(x, padding=1),
    "one axis": lambda x: F.conv1d(x[:, :, 7], weights(3, 2, 5), padding=2).tanh(),
    "unsqueezed": lambda x: conv(x[0].unsqueeze(0), padding=1).squeeze(0).unsqueeze(1),
    "batch norm": lambda x: conv(normed(2)(conv(x, padding=1)).relu(), padding=1),
    "batch norm without weights, one axis": lambda x: F.conv1d(normed(2, affine=False)(x[:, :, 7]), weights(3, 2, 5), padding=2),
    "selected": lambda x: conv(torch.cat([x, 2 * x]).detach()[1:] * x, padding=1)[0, 1],
}


def asked(f, seed=0):
    x = torch.randn(1, 2, 14, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    return f(x), x


def check(y, x, rows, columns):
    some = y[rows].reshape(-1)
    truth = torch.stack([torch.autograd.grad(one, x, retain_graph=True)[0][columns].reshape(-1) for one in some])
    J = d(y)[rows] / d(x)[columns]
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-12, atol=1e-13)
    assert not J.value.requires_grad
    assert not J.explain().fallbacks
    return J.explain().strategy


@pytest.mark.parametrize("name", MAPS)
def test_a_patch_says_what_the_row_loop_says(name):
    y, x = asked(MAPS[name])
    rows = (*(-1,) * (y.dim() - 2), slice(1, 10, 3), slice(1, 4))
    for columns in [(0, slice(None), slice(5, 8), slice(6, 9)), (0, 1, slice(0, 2), slice(13, 15)), (0, 0, slice(2, 9, 3))]:
        assert check(y, x, rows, columns) in ("patch", "direct")  # direct: they cannot meet
    assert check(y, x, rows, (0, slice(None), slice(1, 13))) == "patch"


@pytest.mark.parametrize("name", ["Tanh", "Exp", "strided", "skip", "batch norm", "no padding", "in groups", "max-pool"])
def test_samples_of_a_batch_that_are_asked_for_on_one_side_only(name):
    x = torch.randn(3, 2, 14, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = MAPS[name](x)
    patch = (slice(None), slice(2, 6), slice(1, 7))
    for rows, columns in [(0, slice(None)), (slice(0, 2), slice(1, 3)), (slice(None), 1), (slice(1, 3), slice(None, None, 2))]:
        assert check(y, x, (rows, 0, 2, slice(1, 3)), (columns, *patch)) == "patch"
    assert check(y, x, (0, 0, 2, slice(1, 3)), (2, *patch)) != "patch"  # they cannot meet


def test_every_operation_of_the_table_was_tried():
    assert {f"{name}Backward0" for name in UNARY} == patch.ELEMENTWISE


def test_an_operation_that_mixes_is_not_taken_for_local():
    y, x = asked(lambda x: conv(F.layer_norm(conv(x, padding=1), (14, 15)), padding=1))
    assert check(y, x, (0, 0, slice(3, 5)), (0, 0, slice(4, 6))) != "patch"


def test_weights_made_of_x_are_no_weights():
    y, x = asked(lambda x: F.conv2d(x, weights(2, 2, 3, 3) * x.mean()).sin())
    assert check(y, x, (0, 0, slice(3, 5)), (0, 0, slice(4, 6))) != "patch"


def test_a_batch_norm_in_training_mixes_a_batch():
    y, x = asked(lambda x: conv(normed(2).train()(conv(x, padding=1)), padding=1))
    assert check(y, x, (0, 0, slice(3, 5)), (0, 0, slice(4, 6))) != "patch"


@pytest.mark.parametrize("spoil", ["the weights", "a result"])
def test_what_was_changed_since_is_refused_as_the_engine_refuses_it(spoil):
    layer = torch.nn.Conv2d(2, 2, 3).double()
    saved = []
    y, x = asked(lambda x: layer(saved.append(torch.tanh(x)) or saved[0]).sin())
    with torch.no_grad():
        (layer.weight if spoil == "the weights" else saved[0]).mul_(2)
    with pytest.raises(EngineRefused):
        _ = (d(y)[0, 0, 3:5] / d(x)[0, 0, 4:6]).value


def test_a_broadcast_is_no_elementwise_operation():
    y, x = asked(lambda x: conv(x * x[:, :, :1].sin(), padding=1))
    assert check(y, x, (0, 0, slice(3, 5)), (0, 0, slice(0, 6))) != "patch"


def on_tensor(h):
    h.register_hook(lambda g: 3 * g)


def on_node(h):
    h.grad_fn.register_hook(lambda into, out: (3 * into[0], *into[1:]))


def before_node(h):
    h.grad_fn.register_prehook(lambda out: (3 * out[0],))


def block(y, x):
    """Some rows and columns, and the same by a row loop."""
    J = d(y)[0, 0, 3:5] / d(x)[0, 0, 4:6]
    truth = torch.stack([torch.autograd.grad(v, x, retain_graph=True)[0][0, 0, 4:6] for v in y[0, 0, 3:5].reshape(-1)])
    return J, J.value.reshape(truth.shape), truth


@pytest.mark.parametrize("hook", [on_tensor, on_node, before_node])
def test_a_hook_that_a_patch_passes_by_is_noticed(hook):
    def f(x, with_hook):
        h = conv(x, padding=1)
        if with_hook:
            hook(h)
        return conv(h.sin(), padding=1)

    plain, x = asked(lambda x: f(x, with_hook=False))
    hooked, z = asked(lambda x: f(x, with_hook=True))
    J, found, truth = block(plain, x)  # the same program, right through patches: that must not vouch for the next one
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-13)
    assert J.explain().strategy == "patch"
    for _ in range(2):
        J, found, other = block(hooked, z)
        torch.testing.assert_close(found, other, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(other, 3 * truth, rtol=1e-12, atol=1e-13)
        assert J.explain().fallbacks[0].startswith("patch, pull: ")
        assert J.certificate


def test_a_hook_that_is_switched_on_later_counts():
    y, x = asked(MAPS["Tanh"])
    factor = [1.0]
    y.grad_fn.next_functions[0][0].register_hook(lambda into, out: (factor[0] * into[0], *into[1:]))
    for factor[0] in (1.0, 5.0, 1.0):
        J, found, truth = block(y, x)
        torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-13)
        assert J.explain().strategy == ("patch" if factor[0] == 1.0 else "direct")


def test_a_hook_on_a_node_is_told_of():
    y, x = asked(MAPS["Tanh"])
    handles = [y.grad_fn.register_hook(lambda into, out: None) for _ in range(2)]
    told = "2 hooks of yours act on nodes of the graph: the answer is the gradient you train with"
    assert told in block(y, x)[0].explain().notes
    handles[0].remove()
    assert any(note.startswith("a hook of yours acts on nodes of the graph") for note in block(y, x)[0].explain().notes)
    handles[1].remove()
    assert not block(y, x)[0].explain().notes


def test_a_hook_on_a_module_is_told_of_where_it_acts():
    y, x = asked(MAPS["Tanh"])
    module = torch.nn.Tanh()
    module.register_full_backward_hook(lambda *_: None)
    elsewhere = module(2 * x)
    assert not block(y, x)[0].explain().notes
    told = "2 hooks of yours act on modules: the answer is the gradient you train with"
    assert block(elsewhere, x)[0].explain().notes == (told,)


def test_the_recipe_of_one_graph_serves_the_next_whatever_its_numbers():
    layers = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.Tanh(), torch.nn.Conv2d(3, 2, 3)).double()
    known = patch.recipe.cache_info()
    for seed in range(3):
        y, x = asked(layers, seed)
        assert check(y, x, (0, 1, slice(2, 4)), (0, slice(None), slice(3, 5), slice(1, 5))) == "patch"
        with torch.no_grad():
            layers[0].weight.mul_(-1.5)
    assert patch.recipe.cache_info().misses == known.misses + 1
    y, x = asked(lambda x: layers(x.mT))  # other shapes: another recipe
    assert check(y.mT, x, (0, 1, slice(2, 4)), (0, slice(None), slice(3, 5), slice(1, 5))) == "direct"
    with torch.no_grad():
        layers[2].padding = (1, 1)
    y, x = asked(layers)
    assert check(y, x, (0, 1, slice(2, 4)), (0, slice(None), slice(3, 5), slice(1, 5))) == "patch"
    assert patch.recipe.cache_info().misses == known.misses + 2


def test_a_patch_takes_no_call_of_the_whole():
    y, x = asked(MAPS["Tanh"])
    J = d(y)[0, 0, 3:5] / d(x)[0, 0, 4:6]
    _ = J.value
    assert J.explain().strategy == "patch"
    assert "% of what a pass touches" in J.explain().because


def test_lists_of_as_many_rows_do_not_share_their_patches():
    y, x = asked(MAPS["Tanh"])
    for rows in ([3, 5], [4, 7], [3, 5]):
        for columns in ([2, 6], [4, 8]):
            assert check(y, x, (0, 0, rows, 3), (0, 1, columns, 4)) == "patch"


def test_in_single_precision_too():
    layers = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.Tanh(), torch.nn.Conv2d(3, 2, 3))
    x = torch.randn(1, 2, 14, 15, generator=torch.Generator().manual_seed(0)).requires_grad_()
    rows, columns = (0, 1, slice(2, 4)), (0, slice(None), slice(3, 5), slice(1, 5))
    J = d(layers(x))[rows] / d(x)[columns]
    found = J.value.double()
    exact = x.detach().double().requires_grad_()
    y = layers.double()(exact)[rows]
    truth = torch.stack([torch.autograd.grad(one, exact, retain_graph=True)[0][columns] for one in y.reshape(-1)])
    torch.testing.assert_close(found.reshape(truth.shape), truth, rtol=1e-5, atol=1e-6)
    assert J.explain().strategy == "patch"


@pytest.mark.parametrize("off", [1e-8, 1.0])
def test_patches_that_are_wrong_are_found(monkeypatch, off):
    """One entry of one row is off."""
    right = patch.Recipe.pull

    def wrong(self, nodes, seeds):
        found = right(self, nodes, seeds).clone()
        found[1, 2] += off
        return found

    y, x = asked(MAPS["Tanh"])
    monkeypatch.setattr(patch.Recipe, "pull", wrong)
    J = d(y)[0, 1, 2:4] / d(x)[0, :, 3:5, 1:5]
    truth = torch.stack([torch.autograd.grad(one, x, retain_graph=True)[0][0, :, 3:5, 1:5] for one in y[0, 1, 2:4].reshape(-1)])
    torch.testing.assert_close(J.value.reshape(truth.shape), truth, rtol=1e-12, atol=1e-13)
    assert J.certificate
    assert "swept alone" in str(J.certificate) or J.explain().fallbacks[0].startswith("patch, pull: ")
