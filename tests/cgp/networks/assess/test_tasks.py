"""Several labels and dense maps: as one classification for each label or pixel, by scipy and by hand."""

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

from cgp import assess, calibrate, from_pretrained, predict, save_pretrained
from cgp.networks.tasks import Classification


def several(count=120):
    torch.manual_seed(0)
    model = nn.Linear(3, 5)
    with torch.no_grad():
        model.weight *= 6
    x = torch.randn(count, 3)
    return model, x, (model(x).detach() / 2.5).sigmoid().bernoulli()


def maps(count=24):
    torch.manual_seed(0)
    model = nn.Conv2d(2, 4, 1)
    with torch.no_grad():
        model.weight *= 6
    x = torch.randn(count, 2, 5, 6)
    y = torch.distributions.Categorical(logits=model(x).detach().movedim(1, -1) / 2.5).sample()
    y[:, 0] = -100
    return model, x, y


def losses_of(task, logits, y):
    if task == "multilabel":
        return nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="none")
    return nn.functional.cross_entropy(logits, y, reduction="none")[y != -100]  # classes first


@pytest.mark.parametrize(("task", "problem"), [("multilabel", several), ("dense", maps)])
def test_the_temperature_is_the_likeliest_of_all_labels(task, problem, tmp_path):
    model, x, y = problem()
    with torch.no_grad():
        logits = model(x).double()
    target = y.double() if task == "multilabel" else y
    best = minimize_scalar(
        lambda t: float(losses_of(task, logits / t, target).mean()), bounds=(0.5, 10), method="bounded"
    ).x
    report = calibrate(model, [(x, y)], task=task, method="temperature")
    assert report.temperature == pytest.approx(best, rel=1e-3)
    assert report.nll == pytest.approx(float(losses_of(task, logits / best, target).mean()), rel=1e-4)
    prediction = predict(report.model, [(x, y)], task=task)
    assert prediction.score()["nll"] == pytest.approx(report.nll, rel=1e-4)
    scaled = (logits / report.temperature).float()
    expected = scaled.sigmoid() if task == "multilabel" else scaled.softmax(1).movedim(1, -1)
    torch.testing.assert_close(prediction.probabilities, expected, rtol=1e-4, atol=1e-6)
    save_pretrained(report.model, tmp_path)
    again = predict(from_pretrained(tmp_path, problem()[0]), x, task=task)
    assert torch.equal(again.probabilities, prediction.probabilities)


@pytest.mark.parametrize(("task", "problem"), [("multilabel", several), ("dense", maps)])
def test_assessments_are_of_labels_by_inputs(task, problem):
    model, x, y = problem()
    report = assess(model, [(x[:10], y[:10]), (x[10:], y[10:])], task=task)
    with torch.no_grad():
        expected = losses_of(task, model(x), y)
    assert report.scores["as trained"]["nll"] == pytest.approx(float(expected.mean()), rel=1e-4)
    assert (report.num_labels, report.num_inputs) == (expected.numel(), len(x))
    assert report.method == "temperature"
    scores = predict(report.apply(model), [(x, y)], task=task).score()
    assert scores["nll"] < report.scores["as trained"]["nll"] - 0.1


def test_what_was_not_named_is_refused():
    model, x, y = several()
    with pytest.raises(ValueError, match="which are whole numbers, got torch.float32"):
        calibrate(model, [(x, y)], method="temperature")
    with pytest.raises(ValueError, match=r"expected logits \(N, C\) with task='multilabel'"):
        calibrate(nn.Unflatten(1, (1, 3)), [(x, y[:, :3])], task="multilabel", method="temperature")
    with pytest.raises(ValueError, match="class indices from 0 to 1"):
        calibrate(model, [(x, y + 1)], task="multilabel", method="temperature")
    with pytest.raises(ValueError, match="which are whole numbers"):
        calibrate(model, [(x, y / 2)], task="multilabel", method="temperature")
    conv, images, labels = maps()
    with pytest.raises(ValueError, match="expected logits|labels of shape"):
        assess(conv, [(images, labels.clamp(min=0))])
    with pytest.raises(ValueError, match=r"expected logits \(N, C, H, W\) with task='dense'"):
        predict(model, x, task="dense")


def test_what_takes_the_logits_is_an_argument():
    """Of a network that ends with a softmax: the report and the temperature of its logits."""
    torch.manual_seed(0)
    host, x = nn.Linear(3, 4), torch.randn(200, 3)
    y = torch.distributions.Categorical(logits=host(x).detach() / 2.5).sample()
    ending, options = nn.Sequential(host, nn.Softmax(-1)), {"output": lambda p: p.log()}
    plain, read = assess(host, [(x, y)]), assess(ending, [(x, y)], **options)
    assert read.sentence == plain.sentence
    assert "output=..." in read.calls
    temperatures = [
        calibrate(model, [(x, y)], method="temperature", **given).temperature
        for model, given in ((host, {}), (ending, options))
    ]
    assert temperatures[0] == pytest.approx(temperatures[1], rel=1e-4)
    with pytest.raises(ValueError, match="output: expected None beside a task, which has its own, got another"):
        assess(ending, [(x, y)], task=Classification(**options), **options)
