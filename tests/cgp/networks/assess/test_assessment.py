"""What an assessment advises, put into a model: the table's own numbers come out of its predictions."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

from cgp import Detector, assess, calibrate, convert, from_pretrained, predict, save_pretrained, with_held_out
from cgp.networks.methods.known import Posterior, Readout
from cgp.networks.model.fingerprints import set_logit_temperature
from cgp.networks.predict.method import Method, Settings, as_assessed, settings_of, with_settings
from cgp.networks.predict.readout import GPReadout
from cgp.networks.tasks.metrics import auroc
from tests.cgp.networks.model.digits import DigitsTransformer, digits, trained

X, Y = digits()
KNOWN, TRAIN, FOREIGN = [(X[800:1000], Y[800:1000])], [(X[:300], Y[:300])], 1 - X[1200:1300]
METHODS = ["as trained", "temperature", "posterior", "posterior + temperature", "widest posterior"]
METHODS += ["GP read-out + temperature"]
SCORES = ["1 - confidence", "entropy", "energy", "widest posterior's entropy", "epistemic", "Mahalanobis"]
SCORES += ["GP variance", "Mahalanobis + energy", "GP variance + energy"]


@pytest.fixture(scope="module")
def report():
    return assess(trained(), KNOWN, train=TRAIN, ood={"inverted": FOREIGN}, num_samples=4)


@torch.no_grad()
def logits(x):
    return trained()(x)


def test_the_temperature_is_the_likeliest_of_all_labels(report):
    f, y = logits(X[800:1000]).double(), Y[800:1000]
    losses = lambda t: float(nn.functional.cross_entropy(f / t, y))  # noqa: E731
    best = minimize_scalar(losses, bounds=(0.25, 8), method="bounded", options={"xatol": 1e-6}).x
    model = report.apply(trained(), "temperature", [])
    torch.testing.assert_close(
        predict(model, X[1300:]).probabilities, (logits(X[1300:]) / best).softmax(-1), rtol=1e-3, atol=1e-5
    )
    by_hand = calibrate(trained(), KNOWN, method="temperature")
    assert by_hand.temperature == pytest.approx(best, rel=1e-3)
    torch.testing.assert_close(predict(by_hand.model, FOREIGN).mean, predict(model, FOREIGN).mean)


def test_the_posterior_is_that_of_conversion_by_hand(report):
    _, factor, temperature = report.choices["posterior + temperature"]
    by_hand = convert(trained(), amplitude=0.1 * factor)
    expected = predict(by_hand, FOREIGN, 4, seed=0, keep_draws=True, task="regression").draws / temperature
    found = predict(report.apply(trained(), "posterior + temperature"), FOREIGN, 4, seed=0, keep_draws=True)
    torch.testing.assert_close(found.draws, expected.softmax(-1), rtol=1e-3, atol=1e-5)


def test_the_read_out_is_that_by_hand(report):
    with torch.no_grad():
        readout = GPReadout(trained().features(X[:300]), Y[:300])
        expected = readout(trained().features(FOREIGN)).probabilities.log()
    temperature = report.choices["GP read-out + temperature"].parameter
    model = report.apply(trained(), "GP read-out + temperature")
    expected = (expected / temperature).softmax(-1).float()
    torch.testing.assert_close(predict(model, FOREIGN).probabilities, expected, rtol=1e-4, atol=1e-5)
    by_hand = calibrate(trained(), KNOWN, method="readout", train=TRAIN).model
    torch.testing.assert_close(predict(by_hand, FOREIGN).probabilities, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_those_of_the_table_and_survive_the_disk(report, method, tmp_path):
    given = trained()
    before, attributes = copy.deepcopy(given.state_dict()), set(vars(given))
    model = report.apply(given, method, SCORES)
    known, foreign = (predict(model, x, 4, seed=0) for x in (KNOWN[0][0], FOREIGN))
    for name in SCORES:
        expected = report.detection["inverted"][name].auroc
        assert auroc(known.ood[name], foreign.ood[name]) == pytest.approx(expected, abs=2e-3)
    save_pretrained(model, tmp_path)
    again = from_pretrained(tmp_path, DigitsTransformer())
    loaded = predict(again, FOREIGN, 4, seed=0)
    assert torch.equal(loaded.probabilities, foreign.probabilities)
    for name in SCORES:
        assert torch.equal(loaded.ood[name], foreign.ood[name])
    assert set(vars(given)) == attributes
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())


def test_what_is_advised_is_applied(report):
    advised = {name for name in report.detectors.values() if name is not None}
    assert advised
    model = report.apply(trained())
    assert set(predict(model, FOREIGN, 2).ood) == advised
    assert all(f'prediction.ood["{name}"]' in str(report) for name in advised)
    assert not isinstance(settings_of(model).method, Readout)


def test_a_model_prints_what_it_predicts_by(report):
    """Copies that are changed further say so, and copies without settings print as the network does."""
    given, method = trained(), "GP read-out + temperature"
    temperature = f"temperature={report.choices[method].parameter:.4g}"
    model = report.apply(given, method, ("energy", "Mahalanobis"))
    assert str(model).splitlines()[1].strip() == f"method=readout, {temperature}, detectors=energy, Mahalanobis"
    guarded = with_held_out(model, [(FOREIGN[:30], torch.arange(30) % 10)])
    again = pickle.loads(pickle.dumps(copy.deepcopy(guarded)))
    assert str(again) == str(guarded) == str(model).replace("Mahalanobis", "Mahalanobis, held_out=30 answers")
    set_logit_temperature(again, 2.5)
    assert "temperature=2.5," in str(again)
    assert f"{temperature}," in str(guarded)
    assert str(as_assessed(report.apply(given, "as trained", ()))) == str(given)
    layer = with_settings(nn.Linear(3, 2), Settings(scale=torch.tensor([0.25, 4.0]), task="regression"))
    assert str(layer) == "Linear(in_features=3, out_features=2, bias=True, scale=0.25 4)"


@pytest.mark.parametrize(
    ("method", "lacking"),
    [
        ("temperature", r"the temperature of 1\.\d+"),
        ("widest posterior", "the draws"),
        ("GP read-out + temperature", r"the temperature of \d\.\d+, but by the read-out"),
    ],
)
def test_own_outputs_of_what_is_applied_say_what_they_lack(report, method, lacking, tmp_path):
    """In the line that calls the model, after saving, too; what cgp calls itself says nothing."""
    network = trained()
    model = report.apply(network, method)
    predict(model, FOREIGN, 2)
    save_pretrained(model, tmp_path)
    for each in (model, copy.deepcopy(model), from_pretrained(tmp_path, trained())):
        with pytest.warns(match=rf"outputs are without {lacking}: cgp\.predict\(model, x\)") as said:
            outputs = each(FOREIGN)
        if not method.startswith("GP"):
            torch.testing.assert_close(outputs, network(FOREIGN))
        assert [warning.filename for warning in said] == [__file__]
    as_assessed(model)(FOREIGN)
    report.apply(network, "as trained")(FOREIGN)  # which lacks nothing


@pytest.mark.parametrize("names", [(), ("energy",), ("energy", "Mahalanobis")])
def test_a_table_flags_what_is_above_the_threshold_of_a_twentieth_in_all(report, names):
    prediction = predict(report.apply(trained(), "temperature", names), FOREIGN)
    columns = {"flag" if len(names) == 1 else f"flag: {name}": name for name in names}
    frame = prediction.to_frame()
    assert [column for column in frame if column.startswith("flag")] == [*columns]
    for column, name in columns.items():
        above = prediction.ood[name].numpy() > report.fitted[name].threshold(0.05 / len(names))
        np.testing.assert_array_equal(frame[column], above)
        assert 0 < above.sum() < len(above)


def test_detectors_together_flag_a_twentieth_of_usual_inputs():
    """The energy and 1 - confidence of logits whose mean and differences are independent, over draws of both sets."""
    generator, flagged = torch.Generator().manual_seed(0), []
    for _ in range(100):
        known, new = (3 * torch.randn(n, 4, generator=generator) for n in (199, 400))
        model = nn.Identity()
        for name in ("energy", "1 - confidence"):
            model = Detector(name).fit(nn.Identity(), known).attach(model)
        flagged.append(torch.stack([*predict(model, new).flags.values()]).any(0).double().mean())
    rates = torch.stack(flagged)
    assert 0.04 < rates.mean() < 0.05 + 2 * rates.std() / 10


def test_a_converted_model_keeps_its_posterior_only_where_it_is_advised():
    model = convert(trained(), amplitude=0.5)
    report = assess(model, KNOWN, num_samples=2)
    plain = report.apply(model, "temperature")
    prediction = predict(plain, FOREIGN, 4)
    assert prediction.num_samples == 1
    scaled = report.apply(model, "posterior + temperature")
    assert predict(scaled, FOREIGN, 4).num_samples == 4
    factor = report.choices["posterior + temperature"].factor
    amplitudes = [m.log_amplitude.exp() for m in scaled.modules() if hasattr(m, "log_amplitude")]
    torch.testing.assert_close(amplitudes[0], torch.full_like(amplitudes[0], 0.5 * factor))
    assert report.apply(plain, "posterior").training == model.training  # settings do not pile up


def test_what_does_not_fit_is_refused(report):
    with pytest.raises(ValueError, match="model: expected the one that was assessed, got another Linear"):
        report.apply(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="method: expected one of .* got 'dropout'"):
        report.apply(trained(), "dropout")
    with pytest.raises(ValueError, match="detectors: expected some of .* got 'typicality'"):
        report.apply(trained(), detectors=["typicality"])
    with pytest.raises(ValueError, match=r"detectors: expected a list of names, got the text 'energy': \['energy'\]"):
        report.apply(trained(), detectors="energy")


def test_a_saved_report_has_its_numbers_or_is_a_page(report, tmp_path):
    """Of detectors that draws and training data fitted, too."""
    report.save(tmp_path / "report.json", model="digits", classes=["0", "1"])
    found = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert (found["model"], found["classes"], found["task"]) == ("digits", ["0", "1"], "classification")
    assert (found["sentence"], found["method"], found["labels"]) == (report.sentence, report.method, 200)
    assert {name: row["nll"] for name, row in found["methods"].items()} == report.to_frame()["nll"].to_dict()
    assert found["methods"]["temperature"]["temperature"] == report.choices["temperature"].parameter
    change = report.differences["temperature"]["nll"]
    assert found["methods"]["temperature"]["change"]["nll"] == {"mean": change.mean, "error": change.error}
    assert found["detection"]["inverted"]["energy"]["auroc"] == report.detection["inverted"]["energy"].auroc
    name = report.detectors["inverted"]
    assert found["flag"][name]["threshold"] == report.fitted[name].threshold(0.05)
    report.save(str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert report.to_html() in page
    assert "<title>A network&#x27;s probabilities, assessed on 200 labels</title>" in page
    assert "<p>Compared: as trained, temperature, posterior, GP read-out; other inputs: inverted</p>" in page
    for path, details in (("report.txt", {}), ("report.html", {"model": "digits"})):
        with pytest.raises(ValueError, match="expected a .json"):
            report.save(tmp_path / path, **details)


def test_of_no_inputs_the_prediction_is_empty(report):
    """As where no input is left after others were taken out."""
    prediction = predict(report.apply(trained(), "temperature"), FOREIGN[:0])
    assert prediction.probabilities.shape == (0, 10)
    assert [len(scores) for scores in prediction.ood.values()] == [0]
    with pytest.raises(ValueError, match="inputs: expected at least one batch, got none"):
        predict(trained(), [])


def test_detectors_fitted_by_hand_are_those_of_the_report(report):
    for name in ("Mahalanobis + energy", "GP variance"):
        detector = Detector(name).fit(trained(), KNOWN, train=TRAIN)
        expected = report.fitted[name].score(trained(), FOREIGN)
        torch.testing.assert_close(detector.score(trained(), FOREIGN), expected)
        model = detector.attach(calibrate(trained(), KNOWN, method="temperature").model)
        torch.testing.assert_close(predict(model, FOREIGN).ood[name], expected)


def test_a_model_in_double_precision_is_assessed_in_it():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 2)).double(), torch.randn(120, 3, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(120) > 0).long()
    report = assess(model, [(x[:80], y[:80])], train=[(x[80:], y[80:])], compare=["readout"])  # the model is at chance
    with torch.no_grad():
        expected = float(nn.functional.cross_entropy(model(x[:80]), y[:80]))
    assert report.scores["as trained"]["nll"] == pytest.approx(expected, rel=1e-12)
    read = predict(report.apply(model, "GP read-out + temperature"), [(x[80:], y[80:])])
    assert read.probabilities.dtype == torch.float64


def test_a_method_has_its_name_and_those_that_are_printed(report):
    row = "GP read-out + temperature"
    expected = predict(report.apply(trained(), row), FOREIGN).probabilities
    for name in ("readout", "GP read-out"):
        assert torch.equal(predict(report.apply(trained(), name), FOREIGN).probabilities, expected)
    for name in ("GP read-out", row):
        assert calibrate(trained(), KNOWN, method=name, train=TRAIN).method == "readout"
        again = assess(trained(), KNOWN, train=TRAIN, compare=[name])
        assert list(again.scores) == ["as trained", "temperature", row]
    assert Method.named("posterior + temperature").criterion == "likelihood"
    assert Method.named("widest posterior") == Posterior()
    assert Method.named("dropout + scale") == Method.named("dropout")


def test_errors_list_every_name(report):
    message = "method: expected one of .*'readout', 'GP read-out'.* got 'read-out'; did you mean 'readout'"
    with pytest.raises(ValueError, match=message):
        report.apply(trained(), "read-out")
    with pytest.raises(
        ValueError, match=r"method: expected one of .*'readout'.*'GP read-out \+ temperature'.* got 'GP'"
    ):
        calibrate(trained(), KNOWN, method="GP")
    message = "compare: got 'mahalanobis'; did you mean 'Mahalanobis'.; expected some of .*'Mahalanobis . energy'"
    with pytest.raises(ValueError, match=message):
        assess(trained(), KNOWN, train=TRAIN, compare=["mahalanobis"])


@pytest.mark.parametrize("method", ["temperature", "readout"])
def test_a_state_dict_has_nothing_of_what_is_applied_and_saving_has(report, method, tmp_path):
    """That of the network stays one that can be loaded into it."""
    model = trained()
    advised = report.apply(model, method)
    with pytest.warns(match=r"without its .*temperature.*: cgp.save_pretrained\(model, folder\) writes") as said:
        assert advised.state_dict().keys() == model.state_dict().keys()
    assert [warning.filename for warning in said] == [__file__]
    save_pretrained(advised, tmp_path)
    again = from_pretrained(tmp_path, trained())
    assert repr(again) == repr(advised)
    as_assessed(advised).state_dict()  # which lacks nothing, as the copies and files do not take it
    copy.deepcopy(advised)
    torch.save(advised, tmp_path / "whole.pt")
    assert repr(torch.load(tmp_path / "whole.pt", weights_only=False)) == repr(advised)


@pytest.mark.parametrize("method", ["temperature", "GP read-out + temperature", "widest posterior"])
def test_what_is_applied_is_scored_and_not_assessed_again(report, method):
    """All that was fitted would be left out, unsaid; what predicts as trained, or was trained since, is assessed."""
    fresh = [(X[1400:1500], Y[1400:1500])]
    model = report.apply(trained(), method)
    with pytest.raises(ValueError, match=r"got one that predicts by .+, which would be left out: cgp.predict\(model"):
        assess(model, fresh)
    assert set(predict(model, fresh).score()) >= {"nll", "ece"}
    given = report.apply(trained(), "as trained")
    changed = convert(trained())
    calibrate(changed, fresh, num_samples=2)  # in place
    with pytest.raises(
        ValueError, match=r"by posterior.*, which changes a posterior in place: copy.deepcopy\(model\) first"
    ):
        assess(changed, fresh)
    first = assess(given, fresh, compare=["temperature"]).scores["as trained"]
    tuned = copy.deepcopy(report.apply(trained(), "temperature"))
    with torch.no_grad():
        next(tuned.parameters()).add_(1e-3)
    assert assess(tuned, fresh, compare=["temperature"]).scores["as trained"]["nll"] == pytest.approx(first["nll"], 0.1)
