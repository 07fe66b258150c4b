"""Networks that regress: the scale of their errors, heads with a variance, dropout, a read-out; against scipy."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import norm
from torch import nn

from cgp import calibrate, convert, from_pretrained, predict, save_pretrained, with_held_out
from cgp.networks.methods import Posterior
from cgp.networks.predict.readout import GPReadout
from cgp.networks.tasks import Regression
from tests.oracles import rbf


class WithVariance(nn.Module):
    """A mean and a variance, of which the second is a quarter of what it should be."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(3, 2)

    def forward(self, x):
        return self.mean(x), 0.25 * (1 + x[:, :2].square())


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 2)).eval()


def data(model, count=400):
    torch.manual_seed(1)
    x = torch.randn(count, 3)
    with torch.no_grad():
        mean = model(x)[0] if isinstance(model, WithVariance) else model(x)
    return x, mean + torch.randn(count, 2) * torch.tensor([0.5, 3.0])


def test_the_scale_is_the_mean_square_of_each_output(tmp_path):
    model = network()
    x, y = data(model)
    report = calibrate(model, [(x, y)], task="regression", method="scale")
    with torch.no_grad():
        errors = (y - model(x)).double()
    torch.testing.assert_close(report.scale, errors.square().mean(0), rtol=1e-5, atol=1e-7)
    prediction = predict(report.model, [(x, y)])
    assert prediction.task == "regression"
    expected = -norm.logpdf(errors, scale=report.scale.sqrt()).mean()
    assert (
        prediction.score()["nll"] == pytest.approx(expected, rel=1e-4) == pytest.approx(report.scores["nll"], rel=1e-4)
    )
    assert prediction.score()["coverage90"] == pytest.approx(0.9, abs=0.05)
    save_pretrained(report.model, tmp_path)
    again = predict(from_pretrained(tmp_path, network()), x)
    assert torch.equal(again.total, prediction.total)


def test_a_variance_head_gets_a_factor(tmp_path):
    model = WithVariance()
    x, _ = data(model)
    torch.manual_seed(2)
    with torch.no_grad():
        mean, variance = model(x)
    y = mean + torch.randn(mean.shape) * (4 * variance).sqrt()
    heads = {"output": lambda out: out[0], "noise": lambda out: out[1]}
    report = calibrate(model, [(x, y)], task=Regression(**heads), method="scale")
    torch.testing.assert_close(report.scale, ((y - mean).square() / variance).double().mean(0), rtol=1e-5, atol=1e-6)
    assert ((report.scale > 3) & (report.scale < 5)).all()
    prediction = predict(report.model, x, **heads)
    torch.testing.assert_close(prediction.total, variance * report.scale.float())
    save_pretrained(report.model, tmp_path)
    again = from_pretrained(tmp_path, WithVariance())
    assert torch.equal(predict(again, x, **heads).total, prediction.total)
    with pytest.raises(ValueError, match="noise: expected what takes the variance from what the model returns"):
        predict(again, x, output=heads["output"])
    with pytest.raises(ValueError, match="noise: expected positive variances"):
        predict(model, x, task="regression", output=heads["output"], noise=lambda out: -out[1])
    kept = with_held_out(report.model, [(x + 1.0, y)], **heads)  # others than those that fitted it
    ends = predict(kept, x[:5], **heads).intervals(0.9)
    half = (ends[..., 1] - ends[..., 0]) / 2 / prediction.total[:5].sqrt()
    torch.testing.assert_close(half, half[:1].expand(5, 2))  # normalised: wider where the head says so


def test_dropout_has_the_likeliest_noise_beside_its_draws():
    model = network()
    x, y = data(model)
    report = calibrate(model, [(x, y)], task="regression", method="dropout", num_samples=16)
    prediction = predict(report.model, x, 16, seed=0)
    spread, squares = prediction.epistemic.double(), (y - prediction.mean).double().square()
    for c in range(2):

        def loss(logarithm, c=c):
            total = spread[:, c] + np.exp(logarithm[0])
            return float((total.log() + squares[:, c] / total).mean())

        best = minimize(loss, [0.0], method="Nelder-Mead", options={"xatol": 1e-6}).x
        assert float(report.scale[c]) == pytest.approx(np.exp(best[0]), rel=1e-2)
    torch.testing.assert_close(prediction.total, prediction.epistemic + report.scale.float())


def test_with_every_point_inducing_the_read_out_is_a_gaussian_process():
    rng = np.random.default_rng(0)
    features, new = rng.normal(size=(25, 2)), rng.normal(size=(7, 2))
    values = np.stack([np.sin(features[:, 0]), 5 + 10 * features[:, 1]], -1) + 0.05 * rng.normal(size=(25, 2))
    readout = GPReadout(features, values, task="regression")
    z, x = ((f - features.mean(0)) / features.std(0, ddof=1) / readout.lengthscale for f in (features, new))
    targets = (values - values.mean(0)) / values.std(0, ddof=1)
    inverse = np.linalg.inv(rbf(z, z) + readout.noise * np.eye(25))
    cross, read = rbf(x, z), readout(new)
    mean = values.mean(0) + values.std(0, ddof=1) * (cross @ inverse @ targets)
    variance = readout.variance * (1 - np.sum(cross @ inverse * cross, 1))
    np.testing.assert_allclose(read.mean, mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(read.variance, variance[:, None] * values.var(0, ddof=1), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(read.noise, readout.noise * readout.variance * values.var(0, ddof=1))
    again = GPReadout.of_state(*readout.state())(new)
    assert all(torch.equal(a, b) for a, b in zip(again, read, strict=True))


def test_the_read_out_of_a_network_predicts_values(tmp_path):
    model = network()
    x, _ = data(model)
    y = torch.stack([x[:, 0].sin(), x[:, 1] * x[:, 2]], -1)
    y += 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    options = {"task": "regression", "method": "readout"}
    report = calibrate(model, [(x[300:], y[300:])], train=[(x[:300], y[:300])], **options)
    prediction = predict(report.model, [(x[300:], y[300:])])
    far = predict(report.model, 100 * x[:5])
    assert prediction.score()["rmse"] < 0.5 * float(y.std())
    torch.testing.assert_close(prediction.total, prediction.epistemic + prediction.aleatoric)
    assert (far.epistemic.mean(0) > 2 * prediction.epistemic.mean(0)).all()
    save_pretrained(report.model, tmp_path)
    again = predict(from_pretrained(tmp_path, network()), x)
    assert torch.equal(again.total, predict(report.model, x).total)


class Tower(nn.Module):
    """Two outputs of a sequence, through attention."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.layer(x)[:, 0])


def attending():
    """A network whose errors are those of its last layer's attention, drawn at nine times its amplitude."""
    torch.manual_seed(0)
    network, x = Tower().eval(), torch.randn(300, 4, 8)
    with torch.no_grad():
        network.head.weight *= 5
    drawn = predict(convert(network, amplitude=0.9), x, 2, task="regression", seed=7, keep_draws=True)
    return convert(network), network, x, drawn.draws[0] + 0.05 * torch.randn(300, 2)


def test_a_posterior_gets_its_amplitude_and_a_scale(tmp_path):
    model, host, x, y = attending()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    options = {"task": "regression", "num_samples": 32, "seed": 0}
    report, plain = (calibrate(model, [(x, y)], method=m, **o) for m, o in (
        (Posterior(criterion="likelihood"), options), ("scale", {"task": "regression"})))  # fmt: skip
    assert 4 <= report.factor <= 16
    assert report.scores["nll"] < plain.scores["nll"] - 0.1
    by_hand = predict(convert(host, amplitude=0.1 * report.factor), x, 32, task="regression", seed=0)
    prediction = predict(report.model, [(x, y)], 32, seed=0)
    torch.testing.assert_close(prediction.epistemic, by_hand.epistemic, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(prediction.total, by_hand.epistemic + report.scale.float(), rtol=1e-3, atol=1e-5)
    assert prediction.score()["nll"] == pytest.approx(report.scores["nll"], rel=1e-4)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    save_pretrained(report.model, tmp_path)
    again = predict(from_pretrained(tmp_path, host), x, 32, seed=0)
    assert torch.equal(again.total, prediction.total)
    widest = calibrate(model, [(x, y)], method="posterior", **options)
    assert widest.factor >= report.factor
    assert "variance" in str(widest)


def test_no_other_amplitude_of_a_posterior_is_likelier():
    model, host, x, y = attending()
    options = {"task": "regression", "method": Posterior(criterion="likelihood"), "num_samples": 32, "seed": 0}
    chosen = calibrate(model, [(x, y)], **options).factor
    losses = {}
    for factor in (chosen / 4, chosen, 4 * chosen):
        drawn = predict(convert(host, amplitude=0.1 * factor), x, 32, task="regression", seed=0)
        spread, squares = drawn.epistemic.double().T.numpy(), (y - drawn.mean).square().double().T.numpy()

        def loss(logarithm, c, spread=spread, squares=squares):
            total = spread[c] + np.exp(logarithm)
            return (np.log(total) + squares[c] / total).mean()

        losses[factor] = sum(minimize_scalar(loss, (-6, 1), args=(c,)).fun for c in range(2))
    assert min(losses, key=losses.get) == chosen


def test_a_posterior_needs_layers_that_have_one():
    model = network()
    with pytest.raises(ValueError, match="expected layers whose mean is softmax's .*'scale' any regression"):
        calibrate(model, [data(model)], task="regression", method="posterior")


def test_single_outputs_take_values_without_a_dimension():
    model = nn.Sequential(nn.Linear(3, 1))
    x = torch.randn(50, 3)
    y = model(x).detach()[:, 0] + torch.randn(50)
    report = calibrate(model, [(x[:30], y[:30]), (x[30:], y[30:])], task="regression", method="scale")
    assert report.num_labels == 50
    assert predict(report.model, [(x, y)]).score()["rmse"] == pytest.approx(report.scores["rmse"], rel=1e-5)
    flat = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    with pytest.raises(ValueError, match=r"pass output=lambda out: out\[:, None\]"):
        calibrate(flat, [(x, y)], task="regression", method="scale")


def test_what_is_no_regression_is_refused():
    model = network()
    x, y = data(model, 20)
    options = {"task": "regression", "method": "scale"}
    for batch, message in (
        ((x, torch.zeros(20, 2).long()), "data: expected values that are floating-point numbers"),
        ((x, y[:, :1]), r"data: expected values \(N, C\) of as many outputs"),
        ((x, y * torch.nan), "data: expected finite values"),
        ((x, model(x).detach()), "right everywhere"),
    ):
        with pytest.raises(ValueError, match=message):
            calibrate(model, [batch], **options)
    with pytest.raises(ValueError, match="method: expected 'scale' with task='regression', got 'temperature'"):
        calibrate(model, [(x, y)], task="regression", method="temperature")
    with pytest.raises(ValueError, match="task: expected one of"):
        calibrate(model, [(x, y)], task="ranking")
    with pytest.raises(ValueError, match="labels: expected finite numbers, got NaN or infinity in row 0"):
        GPReadout(x, y * torch.inf, task="regression")
    with pytest.raises(ValueError, match="say task='regression' if they are values of one"):
        calibrate(model, [(x, y)], method="temperature")  # never guessed in silence
