"""`wrt.map`: entry i of the answer is the question about the run of sample i alone."""

import numpy as np
import pytest
import torch

import wrt
from tests.beyond._models import by_loop
from wrt import d
from wrt._beyond import lift, workers
from wrt._beyond import map as map_file
from wrt._beyond.pack import pack
from wrt._beyond.workers import Eta
from wrt._run import progress
from wrt.errors import CannotTravel, NotATensor, TooLarge, Unfinished, WrongQuery, WrongShape

pytest.importorskip("dask")
COUNT = 23


class Net(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(6, 8)
        self.norm = norm or torch.nn.Identity()
        self.last = torch.nn.Linear(8, 4)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.norm(self.first(x)))
        return self.last(hidden)


@pytest.fixture
def net() -> Net:
    with torch.random.fork_rng():
        return Net()


XS = torch.linspace(-2, 2, COUNT * 6, dtype=torch.float64).reshape(COUNT, 6).sin()


def each(net: torch.nn.Module) -> np.ndarray:
    """(samples, 4, 6), one run and one pull for each row."""
    return np.stack([by_loop(lambda x: net(x[None])[0], x) for x in XS])


QUESTIONS = {
    "all of it": (lambda t: d(t.output) / d(t.inputs[0]), "value", lambda J: J[:, None, :, None, :]),
    "a row": (lambda t: d(t.output)[0, 2] / d(t.inputs[0])[0], "value", lambda J: J[:, 2]),
    "some entries": (lambda t: d(t.output)[0, 1:3] / d(t.inputs[0])[0, [5, 0]], "value", lambda J: J[:, 1:3][:, :, [5, 0]]),
    "columns": (lambda t: d(t.output)[0] / d(t.inputs[0])[0, :2], "value", lambda J: J[:, :, :2]),
    "norm": (lambda t: d(t.output) / d(t.inputs[0]), "norm", lambda J: np.sqrt((J**2).sum((1, 2)))),
    "norm of columns": (lambda t: d(t.output) / d(t.inputs[0])[0, 3], "norm", lambda J: np.sqrt((J[:, :, 3] ** 2).sum(1))),
    "diagonal": (
        lambda t: d(t.output)[0] / d(t.inputs[0])[0, 1:5], "diagonal",
        lambda J: J[:, np.arange(4), np.arange(1, 5)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("batch", ["auto", 1, 5])
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_sample_has_the_answer_that_it_has_alone(net: Net, name: str, batch, watched) -> None:
    watched(net, XS)
    question, take, expected = QUESTIONS[name]
    found = wrt.map(question, XS, model=net, take=take, batch=batch)
    assert found.shape == expected(each(net)).shape
    assert np.allclose(found, expected(each(net)), rtol=1e-12, atol=1e-14)


@pytest.mark.filterwarnings("error:Casting complex")
@pytest.mark.parametrize("take", ["value", "norm"])
def test_complex_outputs_have_complex_derivatives(take: str) -> None:
    turn = torch.exp(1j * torch.arange(24.0, dtype=torch.float64)).reshape(6, 4)
    f = lambda x: torch.tanh(x @ turn.real) + 1j * torch.tanh(x @ turn.imag)
    found = wrt.map(lambda t: d(t.output)[0] / d(t.inputs[0])[0], XS, model=f, take=take, batch=5)
    real, imaginary = (
        np.stack([by_loop(lambda x, part=part: torch.tanh(x @ part), x) for x in XS]) for part in (turn.real, turn.imag)
    )
    expected = real + 1j * imaginary
    expected = expected if take == "value" else np.sqrt((np.abs(expected) ** 2).sum((1, 2)))
    assert np.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["all of it", "norm", "columns", "diagonal"])
def test_lines_that_do_not_fit_into_one_sweep_come_in_pieces(net: Net, name: str, monkeypatch) -> None:
    monkeypatch.setattr(lift, "SEED_NUMBERS", 5 * 6 * 3)
    question, take, expected = QUESTIONS[name]
    found = wrt.map(question, XS, model=net, take=take, batch=5)
    assert np.allclose(found, expected(each(net)), rtol=1e-12, atol=1e-14)


def test_gradients_of_what_samples_share_are_told_apart(net: Net) -> None:
    found = wrt.map(lambda t: d(t.output)[0, 1] / d(t["first.weight"]), XS, model=net, batch=7)
    for k in (0, 11, COUNT - 1):
        expected = torch.autograd.grad(net(XS[k : k + 1])[0, 1], net.first.weight)[0]
        assert np.allclose(found[k], expected.numpy(), rtol=1e-12)


def test_hidden_values_are_asked_about_by_name(net: Net) -> None:
    found = wrt.map(lambda t: d(t.output)[0] / d(t["hidden"])[0], XS, model=net)
    assert np.allclose(found, net.last.weight.detach().numpy()[None].repeat(COUNT, 0))


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_a_batch_costs_no_more_passes_than_one_sample(net: Net) -> None:
    calls = []
    net.first.register_full_backward_hook(lambda *_: calls.append(1))
    wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS, model=net, take="norm", batch=COUNT)
    one_by_one = 4 * COUNT
    assert len(calls) < one_by_one / 2  # the first sample alone, four for a check, then all at once


# ---------------------------------------------------------------- samples that are not alone


def test_samples_that_mix_are_refused(net: Net) -> None:
    class Centered(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return net(x - 0.01 * x.mean(0) * (len(x) > 1))

    with pytest.raises(WrongQuery) as error:
        wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS, model=Centered(), take="norm")
    told = str(error.value).splitlines()
    assert told[0] == "the samples of a batch are not independent of each other"
    assert told[2] == "  put the model in evaluation mode (batch normalization, dropout), or write batch=1"


def test_samples_that_mix_late_in_the_data_are_refused_too(net: Net) -> None:
    def late(x: torch.Tensor) -> torch.Tensor:
        return net(x) + (1e-3 * x[:1, :1] if bool((x == XS[20]).all(1).any()) else 0)

    with pytest.raises(Unfinished, match="1 of 5 blocks are missing in memory") as error:
        wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS, model=late, take="norm", batch=5)
    assert "samples 20:23: WrongQuery: the samples of a batch are not independent" in str(error.value)


def test_lines_that_fill_a_cache_are_pulled_one_by_one_and_proven_all_the_same() -> None:
    weight = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    xs = torch.randn(500, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    question = lambda t: d(t.output) / d(t.inputs[0])
    found = wrt.map(question, xs, model=lambda x: torch.tanh(x @ weight))
    expected = (1 - torch.tanh(xs @ weight) ** 2)[:, :, None] * weight.T  # (sample, row, column)
    assert np.allclose(found.reshape(500, 3, 40), expected, rtol=1e-12, atol=1e-14)
    with pytest.raises(WrongQuery, match="not independent"):
        wrt.map(question, xs, model=lambda x: torch.tanh(x @ weight + (x[400:].sum() / 1000 if len(x) > 400 else 0)))


def test_a_sample_whose_derivative_is_not_finite_spoils_no_other() -> None:
    xs = torch.tensor([[1.0, 4.0], [0.0, 4.0], [9.0, 1.0]], dtype=torch.float64)
    found = wrt.map(lambda t: d(t.output) / d(t.inputs[0]), xs, model=torch.sqrt, take="norm")
    expected = np.linalg.norm(0.5 / np.sqrt(xs[[0, 2]].numpy()), axis=1)
    assert np.allclose(found[[0, 2]], expected, rtol=1e-12)
    assert not np.isfinite(found[1])


def test_statistics_of_the_batch_without_a_gradient_are_noticed(net: Net) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return net(x) * (1 + x.detach().mean())

    with pytest.raises(WrongQuery, match="not independent"):
        wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS, model=scaled, take="norm")
    alone = wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS[:3], model=scaled, take="norm", batch=1)
    expected = [np.linalg.norm(by_loop(lambda x: scaled(x[None])[0], x)) for x in XS[:3]]
    assert np.allclose(alone, expected, rtol=1e-12)


def test_batch_normalization_in_evaluation_mode_is_fine() -> None:
    with torch.random.fork_rng():
        net = Net(torch.nn.BatchNorm1d(8)).eval()
    found = wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS, model=net, take="norm")
    assert np.allclose(found, np.sqrt((each(net) ** 2).sum((1, 2))), rtol=1e-12)


def test_a_mean_over_the_batch_is_refused(net: Net) -> None:
    with pytest.raises(WrongShape) as error:
        wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS, model=lambda x: net(x).mean(), take="norm")
    assert str(error.value).splitlines() == [
        "y has no axis of samples in front",
        "  its shape is () for one sample and () for 4",
        '  ask for a value with one entry for each sample (a loss with reduction="none"), or write batch=1',
    ]


def test_one_at_a_time_needs_no_axis_of_samples(net: Net) -> None:
    found = wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS[:5], model=lambda x: net(x).mean(), take="norm", batch=1)
    assert np.allclose(found, np.sqrt((each(net)[:5].mean(1) ** 2).sum(1)), rtol=1e-12)


def test_samples_along_another_axis_are_refused(net: Net) -> None:
    turned = lambda x: net(x)[:, None].transpose(0, 1)  # (1, samples, 4)
    with pytest.raises(WrongShape, match="y has no axis of samples in front"):
        wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS, model=turned)


def test_a_transposed_question_is_refused(net: Net) -> None:
    with pytest.raises(WrongShape, match="a transposed derivative is not asked in blocks or samples"):
        wrt.map(lambda t: (d(t.output) / d(t.inputs[0])).T, XS[:1], model=net)


def test_a_model_that_is_another_one_elsewhere_is_refused() -> None:
    study, alone = map_file.study_of(
        lambda t: d(t.output) / d(t.inputs[0]), map_file.Samples(XS, "torch"), wrt.Model(lambda: lambda x: x * 2), "norm"
    )
    study.first = pack((XS[:1],)), alone
    study.answer((XS[:3],))
    study.built, study.model = None, wrt.Model(lambda: lambda x: x * 3)
    with pytest.raises(CannotTravel, match="the model built in this process is not the one that was asked about"):
        study.answer((XS[:3],))


# ---------------------------------------------------------------- data sets


def test_data_sets_of_every_kind_give_the_same(net: Net, tmp_path) -> None:
    zarr = pytest.importorskip("zarr")
    kept = zarr.create_array(str(tmp_path / "xs"), shape=XS.shape, chunks=(4, 6), dtype="float64")
    kept[...] = XS.numpy()
    kinds = [XS, XS.numpy(), kept, list(XS), torch.utils.data.TensorDataset(XS), (XS,)]
    answers = [wrt.map(lambda t: d(t.output) / d(t.inputs[0]), one, model=net, take="norm", batch=5) for one in kinds]
    assert all(np.array_equal(answers[0], one) for one in answers)


def test_samples_of_several_arrays_are_several_arguments(net: Net) -> None:
    scale = torch.arange(1.0, COUNT + 1, dtype=torch.float64)
    found = wrt.map(
        lambda t: d(t.output)[0] / d(t.inputs[0])[0], (XS, scale), model=lambda x, s: net(x) * s[:, None], batch=6
    )
    assert np.allclose(found, each(net) * scale.numpy()[:, None, None], rtol=1e-12)


def test_what_is_no_data_set_is_told(net: Net) -> None:
    with pytest.raises(NotATensor, match="a generator is not a data set"):
        wrt.map(lambda t: d(t.output) / d(t.inputs[0]), (x for x in XS), model=net)
    with pytest.raises(NotATensor, match="the columns of the data set have"):
        wrt.map(lambda t: d(t.output) / d(t.inputs[0]), (XS, XS[:3]), model=net)
    with pytest.raises(NotATensor, match="the question gave a Handle"):
        wrt.map(lambda t: t.output, XS, model=net)
    with pytest.raises(NotATensor, match="the data set is empty"):
        wrt.map(lambda t: t.output, XS[:0], model=net)


# ---------------------------------------------------------------- to disk, and again


def killed_after(count: int, monkeypatch) -> None:
    """The power fails when a batch after these is written."""
    write, left = map_file.write, count

    def dies(*args) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        write(*args)

    monkeypatch.setattr(map_file, "write", dies)


def test_it_goes_on_where_it_was_killed(net: Net, tmp_path, monkeypatch) -> None:
    pytest.importorskip("zarr")
    question = lambda t: d(t.output) / d(t.inputs[0])
    killed_after(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        wrt.map(question, XS, model=net, take="norm", to=tmp_path / "n", batch=5)
    monkeypatch.undo()
    stored = wrt.map(question, XS, model=net, take="norm", to=tmp_path / "n")
    assert (stored.blocks, stored.computed, stored.found) == (5, 3, 2)
    assert np.array_equal(stored, wrt.map(question, XS, model=net, take="norm", batch=5))
    with pytest.raises(WrongQuery, match="another question"):
        wrt.map(question, XS * 2, model=net, take="norm", to=tmp_path / "n")


def test_parquet_holds_a_table(net: Net, tmp_path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    question = lambda t: d(t.output) / d(t.inputs[0])
    stored = wrt.map(question, XS, model=net, take="norm", to=tmp_path / "n.parquet", batch=5)
    table = parquet.read_table(tmp_path / "n.parquet")
    assert table.column_names == ["sample", "norm"]
    assert table["sample"].to_pylist() == list(range(COUNT))
    assert np.allclose(table["norm"], np.sqrt((each(net) ** 2).sum((1, 2))), rtol=1e-12)
    (tmp_path / "n.parquet" / "part-000000000010.parquet").unlink()
    again = wrt.map(question, XS, model=net, take="norm", to=tmp_path / "n.parquet")
    assert (stored.computed, again.computed, again.found) == (5, 1, 4)


def test_rows_go_to_parquet_as_lists(net: Net, tmp_path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    wrt.map(lambda t: d(t.output)[0, 2] / d(t.inputs[0])[0], XS, model=net, to=tmp_path / "r.parquet")
    table = parquet.read_table(tmp_path / "r.parquet")
    assert np.allclose(table["value"].to_pylist(), each(net)[:, 2], rtol=1e-12)


def test_a_flow_table_for_every_sample(net: Net, tmp_path) -> None:
    zarr = pytest.importorskip("zarr")

    def losses(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(net.first(x))
        loss = (net.last(hidden) ** 2).sum(1)
        return loss

    stored = wrt.map(lambda t: t["loss"], XS, model=losses, take="flow", to=tmp_path / "f", batch=5)
    about = zarr.open_array(tmp_path / "f", mode="r").attrs["wrt"]
    assert about["measures"] == ["max", "mean", "zeros"]
    k = about["layers"].index("hidden")
    for sample in (0, 13):
        hidden = torch.relu(net.first(XS[sample : sample + 1])).detach().requires_grad_()
        g = torch.autograd.grad((net.last(hidden) ** 2).sum(), hidden)[0].abs().numpy()
        assert np.allclose(stored.array[sample, k], [g.max(), g.mean(), (g == 0).mean()], rtol=1e-12)


def test_answers_that_do_not_fit_are_refused(net: Net) -> None:
    with wrt.options(memory=1000), pytest.raises(TooLarge) as error:
        wrt.map(lambda t: d(t.output)[0] / d(t.inputs[0])[0], XS, model=net)
    assert str(error.value).splitlines() == [
        "the answers for all samples have shape (23, 4, 6): 4.3 KiB",
        "  1000 bytes are free for them",
        '  write them to disk with to="answers.zarr", or keep less: take="norm"',
    ]


def test_a_live_model_cannot_go_to_a_cluster(net: Net) -> None:
    with pytest.raises(CannotTravel) as error:
        wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS, model=net, client=object())
    assert str(error.value).splitlines() == [
        "wrt.map: the graph of live tensors stays in this process",
        "  the workers are other processes, and a live graph cannot be sent",
        "  write model=wrt.Model(build, state); or client=None to compute here",
    ]


def test_a_model_that_travels_is_built_once(net: Net) -> None:
    built = []

    def build(state: dict[str, torch.Tensor]) -> Net:
        built.append(1)
        with torch.random.fork_rng():
            made = Net()
        made.load_state_dict(state)
        return made

    model = wrt.Model(build, net.state_dict())
    found = wrt.map(lambda t: d(t.output) / d(t.inputs[0]), XS.numpy(), model=model, take="norm", batch=5)
    assert np.allclose(found, np.sqrt((each(net) ** 2).sum((1, 2))), rtol=1e-12)
    assert len(built) == 1


# ---------------------------------------------------------------- how long it still takes


def test_the_time_left_is_a_range_from_what_was_seen() -> None:
    estimate = Eta(100)
    assert str(estimate) == "time left not known yet"
    for seconds in (1.0, 3.0) * 10:
        estimate.add(seconds)
    low, high = estimate.left()
    assert low < 160 < high  # 80 more of 2 s
    assert str(estimate) == "2 min to 3 min left"


def test_what_remains_after_a_change_of_pace_follows_the_latest() -> None:
    estimate = Eta(1000)
    for seconds in [0.1] * 200 + [2.0] * 64:
        estimate.add(seconds)
    assert estimate.left() == pytest.approx((736 * 2.0, 736 * 2.0))


def test_a_bar_shows_how_long_it_still_takes_and_is_the_only_one(monkeypatch) -> None:
    monkeypatch.setattr(workers, "watched", lambda: True)
    monkeypatch.setattr(workers, "PATIENCE", 0.0)
    with workers.Bar("100 blocks", 100) as bar:
        for _ in range(4):
            bar.advance(3.0)
        assert bar._bar.tasks[0].fields["left"] == "5 min left"
        assert bar._bar.tasks[0].completed == 4
        assert progress.WITHIN.get()  # a block that takes long shows no bar of its own
    assert not progress.WITHIN.get()


def test_nobody_watching_means_no_bar(monkeypatch) -> None:
    monkeypatch.setattr(workers, "watched", lambda: False)
    monkeypatch.setattr(workers, "PATIENCE", 0.0)
    with workers.Bar("100 blocks", 100) as bar:
        bar.advance(3.0)
        assert bar._bar is None
