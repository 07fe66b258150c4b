"""Calibration of models that are not converted: a temperature, dropout, a read-out; what cannot be is refused."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from cgp import Detector, GPReadout, assess, calibrate, convert, from_pretrained, pipeline, predict, save_pretrained
from cgp.functional.noise import noise
from cgp.networks.detect.detector import DETECTORS, FURTHER
from cgp.networks.methods import Dropout, Temperature
from cgp.networks.methods.dropout import SampledDropout
from cgp.networks.model.fingerprints import logit_temperature
from cgp.networks.model.structural_copy import structural_copy
from cgp.networks.model.tempering import probabilities
from cgp.networks.predict.drawing import draw_noises, seeds_from
from cgp.networks.tasks import Classification
from tests.cgp.networks.convert import hosts


def with_dropout(model):
    """A copy whose dropout draws."""
    return Dropout().apply(structural_copy(model))


def problem(num_classes=3):
    """A network without attention, too sure of labels that are mostly noise."""
    torch.manual_seed(0)
    layers = nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, num_classes)
    model = nn.Sequential(*layers).eval()
    with torch.no_grad():
        layers[-1].weight *= 12
    x = torch.randn(300, 4)
    y = torch.distributions.Categorical(logits=model(x).detach() / 3).sample()
    return model, x, y


def test_any_classifier_takes_a_temperature(tmp_path):
    model, x, y = problem()
    report = calibrate(model, [(x, y)], method="temperature")
    assert 2 < report.temperature < 4.5
    assert report.nll < report.nll_mean - 0.1
    assert report.accuracy == report.accuracy_mean
    assert report.num_labels == 300
    prediction = predict(report.model, [(x, y)])
    with torch.no_grad():
        torch.testing.assert_close(prediction.mean, model(x) / report.temperature)
    assert prediction.score()["nll"] == pytest.approx(report.nll, abs=1e-5)
    assert prediction.epistemic is None
    assert predict(copy.deepcopy(report.model), x).mean.equal(prediction.mean)
    save_pretrained(report.model, tmp_path)
    assert predict(from_pretrained(tmp_path, problem()[0]), x).mean.equal(prediction.mean)
    assert str(report).splitlines()[0] == f"temperature {report.temperature:.3f}"


def test_without_draws_is_without_those_of_a_posterior():
    host, x, y = hosts.timm_vit().model, torch.randn(48, 3, 16, 16), torch.randint(0, 5, (48,))
    report = calibrate(convert(host, amplitude=3.0), [(x, y)], method="temperature")
    with torch.no_grad():
        expected = nn.functional.cross_entropy(host.eval()(x), y).item()
    assert report.nll_mean == pytest.approx(expected, rel=1e-5)


def test_the_second_calibration_replaces_the_first():
    model, x, y = problem()
    first = calibrate(model, [(x, y)], method="temperature").model
    second = calibrate(first, [(x, y)], method="temperature")
    assert second.nll_mean == pytest.approx(second.nll)
    dropped = calibrate(first, [(x, y)], method="dropout").model
    again = calibrate(dropped, [(x, y)], method="temperature")
    assert torch.equal(predict(again.model, x).mean, predict(first, x).mean)


def test_dropout_draws_are_masks_by_hand():
    model, x, y = problem()
    report = calibrate(model, [(x, y)], method="dropout", num_samples=16)
    assert report.disagreement > 0.01
    prediction = predict(report.model, x, 6, seed=5, keep_draws=True)
    with torch.no_grad():
        hidden, expected = model[1](model[0](x)), []
        for seed, sign in draw_noises(6, seeds_from(5)):
            z = sign * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(seed))
            kept = torch.distributions.Normal(0, 1).cdf(z) > 0.3
            expected.append((model[3](hidden * kept / 0.7) / report.temperature).softmax(-1))
    torch.testing.assert_close(prediction.draws, torch.stack(expected), rtol=1e-4, atol=1e-5)
    assert prediction.epistemic.mean() > 0.005
    torch.testing.assert_close(predict(report.model, x, 6, seed=5).mean, prediction.mean)  # of the same seed


def test_dropout_leaves_the_mean_and_the_state_dict():
    model, x, _ = problem()
    changed = with_dropout(model)
    assert changed.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(changed(x), model(x))
    torch.manual_seed(0)
    transformer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True), 2).eval()
    drawn = predict(with_dropout(transformer), torch.randn(3, 5, 8), 8, task=None, seed=0)
    assert (drawn.epistemic > 0).all()  # the fused way in eval mode would pass the layers by


@pytest.mark.parametrize(("dims", "layer"), [(1, nn.Dropout1d), (2, nn.Dropout2d), (3, nn.Dropout3d)])
def test_channels_are_dropped_whole(dims, layer):
    x = torch.ones(64, 32, *(4,) * dims)
    changed = with_dropout(nn.Sequential(layer(0.25)))[0]
    changed.sampling = "marginal"
    with noise(0):
        found = changed(x)
    assert set(found.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    channels = found.flatten(2)
    assert torch.equal(channels.amin(-1), channels.amax(-1))
    assert float((channels == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
    with noise(0, -1.0):
        reflected = changed(x)
    assert not ((reflected == 0) & (found == 0)).any()  # p below one half: never dropped twice


def test_every_detector_is_fitted_scored_and_thresholded():
    model, x, y = problem()
    for name in (*DETECTORS, *FURTHER):
        detector = Detector(name).fit(model, x[200:], train=[(x[:200], y[:200])])
        scores = detector.score(model, x[200:]).numpy()
        np.testing.assert_allclose(np.sort(scores), detector.known, rtol=1e-4, atol=1e-6)
        assert (scores > detector.threshold(0.1)).mean() <= 0.1
        assert detector.threshold(0.001) == np.inf
        again = predict(detector.attach(model), x[:7])
        torch.testing.assert_close(again.ood[name], detector.score(model, x[:7]))
    far = Detector("Mahalanobis").fit(model, x[200:], train=[(x[:200], y[:200])])
    assert (far.score(model, 50 * x[:20]) > far.threshold(0.05)).all()


def test_what_a_method_needs_is_asked_for():
    model, x, y = problem()
    with pytest.raises(ValueError, match="method: expected one of .* got 'isotonic'"):
        calibrate(model, [(x, y)], method="isotonic")
    with pytest.raises(ValueError, match="train: expected labelled training data with method='readout', got NoneType"):
        calibrate(model, [(x, y)], method="readout")
    with pytest.raises(ValueError, match="model: expected dropout layers"):
        calibrate(nn.Linear(4, 3), [(x, y)], method="dropout")
    with pytest.raises(ValueError, match="method='temperature' takes any classifier"):
        calibrate(model, [(x, y)], method="posterior")
    with pytest.raises(ValueError, match="scaled: expected True"):
        calibrate(model, [(x, y)], method=Temperature(scaled=False))
    with pytest.raises(ValueError, match="name: expected one of"):
        Detector("typicality")
    with pytest.raises(ValueError, match="expected fit"):
        Detector("energy").score(model, x)
    with pytest.raises(ValueError, match="train: expected labelled training data for 'GP variance'"):
        Detector("GP variance").fit(model, x)
    with pytest.raises(ValueError, match="cgp.assess fits it"):
        Detector("epistemic").fit(model, x)


def test_detectors_with_other_functions_are_not_written(tmp_path):
    model, x, _ = problem()
    detector = Detector("energy", task=Classification(lambda out: 2 * out)).fit(model, x)
    with pytest.raises(ValueError, match="expected detectors with the default features and output"):
        save_pretrained(detector.attach(model), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_damaged_calibration_is_refused(tmp_path):
    model, x, y = problem()
    save_pretrained(calibrate(model, [(x, y)], method="temperature").model, tmp_path)
    file = tmp_path / "cgp_calibration.safetensors"
    text = file.read_bytes()
    at = text.index(b"temperature") + 17
    file.write_bytes(text[:at] + (b"9" if text[at : at + 1] != b"9" else b"8") + text[at + 1 :])
    with pytest.raises(ValueError, match="expected weights, got a damaged file"):
        from_pretrained(tmp_path, problem()[0])


def test_a_pipeline_takes_what_was_calibrated(tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]))
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    torch.manual_seed(0)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    host = transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=7, num_labels=3, **size)
    ).eval()
    inputs = tokenizer(["good", "bad", "good bad"] * 10, padding=True, return_tensors="pt")
    labels = torch.arange(30) % 3
    for method in ("temperature", "dropout", "readout"):
        options = {"train": [dict(inputs, labels=labels)]} if method == "readout" else {}
        model = calibrate(host, [dict(inputs, labels=labels)], method=method, **options).model
        answer = pipeline("text-classification", model, tokenizer=tokenizer, num_samples=4, seed=0)("good")[0]
        expected = predict(model, dict(tokenizer(["good"], return_tensors="pt")), 4, seed=0)
        assert answer["score"] == pytest.approx(float(expected.confidence), rel=1e-4)
        assert answer["total"] == pytest.approx(float(expected.total), rel=1e-4)
        save_pretrained(model, tmp_path / method)
        again = from_pretrained(tmp_path / method)
        assert torch.equal(predict(again, dict(inputs), 4, seed=0).mean, predict(model, dict(inputs), 4, seed=0).mean)


class TwoHeads(nn.Module):
    """Returns the output of its first head, and calls another one after it."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 5)

    def forward(self, x):
        z = self.body(x).tanh()
        returned = self.head(input=z)
        self.other(1.0 - z)
        return returned


@pytest.mark.parametrize(
    ("build", "represent"),
    [
        (lambda: nn.Linear(4, 3), lambda model, x: x),
        (lambda: nn.Sequential(nn.Linear(4, 3)), lambda model, x: x),
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), lambda model, x: model[:2](x)),
        (TwoHeads, lambda model, x: model.body(x).tanh()),
    ],
)
def test_a_read_out_reads_what_the_output_layer_reads(build, represent):
    torch.manual_seed(0)
    model, x = build().eval(), torch.randn(90, 4)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    train, known = [(x[:60], y[:60])], [(x[60:], y[60:])]
    report = assess(model, known, train=train, compare=["readout"])  # at chance nothing is fitted unless it is named
    by_hand = GPReadout(represent(model, x[:60]), y[:60])(represent(model, x[60:])).probabilities.log()
    for changed in (
        calibrate(model, known, method="readout", train=train).model,
        report.apply(model, "GP read-out + temperature"),
    ):
        expected = probabilities(by_hand, logit_temperature(changed)).float()
        torch.testing.assert_close(predict(changed, x[60:]).probabilities, expected, rtol=1e-4, atol=1e-5)
        with pytest.warns(match="without the temperature of"):
            torch.testing.assert_close(changed(x[60:]), by_hand.float(), rtol=1e-4, atol=1e-5)


class Kernel(nn.Module):
    """Squared distances to learned points instead of a linear layer, in a tuple."""

    def __init__(self):
        super().__init__()
        self.points = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return x, -torch.cdist(x, self.points).square()


def test_a_model_without_linear_layers_is_given_its_representation(tmp_path):
    torch.manual_seed(0)
    model, x = Kernel(), torch.randn(90, 4)
    y = torch.arange(90) % 3
    train, known = [(x[:60], y[:60])], [(x[60:], y[60:])]
    options = {"output": lambda out: out[1], "features": lambda model, x: model(x)[1].detach()}
    with pytest.raises(ValueError, match=r"expected a linear layer .* \(pass features=..., a function of the model"):
        calibrate(model, known, method="readout", train=train, task=Classification(options["output"]))
    by_hand = GPReadout(model(x[:60])[1], y[:60])(model(x[60:])[1]).probabilities.log()
    report = assess(model, known, train=train, task=Classification(**options), compare=["readout"])
    assert report.task.options == ", output=..."
    for changed in (
        calibrate(model, known, method="readout", train=train, task=Classification(**options)).model,
        report.apply(model, "GP read-out + temperature"),
    ):
        found = predict(changed, x[60:], output=options["output"])
        expected = probabilities(by_hand, logit_temperature(changed)).float()
        torch.testing.assert_close(found.probabilities, expected, rtol=1e-4, atol=1e-5)
        with pytest.warns(match="without the temperature of"):
            torch.testing.assert_close(changed(x[60:])[0], x[60:])
        with pytest.raises(ValueError, match="expected a read-out with the default features and output"):
            save_pretrained(changed, tmp_path / "folder")
    doubled = options | {"output": lambda out: 2 * out[1]}
    with pytest.raises(ValueError, match="output: expected a function that takes one of the tensors"):
        calibrate(model, known, method="readout", train=train, task=Classification(**doubled))


def test_sampled_dropout_follows_the_noise():
    layer = SampledDropout(0.5).eval()
    layer.sampling = "marginal"
    with noise(3):
        first = layer(torch.ones(50))
    with noise(3, -1.0):
        second = layer(torch.ones(50))
    assert torch.equal(first + second, torch.full((50,), 2.0))


def test_models_of_hosts_with_attention_take_every_method():
    host = hosts.timm_vit()
    x, y = torch.randn(40, 3, 16, 16), torch.arange(40) % 5
    (x, seen), (y, of_seen) = x.split(20), y.split(20)
    for method, options in (("temperature", {}), ("readout", {"train": [(seen, of_seen)]})):
        model = calibrate(host.model, [(x, y)], method=method, **options).model
        assert predict(model, x).probabilities.shape == (20, 5)


CLASSES = "train: expected labels that are class indices from 0 to 1"
COMPUTED = "output: expected a function that takes one of the tensors that the model returns"


@pytest.mark.parametrize(
    ("size", "task", "classes", "message"),
    [(2, Classification(), 3, CLASSES), (1, Classification(lambda z: torch.cat([0 * z, z], -1)), 2, COMPUTED)],
)
@pytest.mark.parametrize("entry", [partial(calibrate, method="readout"), partial(assess, compare=["readout"])])
def test_what_no_read_out_can_replace_is_refused_before_the_fit(size, task, classes, message, entry, monkeypatch):
    monkeypatch.setattr(GPReadout, "__init__", lambda *args, **options: pytest.fail("fitted"))
    x = torch.randn(90, 4)
    with pytest.raises(ValueError, match=message):
        entry(nn.Linear(4, size), [(x, torch.arange(90) % 2)], train=[(x + 1.0, torch.arange(90) % classes)], task=task)


class Merging(nn.Linear):
    """Rewrites its weights where it is told to be in another mode, as some adapters do."""

    def train(self, mode=True):
        with torch.no_grad():
            self.weight += 1.0
        return super().train(mode)


def test_a_read_out_of_a_training_network_reads_what_it_predicts_by():
    torch.manual_seed(0)
    model, x = nn.Sequential(Merging(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3)), torch.randn(90, 4)
    y, other = torch.arange(90) % 3, copy.deepcopy(model)
    data, train = [(x[:40], y[:40])], [(x[40:], y[40:])]
    for module in other.modules():
        module.training = False
    expected = calibrate(other, data, method="readout", train=train)
    assert calibrate(model, data, method="readout", train=train).nll == expected.nll
    assert model.training
    assert torch.equal(model[0].weight, other[0].weight)
