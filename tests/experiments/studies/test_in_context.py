"""The study of functions in context: what each model says, by oracles and invariances, and a run from end to end."""

import csv

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from experiments.studies.in_context import curves, families, running
from experiments.studies.in_context.families import family, truth
from experiments.studies.in_context.kernels import DeepKernel, FixedKernels, WrittenKernels, covariance_of
from experiments.studies.in_context.models import MODELS, trained_for
from experiments.studies.in_context.predictive import chained, condition, scores
from experiments.studies.in_context.running import fit, train
from experiments.studies.in_context.table import Result, gain, results, table
from experiments.studies.in_context.tasks import Recipe, Tasks, draw

CLOSE = {"rtol": 1e-3, "atol": 1e-3}  # float32
STATIONARY = ("tnp-equivariant", "convcnp", "fixed-1", "fixed-8", "written-1", "written-8", "features-8")


def tasks_of(kind="matern52", *, count=3, contexts=(6, 6), ragged=False):
    recipe = Recipe(kinds=(kind,), contexts=contexts, targets=5)
    return draw(recipe, count, torch.Generator().manual_seed(1), ragged=ragged)


def model_of(name):
    model = MODELS[name].build().eval()
    if name == "tnp-gp":
        model.draws = 0  # other tokens, other draws: here the means are compared
    with torch.no_grad():  # transformers start by moving no kernel
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def marginal(model, tasks):
    with torch.no_grad():
        return model(tasks).marginal(tasks.y_targets)


@pytest.mark.parametrize("name", list(MODELS))
def test_padded_contexts_are_contexts_that_are_not_there(name):
    model, tasks = model_of(name), tasks_of().tasks
    padding = torch.arange(6).ge(4).expand(3, 6)
    padded = tasks._replace(padding=padding, y=tasks.y.masked_fill(padding, 50.0), x=tasks.x.masked_fill(padding, 1.5))
    removed = tasks._replace(x=tasks.x[:, :4], y=tasks.y[:, :4])
    torch.testing.assert_close(marginal(model, padded), marginal(model, removed), **CLOSE)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_order_of_contexts_does_not_matter(name):
    model, tasks = model_of(name), tasks_of().tasks
    order = torch.randperm(6)
    permuted = tasks._replace(x=tasks.x[:, order], y=tasks.y[:, order])
    torch.testing.assert_close(marginal(model, permuted), marginal(model, tasks), **CLOSE)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_other_targets_do_not_matter(name):
    model, tasks = model_of(name), tasks_of().tasks
    alone = tasks._replace(x_targets=tasks.x_targets[:, :2], y_targets=tasks.y_targets[:, :2])
    torch.testing.assert_close(marginal(model, alone), marginal(model, tasks)[:, :2], **CLOSE)


@pytest.mark.parametrize("name", STATIONARY)
def test_translation(name):
    model, tasks = model_of(name), tasks_of().tasks
    half = tasks._replace(x=0.4 * tasks.x, x_targets=0.4 * tasks.x_targets)  # well inside of the grid of ConvCNP
    moved = half._replace(x=half.x + 0.5, x_targets=half.x_targets + 0.5)
    torch.testing.assert_close(marginal(model, moved), marginal(model, half), **CLOSE)


def test_conditioning_equals_dense_algebra():
    model = FixedKernels(3)
    tasks = tasks_of().tasks
    predictive = model(tasks)
    parameters, n = model.parameter_sets[None], tasks.x.shape[-1]
    K, noise = covariance_of(parameters, tasks.inputs).detach().numpy(), np.exp(parameters[0, :, -1].detach().numpy())
    for b in range(3):
        y, asked = tasks.y[b].double().numpy(), tasks.y_targets[b].double().numpy()
        evidence, densities, singles = [], [], []
        for k in range(3):
            noisy = K[b, k] + (noise[k] + 1e-5) * np.eye(n + 5)
            hop = noisy[n:, :n] @ np.linalg.inv(noisy[:n, :n])
            mean, covariance = hop @ y, noisy[n:, n:] - hop @ noisy[:n, n:]
            evidence.append(multivariate_normal.logpdf(y, np.zeros(n), noisy[:n, :n]))
            densities.append(multivariate_normal.logpdf(asked, mean, covariance))
            singles.append(norm.logpdf(asked, mean, np.sqrt(np.diag(covariance))))
        weights = np.exp(np.array(evidence) - np.logaddexp.reduce(evidence))
        joint = np.log(weights @ np.exp(densities))
        one_by_one = np.log(weights @ np.exp(singles))
        y_targets = tasks.y_targets.double()
        np.testing.assert_allclose(predictive.joint(y_targets)[b].item(), joint, rtol=1e-8)
        np.testing.assert_allclose(predictive.marginal(y_targets)[b].detach(), one_by_one, rtol=1e-8)


@pytest.mark.parametrize("name", ["fixed-8", "deep-kernel"])
def test_the_chain_rule_gives_the_joint_density(name):
    drawn = tasks_of(contexts=(2, 5), ragged=True)
    model, y = model_of(name), drawn.tasks.y_targets.double()
    with torch.no_grad():
        torch.testing.assert_close(chained(model, drawn.tasks).sum(-1), model(drawn.tasks).joint(y), **CLOSE)


def test_evidence_of_a_deep_kernel():
    model, tasks = DeepKernel(), tasks_of().tasks
    y = torch.cat([tasks.y, tasks.y_targets], -1).double().numpy()
    features = model.network(tasks.inputs[..., None].double()).detach().numpy()
    total = 0.0
    for points, values in zip(features, y, strict=True):
        squares = np.square(points[:, None] - points[None]).sum(-1)
        covariance = np.exp(-0.5 * squares) + model.noise.item() * np.eye(11)
        total += multivariate_normal.logpdf(values, np.zeros(11), covariance)
    np.testing.assert_allclose(model.loss(tasks).item(), -total / 33, rtol=1e-8)


def test_a_transformer_starts_with_the_fixed_kernels():
    written, fixed, tasks = WrittenKernels(4, width=8, depth=1), FixedKernels(4), tasks_of().tasks
    fixed.load_state_dict({name: value for name, value in written.state_dict().items() if name in fixed.state_dict()})
    torch.testing.assert_close(marginal(written, tasks), marginal(fixed, tasks))


@pytest.mark.parametrize("kind", ["rbf", "matern52", "periodic"])
def test_functions_follow_the_law_that_is_given_with_them(kind):
    drawn = draw(Recipe(kinds=(kind,)), 200, torch.Generator().manual_seed(3), ragged=True)
    law = truth(drawn)
    assert law is not None
    place = law.cumulative(drawn.tasks.y_targets.double()).numpy()
    assert abs(np.mean((place > 0.025) & (place < 0.975)) - 0.95) < 0.015
    assert abs(place.mean() - 0.5) < 0.03
    assert drawn.covariance is not None
    others = condition(drawn.covariance.roll(1, 0)[:, None], drawn.noise[:, None], drawn.tasks)
    y = drawn.tasks.y_targets.double()
    assert law.joint(y).mean() > others.joint(y).mean() + 10.0


def test_saw_teeth_have_unit_variance_and_no_law():
    drawn = draw(Recipe(kinds=("sawtooth",)), 400, torch.Generator().manual_seed(2))
    assert truth(drawn) is None
    assert abs(drawn.tasks.y_targets.var() - 1.0) < 0.05


def test_training_improves_and_its_curve_is_that_of_the_average():
    chosen = family("gp", functions=8)
    validation = [drawn.tasks for drawn in chosen.validation.values()]
    model, curve = fit(MODELS["fixed-1"], chosen.stream, validation, seed=0, steps=40)
    assert [point["step"] for point in curve] == [2, 5, 10, 20, 30, 40]
    assert curve[-1]["loss"] < curve[0]["loss"] - 0.05
    losses = [-marginal(model, tasks).mean().item() for tasks in validation]
    assert curve[-1]["loss"] == pytest.approx(np.mean(losses))
    again, _ = fit(MODELS["fixed-1"], chosen.stream, validation, seed=0, steps=40)
    assert torch.equal(again.parameter_sets, model.parameter_sets)


def test_small_functions_have_few_points_and_larger_batches():
    chosen = family("small", functions=4)
    assert list(chosen.test) == ["rbf", "sawtooth", "few", "many", "outside", "short", "noisy"]
    assert list(chosen.validation) == ["rbf", "sawtooth"]
    assert truth(chosen.test["noisy"]) is not None  # shifts are of draws of the process that was trained on
    batch = chosen.stream(torch.Generator().manual_seed(0))
    assert (len(batch.x), batch.x_targets.shape[-1]) == (64, 6)
    assert batch.x.shape[-1] <= 10
    assert len(family("gp", functions=4).stream(torch.Generator().manual_seed(0)).x) == 16


def test_small_windows_have_few_points(monkeypatch, tmp_path):
    days = families.Days(*(torch.randn(5, 96) for _ in range(3)))
    monkeypatch.setattr(families, "days", lambda data: days)
    chosen = family("small-windows", functions=4, data=tmp_path)
    forecast = chosen.test["forecast"].tasks
    assert forecast.x.shape == (4, 10)
    assert forecast.x_targets.shape == (4, 6)
    assert len(chosen.stream(torch.Generator().manual_seed(0)).x) == 64


def test_every_model_has_a_training_in_small_families_and_a_look():
    for name, entry in MODELS.items():
        small = trained_for("small", name)
        assert trained_for("mixture", name) is entry
        assert small.rate == max(entry.rate, 3e-3)
        assert small.build is entry.build
    looks = [curves.LOOKS[name] for name in MODELS]
    assert len(set(looks)) == len(MODELS)


def test_a_run_from_end_to_end(tmp_path, monkeypatch, capsys):
    names = ("tnp", "fixed-1", "fixed-8")
    options = {"out": tmp_path / "runs", "models": names, "seeds": (0, 1), "functions": 6, "chain": 3}
    train(**options, share=0.005)
    of_models = results(tmp_path / "runs", "mixture")
    assert list(of_models) == ["truth", *names]
    ours, theirs = (of_models[name] for name in ("tnp", "fixed-8"))
    values = [ours[seed].scores["rbf.joint"] - theirs[seed].scores["rbf.joint"][:3] for seed in (0, 1)]
    pair = gain(ours, theirs, ["rbf"], "joint")
    assert pair is not None
    assert pair[0] == pytest.approx(np.mean(values))
    assert gain(ours, theirs, ["few"], "joint") is None
    monkeypatch.setattr(running, "fit", None)  # all is there: nothing is trained again
    train(**options, share=0.005)
    capsys.readouterr()
    table(out=tmp_path / "runs", results_folder=tmp_path, picture=tmp_path / "curves.png")
    printed = capsys.readouterr().out
    assert "| TNP-D | 2 |" in printed
    assert "| eight kernels weighted by evidence |" in printed
    rows = list(csv.DictReader((tmp_path / "in-context.csv").read_text().splitlines()))
    row = next(row for row in rows if (row["model"], row["set"], row["measure"]) == ("tnp", "rbf", "joint"))
    assert float(row["minus fixed-8"]) == pytest.approx(pair[0], abs=1e-4)
    assert (tmp_path / "in-context-curves.csv").exists()
    assert (tmp_path / "curves.png").exists()


@pytest.mark.parametrize(
    ("losses", "late", "flat"),
    [([2.0, 1.0, 0.99, 0.985], 0.015, True), ([2.0, 1.0, 1.1, 0.99], 0.01, False), ([2.0, 1.0, 0.9, 0.9], 0.1, False)],
)
def test_a_flat_curve_stays_within_two_hundredths_of_a_nat(losses, late, flat):
    curve = [{"step": step, "loss": loss} for step, loss in zip((25, 50, 75, 100), losses, strict=True)]
    result = Result({"steps": 100, "curve": curve}, {})
    assert result.late_gain == pytest.approx(late)
    assert result.is_flat is flat
    assert Result({"steps": 100, "curve": []}, {}).is_flat is False


def test_windows_are_split_by_time(monkeypatch, tmp_path):
    hours = np.arange(0.0, 366 * 24.0, 0.25)
    rising = np.where(hours < 100 * 24, hours, np.nan)  # recorded for a hundred days
    monkeypatch.setattr(families, "stations", lambda data, grid, column: np.stack([rising] * 4, -1))
    days = families.days(tmp_path)
    assert [len(part) for part in days] == [240, 40, 120]
    assert days.train.max() < days.validation.min()
    assert days.validation.max() < days.test.min()
    assert abs(days.train.mean()) < 1e-5
    generator = torch.Generator().manual_seed(0)
    sizes = {"contexts": (4, 48), "targets": 24}
    forecast = families.window_tasks(days.test, 7, generator, ragged=True, forecast=True, **sizes)
    assert forecast.x.max() < forecast.x_targets.min()
    drawn = families.window_tasks(days.train, 7, generator, **sizes)
    places = torch.cat([drawn.x, drawn.x_targets], -1)
    assert all(len(row.unique()) == len(row) for row in places)  # no target is a context


def test_scores_ask_the_chain_only_where_it_is_wanted():
    drawn = tasks_of()
    model = model_of("tnp")
    assert "rbf.joint" not in scores(model, {"rbf": drawn}, chain=0)
    assert scores(model, {"rbf": drawn}, chain=2)["rbf.joint"].shape == (2,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: family("trees", functions=2), "family: expected one of mixture, gp"),
        (lambda: family("windows", functions=2), "data: expected a folder"),
        (lambda: train(models=["gpt"]), "models: expected some of tnp"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_table_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="out: expected a folder of finished runs"):
        table(out=tmp_path, results_folder=tmp_path, picture=tmp_path / "x.png")


def test_a_factor_of_the_chain_rule_sees_earlier_targets_only():
    tasks = Tasks(torch.zeros(1, 2), torch.ones(1, 2), torch.arange(3.0)[None], torch.arange(3.0)[None] + 5)
    step = tasks.asking(1)
    assert step.x.tolist() == [[0.0, 0.0, 0.0]]
    assert step.y.tolist() == [[1.0, 1.0, 5.0]]
    assert step.x_targets.tolist() == [[1.0]]
    assert step.y_targets.tolist() == [[6.0]]
