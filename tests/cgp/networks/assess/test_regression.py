"""Regression networks from assess to the disk: scores by scipy, each method equal to what its model predicts."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from torch import nn

import cgp
from cgp.networks.methods.rows import Normals
from cgp.networks.predict.readout import GPReadout
from cgp.networks.tasks import Regression
from cgp.networks.tasks.metrics import ValueErrors

METHODS = ["scale", "posterior + scale", "GP read-out + scale", "dropout + scale"]


class Tower(nn.Module):
    """Two outputs of a sequence, through attention and dropout."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.dropout, self.head = nn.Dropout(0.3), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.dropout(self.layer(x)[:, 0]))


class WithVariance(nn.Module):
    """A mean, and a variance that is a quarter of what it should be."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(3, 1)

    def forward(self, x):
        return self.mean(x), 0.25 * (0.2 + x[:, :1].square())


@torch.no_grad()
def problem(count=200):
    torch.manual_seed(0)
    model = Tower().double().eval()
    x = torch.randn(count, 4, 8, dtype=torch.float64)
    return model, x, model(x) + torch.randn(count, 2, dtype=torch.float64) * torch.tensor([0.5, 3.0])


@pytest.fixture(scope="module")
def report():
    model, x, y = problem()
    return cgp.assess(model, [(x[:120], y[:120])], task="regression", train=[(x[120:], y[120:])], num_samples=4)


def test_a_saved_report_has_the_scales_of_each_output(report, tmp_path):
    report.save(tmp_path / "report.json")
    found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert found["task"] == "regression"
    assert {name: row["scale"] for name, row in found["methods"].items()} == {
        name: choice.parameter.tolist() for name, choice in report.choices.items()
    }


def test_the_scale_is_that_of_the_other_folds():
    model, x, y = problem()
    found = cgp.assess(model, [(x, y)], task="regression", compare=["dropout"])
    with torch.no_grad():
        errors = (y - model(x)).numpy()
    fold = (torch.randperm(len(y), generator=torch.Generator().manual_seed(0)) % 5).numpy()
    scale = np.stack([np.square(errors[fold != f]).mean(0) for f in fold])
    expected = -norm.logpdf(errors, scale=np.sqrt(scale))
    assert found.scores["scale"]["nll"] == pytest.approx(expected.mean(), rel=1e-9)
    assert found.scores["scale"]["rmse"] == pytest.approx(np.sqrt(np.square(errors).mean()), rel=1e-9)
    inside = np.abs(errors) <= norm.isf(0.05) * np.sqrt(scale)
    assert found.scores["scale"]["coverage90"] == pytest.approx(inside.mean())
    dropped = found.differences["dropout + scale"]["nll"]
    assert dropped.mean == pytest.approx(found.scores["dropout + scale"]["nll"] - expected.mean(), rel=1e-6)


def test_a_difference_is_that_of_the_rows():
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.standard_normal((50, 2)))
    errors = values.numpy()
    alone, wider = ValueErrors(errors, np.ones((50, 2))), ValueErrors(errors, np.full((50, 2), 2**0.5))
    found = wider.differences(alone, np.arange(50))["nll"]
    rows = (norm.logpdf(values, scale=1.0) - norm.logpdf(values, scale=2**0.5)).mean(1)
    assert found.mean == pytest.approx(rows.mean())
    assert found.error == pytest.approx(rows.std(ddof=1) / np.sqrt(50))


@pytest.mark.parametrize("method", METHODS)
def test_methods_are_fitted_to_all_values_and_survive_the_disk(report, method, tmp_path):
    model, x, y = problem()
    before = copy.deepcopy(model.state_dict())
    changed = report.apply(model, method)
    prediction = cgp.predict(changed, [(x[:120], y[:120])], 4, seed=0)
    assert prediction.task == "regression"
    assert prediction.score()["nll"] == pytest.approx(report.scores[method]["nll"], abs=0.08)  # of other folds
    for column in range(2):  # no other scale makes the values likelier
        noise, spread = (
            (prediction.aleatoric[:, column], prediction.epistemic[:, column])
            if prediction.epistemic is not None
            else (prediction.aleatoric[:, column], torch.zeros(()))
        )
        error = (y[:120] - prediction.mean)[:, column]

        def losses(s, n=noise, e=spread, d=error):
            return -norm.logpdf(d, scale=(e + np.exp(s) * n).sqrt()).mean()

        best = minimize_scalar(losses, bounds=(-1.0, 1.0), method="bounded")
        assert losses(0.0) <= best.fun + 1e-4
    cgp.save_pretrained(changed, tmp_path)
    again, first = (cgp.predict(m, x[:5], 4, seed=0) for m in (cgp.from_pretrained(tmp_path, problem()[0]), changed))
    assert torch.equal(again.total, first.total)
    assert torch.equal(again.mean, first.mean)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


def test_a_read_out_is_the_process_by_hand(report):
    model, x, y = problem()
    with torch.no_grad():
        features = [model.layer(part)[:, 0] for part in (x[120:], x[:120])]
    read = GPReadout(features[0], y[120:], task="regression")(features[1])
    prediction = cgp.predict(report.apply(model, "GP read-out + scale"), x[:120])
    torch.testing.assert_close(prediction.mean.double(), read.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(prediction.epistemic.double(), read.variance, rtol=1e-5, atol=1e-5)


def test_what_helps_is_recommended_and_what_does_not_is_not(report):
    assert list(report.scores) == METHODS
    assert report.method == "scale"  # errors do not depend on the inputs
    assert (
        "Beyond a constant variance, the posterior (NLL less than 0.0001 nats) shows no gain. The GP read-out (NLL +"
        in report.sentence
    )
    assert report.sentence.endswith(" are worse.")
    errors, deviations = report.outcomes["scale"]
    inside = (abs(errors) < norm.isf(0.05) * deviations).mean(1)
    scores = report.scores["scale"]
    said = f"Its error is {scores['rmse']:.3g} (root mean square), and {100 * scores['coverage90']:.1f}"
    first, advice, rest = report.sentence.split("\n")
    assert f"{said} ± {100 * inside.std(ddof=1) / 120**0.5:.1f} % of the values are in 90 % intervals, by a" in first
    assert advice == "Use a constant variance."
    assert rest.startswith("Beyond a constant variance, ")
    assert report.calls.startswith("model = report.apply(model)\nprediction = cgp.predict(model, inputs)")
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 300)[:, None]
    y = (3 * x).sin() + 0.1 * torch.randn(300, 1)
    frozen = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).eval()  # untrained: only a read-out fits
    found = cgp.assess(frozen, [(x[::2], y[::2])], task="regression", train=[(x[1::2], y[1::2])])
    assert found.method == "GP read-out + scale"
    assert found.sentence.splitlines()[1].startswith("Use a GP read-out")
    assert cgp.predict(found.apply(frozen), [(x[::2], y[::2])]).score()["rmse"] < 0.5 * found.scores["scale"]["rmse"]


def test_a_variance_head_is_compared_as_it_is_and_with_a_factor(tmp_path):
    torch.manual_seed(0)
    model, x = WithVariance().eval(), torch.randn(400, 3)
    heads = {"output": lambda out: out[0], "noise": lambda out: out[1]}
    with torch.no_grad():
        mean, variance = model(x)
        y = mean + torch.randn(400, 1) * (4 * variance).sqrt()
    found = cgp.assess(model, [(x, y)], task=Regression(**heads))
    assert list(found.scores) == ["as trained", "scale"]
    assert found.method == "scale"
    assert "a factor of its variance" in found.sentence
    assert found.choices["scale"].parameter.item() == pytest.approx(4.0, rel=0.2)
    assert cgp.predict(found.apply(model), [(x, y)], **heads).score()["coverage90"] == pytest.approx(0.9, abs=0.04)
    as_trained = cgp.predict(found.apply(model, "as trained"), x, **heads)
    torch.testing.assert_close(as_trained.total, variance)
    right = cgp.assess(model, [(x, mean + (y - mean) / 2)], task=Regression(**heads))
    assert right.method == "as trained"
    assert "as it is" in right.sentence


def test_a_network_without_attention_needs_no_posterior_argument():
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    report = cgp.assess(nn.Linear(3, 1), [(x, x[:, :1] + torch.randn(40, 1))], task="regression")
    assert list(report.scores) == ["scale"]


class Overflowing(nn.Module):
    """Outputs that are no numbers where the draws are far from the mean."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 1)

    def forward(self, x):
        large = (300 * self.head(self.layer(x, x, x, need_weights=False)[0].mean(1))).exp()
        return large / (1 + large)


def test_amplitudes_whose_draws_overflow_are_left_out():
    torch.manual_seed(0)
    model, x = Overflowing().eval(), torch.randn(60, 4, 8)
    with torch.no_grad():
        y = model(x) + 0.1 * torch.randn(60, 1)
    report = cgp.assess(model, [(x, y)], task="regression", compare=["posterior"], num_samples=16)
    assert np.isfinite(report.scores["posterior + scale"]["nll"])


@pytest.mark.parametrize("seed", range(20))
def test_the_scale_is_the_likeliest_of_a_grid(seed):
    """Variances of draws that are large where the errors are small: the factor is above the one without them."""
    random = np.random.default_rng(seed)
    spread = random.exponential(1.0, 12) * (random.random(12) < 0.7) * 10.0 ** random.uniform(-3, 3)
    noise, errors = random.exponential(1.0, 12) + 0.01, random.standard_normal(12) / (1.0 + spread)
    parts = [torch.tensor(part)[:, None] for part in (np.zeros(12), spread, noise)]

    def loss(scale):
        return -norm.logpdf(errors, scale=np.sqrt(spread + scale * noise)).mean(axis=-1)

    scale = float(Normals(*parts).fit(torch.tensor(errors)[:, None]))
    ratios = errors**2 / noise
    grid = np.geomspace(1e-6 * ratios.mean(), 2.0 * ratios.max(), 4000)
    assert loss(scale) <= loss(grid[:, None]).min() + 1e-6


def test_the_report_is_a_table_a_page_and_a_picture(report):
    text, columns = str(report), ["nll", "crps", "rmse", "coverage90", "width90"]
    assert text.splitlines()[0].split() == ["method", *columns, "NLL", "against", "scale"]
    assert report.to_frame().loc["scale", "nll"] == report.scores["scale"]["nll"]
    assert report.sentence.replace("'", "&#x27;").replace("\n", "<br>") in report.to_html()
    assert repr(report) == f"Assessment({report.method}, {report.num_labels} rows)"
    figure = report.plot()
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["calibrated", *METHODS]
    small = dataclasses.replace(report, num_labels=9, num_inputs=9)
    assert small.sentence == "9 rows of values say nothing of variances: at least 20 are needed."


def test_what_does_not_fit_is_refused(report):
    model, x, y = problem(30)
    pairs = [(x, y)]
    with pytest.raises(ValueError, match="ood: expected None with task='regression', got dict"):
        cgp.assess(model, pairs, task="regression", ood={"far": x})
    with pytest.raises(ValueError, match=r"data: expected values \(N, C\) of as many outputs"):
        cgp.assess(model, [(x, y[:, :1])], task="regression")
    with pytest.raises(ValueError, match="data: expected finite values, got NaN or infinity in row 3"):
        cgp.assess(model, [(x, y.index_fill(0, torch.tensor([3]), torch.nan))], task="regression")
    with pytest.raises(ValueError, match="data: expected at least 5 rows of values"):
        cgp.assess(model, [(x[:4], y[:4])], task="regression")
    with pytest.raises(ValueError, match=r"noise: expected positive variances of shape \(30, 2\)"):
        cgp.assess(model, pairs, task=Regression(noise=lambda out: out))
    with pytest.raises(ValueError, match="method: expected one of .* got 'temperature'"):
        report.apply(model, "temperature")
    with pytest.raises(ValueError, match="expected the one that was assessed"):
        report.apply(nn.Linear(2, 2))


def test_a_representation_of_other_functions_is_read_throughout(tmp_path):
    def features(m, x):
        return m.layer(x).flatten(1)[:, :5]

    model, x, y = problem()
    train, known = [(x[120:], y[120:])], [(x[:120], y[:120])]
    found = cgp.assess(model, known, task=Regression(features=features), train=train)
    by_hand = GPReadout(features(model, x[120:]), y[120:], task="regression")(features(model, x[:9]))
    options = {"task": Regression(features=features), "method": "readout", "train": train}
    calibrated = cgp.calibrate(model, known, **options).model
    for changed in (found.apply(model, "GP read-out + scale"), calibrated):
        torch.testing.assert_close(cgp.predict(changed, x[:9]).mean.double(), by_hand.mean, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="expected a read-out with the default features and output"):
        cgp.save_pretrained(calibrated, tmp_path)


def of_values(model, y, x, **options):
    return cgp.assess(model, [(x, y)], task=Regression(**options), num_samples=2)


def test_a_regression_at_chance_is_said_to_be_before_anything_is_fitted():
    torch.manual_seed(0)
    model, x = Tower().eval(), torch.randn(200, 4, 8)
    found = of_values(model, torch.randn(200, 2), x)
    assert list(found.scores) == ["scale"]
    assert found.left_out == ("posterior", "dropout")
    assert ": these outputs say nothing of the values (are the values in" in found.sentence
    assert "that of the values' mean " in found.sentence
    assert "Use the model as it is, if at all." in found.sentence
    assert found.calls == ""


def test_a_regression_that_knows_ranks_or_sizes_of_errors_is_not_at_chance():
    """Its values are ten times too large; or nothing but the variance can be predicted, and is four times too small."""
    torch.manual_seed(0)
    model, x = Tower().eval(), torch.randn(200, 4, 8)
    with torch.no_grad():
        y = 0.1 * model(x) + 0.1 * torch.randn(200, 2)
    found = of_values(model, y, x)
    assert "posterior + scale" in found.scores
    assert (
        f"that of the values' mean {float(y.std(0, correction=0).square().mean()) ** 0.5:.3g}, and " in found.sentence
    )
    x = torch.randn(300, 3)
    y = (0.2 + x[:, :1].square()).sqrt() * torch.randn(300, 1)
    model = WithVariance()
    nn.init.zeros_(model.mean.weight)
    assert not of_values(model, y, x, output=lambda out: out[0], noise=lambda out: out[1]).is_at_chance


def test_a_regression_no_better_than_the_mean_of_the_values_is_said_to_be():
    """Though its ranks are right, as where values are in other units."""
    torch.manual_seed(0)
    model, x = Tower().eval(), torch.randn(200, 4, 8)
    with torch.no_grad():
        y = model(x)
    said = "It is no better than to predict that mean (are the values in the units and the order of the outputs?)."
    assert said in of_values(model, 0.1 * y + 0.1 * torch.randn(200, 2), x).sentence
    assert said not in of_values(model, y + 0.1 * torch.randn(200, 2), x).sentence
