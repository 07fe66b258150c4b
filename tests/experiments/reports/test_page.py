"""The report of runs: its numbers, its sentences, its page."""

import csv
import math

import numpy as np
import pytest
from rich.console import Console
from scipy.special import softmax

from cgp.networks.methods.temperature_scaling import fit_temperature
from cgp.networks.tasks.metrics import auroc
from cgp.plotting.curves import score_limits
from experiments.evaluation import classification_report, uncertainty
from experiments.evaluation.paired import mean_difference
from experiments.reports import figures
from experiments.reports.answer import _leader, _standing, _than, answer, findings
from experiments.reports.figures import _corrupted, _totals, _uncertainty, _variance, _withhold, sections
from experiments.reports.page import report
from experiments.reports.scores import Statistic, crossed_losses, methods, score
from experiments.saved_predictions import Predictions
from tests.experiments.reports.saved import confident, find_runs, random_logits, write_run


def sets(seed, *, scale=1.0, signal=2.5, num_samples=10):
    """Predictions of a model that is over-confident by a factor."""
    signals = {"test": 1.0, "validation": 1.0, "corrupted-blur-1": 0.8, "corrupted-blur-2": 0.4}
    made = {
        name: random_logits(samples=150, seed=10 * seed + place, signal=strength * signal, num_samples=num_samples)
        for place, (name, strength) in enumerate(signals.items())
    }
    made = {name: (scale * logits, labels) for name, (logits, labels) in made.items()}
    strange = random_logits(samples=100, seed=seed + 99, signal=0.5, num_samples=num_samples)[0]
    return made | {"ood-letters": (scale * strange, None)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        history = [{"epoch": epoch, "train_nll": 1 / (epoch + 1)} for epoch in range(3)]
        record = {"label": "Softmax", "seconds_per_epoch": 0.5, "history": history}
        write_run(tmp_path, "digits", "softmax", seed, sets=sets(seed, scale=6.0, num_samples=1), record=record)
        inside = {"attention_similarity": [0.1, 0.999], "token_variance": np.ones((2, 3, 16))}
        inside |= {"variance_images": np.zeros((3, 1, 8, 8)), "variance_labels": np.array([0, 2, 3])}
        label = {"label": "<b>|CGP\u202e", "data": {"class_names": ["cat", "dog", "owl", "ant"]}}
        write_run(tmp_path, "digits", "cgp", seed, sets=sets(seed, signal=4.0), record=label, diagnostics=inside)
    return tmp_path


@pytest.fixture(scope="module")
def results(root):
    return methods(score(run, "pooled") for run in find_runs([root]))


def test_numbers_are_those_of_the_predictions(results):
    assert list(results) == ["digits/softmax", "digits/cgp"]  # the baseline first
    numbers = results["digits/softmax"][1].numbers
    made = sets(1, scale=6.0, num_samples=1)
    expected = classification_report(*made["test"])
    assert (numbers["accuracy"], numbers["nll"], numbers["ece"]) == (expected.accuracy, expected.nll, expected.ece)
    temperature = fit_temperature(*made["validation"])
    assert numbers["temperature"] == temperature
    cooled = classification_report(made["test"][0] / temperature, made["test"][1])
    assert numbers["nll_cooled"] == pytest.approx(cooled.nll)
    totals = [uncertainty(made[name][0]).total for name in ("test", "ood-letters")]
    assert numbers["ood_total"] == auroc(*totals)
    assert math.isnan(numbers["ood_epistemic"])  # a single draw has none
    corrupted = [classification_report(*made[f"corrupted-blur-{severity}"]).nll for severity in (1, 2)]
    assert numbers["corrupted_nll"] == pytest.approx(np.mean(corrupted))


def test_a_temperature_of_nothing_but_right_answers_is_one(tmp_path):
    labels = np.arange(40) % 10
    logits = 3 * np.eye(10, dtype=np.float32)[labels][None]
    write_run(tmp_path, "digits", "softmax", sets={"test": (logits, labels), "validation": (logits, labels)})
    assert score(find_runs([tmp_path])[0], "pooled").numbers["temperature"] == 1.0


def test_the_summary_recommends_a_method(results):
    first, second, third, fourth, fifth = answer(results)
    assert first.startswith("Softmax is right on")
    assert "over-confident by" in first
    assert "brings its NLL from" in second
    assert third.startswith("Take <b>|CGP")
    assert "its NLL on the test inputs is better than that of Softmax with a temperature by 0." in third
    assert "OOD from test inputs with an AUROC of" in fourth
    assert fifth.startswith("Warning")
    assert fifth.endswith("in layer 2.")


def test_where_methods_do_not_differ_a_temperature_suffices(tmp_path):
    for method in ("softmax", "cgp"):
        for seed in range(3):
            write_run(
                tmp_path, "digits", method, seed, sets=sets(seed + 10 * (method == "cgp"), scale=6.0, num_samples=1)
            )
    words = answer(methods(score(run, "pooled") for run in find_runs([tmp_path])))[2]
    assert words.startswith(("softmax with a temperature suffices", "Take softmax with a temperature"))


def test_beside_an_assessment_methods_are_compared_as_trained(results):
    """Which has the verdict on a temperature: two, by two sets of labels, would contradict each other."""
    words = answer(results, assessed=True)
    assert words == [*findings(results, assessed=True), *answer(results)[-2:]]
    assert not any("temperature" in line or "confident" in line for line in words)
    (alone,) = findings({"digits/softmax": results["digits/softmax"]}, assessed=True)
    assert alone.startswith("Take Softmax, as trained (accuracy ")


@pytest.mark.parametrize(("columns", "says"), [(9, True), (2, False)])
def test_a_method_that_leads_most_columns_is_named(results, columns, says):
    best = {"accuracy": 1.0, "aurc": 0.0, "ood_total": 1.0, "ood_epistemic": 1.0}
    best |= dict.fromkeys(("nll", "ece", "corrupted_nll", "corrupted_ece", "brier"), 0.0)
    worst = {"validation_nll": 9.0, "validation_nll_cooled": 9.0}  # so that another one is to be taken
    numbers = dict(list(best.items())[:columns]) | worst
    leader = [run._replace(numbers=run.numbers | numbers) for run in results["digits/cgp"]]
    words = [line for line in answer({**results, "digits/leader": leader}) if "has the best mean in" in line]
    assert len(words) == says
    if says:
        assert words[0].startswith("On the test inputs, which choose nothing, ")
        taken = results["digits/softmax"], False
        doubt = _leader({**results, "digits/leader": leader}, taken, taken)
        assert doubt.startswith("But on the test inputs, which choose nothing, ")  # though another one is to be taken
        for line, end, cooled in ((words[0], " with a temperature", True), (doubt, "", False)):
            losts = [[losses(method, run, cooled=cooled) for run in range(2)] for method in range(2)]
            gain = mean_difference(np.array(losts[0]) - losts[1])
            assert f"is better than that of Softmax{end} by {gain[0]:.3f} ± {gain[1]:.3f} nats, beyond" in line


def test_what_is_taken_is_compared_as_it_is_advised(tmp_path):
    """The next method has the smaller NLL as trained, and the larger one where each has a temperature."""
    for seed in range(2):
        for method, scale, noise in (("softmax", 8.0, 0.0), ("cgp", 0.7, 1.0)):
            made = {}
            for place, name in enumerate(("test", "validation")):
                logits, labels = random_logits(samples=300, seed=10 * seed + place, num_samples=1)
                wrong = np.random.default_rng(place).normal(size=logits.shape)
                made[name] = (scale * (logits + noise * wrong)).astype(np.float32), labels
            write_run(tmp_path, "digits", method, seed, sets=made)
    found = methods(score(run, "pooled") for run in find_runs([tmp_path]))
    raw, cooled = (
        {name: np.mean([run.numbers[key] for run in runs]) for name, runs in found.items()}
        for key in ("validation_nll", "validation_nll_cooled")
    )
    assert raw["digits/cgp"] < raw["digits/softmax"]
    lead = cooled["digits/cgp"] - cooled["digits/softmax"]
    (take, *_) = findings(found)
    assert take.startswith("Take softmax with a temperature (accuracy ")
    assert ": on the validation inputs, each half with the temperature of the other, its NLL is better than " in take
    assert f" than that of cgp with a temperature by {lead:.3f} ± " in take
    assert take.endswith(" nats, the next, beyond twice its error.")
    best = dict.fromkeys(("nll", "nll_cooled", "ece", "ece_cooled", "aurc", "brier"), 0.0) | {"accuracy": 1.0}
    found["digits/cgp"] = [run._replace(numbers=run.numbers | best) for run in found["digits/cgp"]]
    (leader,) = findings(found)[1:]
    assert "with a temperature its NLL on the test inputs is worse than that of softmax with a temperature by" in leader


@pytest.mark.parametrize(
    ("mean", "words"),
    [(0.009, "within its error"), (-0.015, "within twice its error"), (0.03, "beyond twice its error")],
)
def test_a_lead_is_said_in_its_errors(mean, words):
    assert _standing(Statistic(mean, 0.01)) == words


def test_findings_after_a_temperature_that_does_not_help_are_without_it(results):
    """Softmax is then compared as it is: no sentence recommends what another one refused."""
    plain, cooled = {"nll": 0.12, "nll_cooled": 0.14}, {"nll": 0.3, "nll_cooled": 0.2, "validation_nll_cooled": -1.0}
    groups = {
        name: [run._replace(numbers=run.numbers | numbers) for run in results[name]]
        for name, numbers in (("digits/softmax", plain), ("digits/cgp", cooled))
    }
    _, temperature, take, *_ = answer(groups)
    assert "does not help" in temperature
    assert "with a temperature suffices" not in take
    assert "that of Softmax with a temperature" not in take


def losses(method, seed, *, cooled):
    """Negative log-likelihood of each test label by what `root` saved."""
    made = sets(seed, scale=6.0, num_samples=1) if method == 0 else sets(seed, signal=4.0)
    logits, labels = made["test"]
    logits = logits.astype(float) / (fit_temperature(*made["validation"]) if cooled else 1.0)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return -np.log(p.mean(0)[np.arange(len(labels)), labels])


def answers(folder):
    return answer(methods(score(run, "pooled") for run in find_runs([folder])))


@pytest.mark.parametrize(
    ("total", "epistemic", "error", "words"),
    [
        (
            0.0,
            0.004,
            0.001,
            ("is no larger on OOD than on test inputs, with an AUROC of 0.0 %", " is not either, with 0.4 %"),
        ),
        (0.9, 0.4, 0.01, ("tells OOD from test inputs with an AUROC of 90.0 %", " is no larger there, with 40.0 %")),
        (0.9, 0.93, 0.02, ("tells OOD from test inputs with an AUROC of 90.0 %", ", no better, with 93.0 %")),
        (0.9, 0.93, 0.01, ("tells OOD from test inputs with an AUROC of 90.0 %", ", better, with 93.0 %")),
        (0.3, 0.6, 0.01, ("is no larger on OOD than on test inputs, with an AUROC of 30.0 %", ", better, with 60.0 %")),
    ],
)
def test_a_detector_is_named_if_it_tells_and_better_beyond_its_error(results, total, epistemic, error, words):
    numbers = {"ood_total": total, "ood_epistemic": epistemic, "ood_lead_error": error}
    run = results["digits/cgp"][0]
    sentence = answer({"digits/cgp": [run._replace(numbers=run.numbers | numbers)]})[-2]
    assert f"total uncertainty {words[0]}, and its epistemic part{words[1]}." in sentence


def test_the_lead_of_the_epistemic_part_has_the_error_of_delong(results):
    """Over the sets of inputs of both kinds, from all pairs of them."""
    parts = [uncertainty(sets(0, signal=4.0)[name][0]) for name in ("test", "ood-letters")]
    wins = [np.subtract.outer(strange, known) > 0 for known, strange in zip(*parts, strict=True)]
    lead = 1.0 * wins[2] - wins[0]  # total, aleatoric, epistemic
    expected = lead.mean(0).var(ddof=1) / lead.shape[1] + lead.mean(1).var(ddof=1) / lead.shape[0]
    assert results["digits/cgp"][0].numbers["ood_lead_error"] == pytest.approx(expected**0.5, rel=1e-6)


def test_a_temperature_that_loses_on_the_test_inputs_is_not_recommended(tmp_path):
    """Sure and right on the test inputs, sure and wrong on the validation inputs."""
    labels = np.arange(60) % 10
    for seed in range(2):
        wrong = (labels + 3 * (np.arange(60) % 5 > 0)) % 10
        sure = [confident(known, np.ones(60, bool), margin=6.0) for known in (labels, wrong)]
        sets = {"test": (sure[0], labels), "validation": (sure[1], labels)}
        write_run(tmp_path, "digits", "softmax", seed, sets=sets)
    _, temperature, take, *_ = answers(tmp_path)
    assert "does not help" in temperature
    assert "with a temperature" not in take
    assert take.startswith("A temperature helps on the validation inputs, but is worse on the test inputs by ")
    assert take.endswith("take softmax as it is, or look for what sets the two apart.")


def test_a_temperature_at_the_end_of_its_range_is_no_temperature(tmp_path):
    labels = np.arange(60) % 10
    logits = confident((labels + 1) % 10, np.ones(60, bool))
    write_run(tmp_path, "digits", "softmax", sets={"test": (logits, labels), "validation": (logits, labels)})
    assert "A temperature, 10000.00 (the end of the range: there, confidence says nothing" in answers(tmp_path)[1]


def test_a_detector_that_scores_every_input_alike_has_no_row(root, results, tmp_path):
    """A single draw has no epistemic part; the trapezoids of an AUPR would make 75 % of it."""
    detectors = {name: {row["detector"] for row in runs[0].detection} for name, runs in results.items()}
    assert detectors["digits/cgp"] - detectors["digits/softmax"] == {"Epistemic"}
    assert detectors["digits/softmax"] >= {"MaxSoftmax", "Entropy", "Energy"}
    report(find_runs([root]), tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("Epistemic") == 1


def test_a_gain_within_its_error_is_over_a_named_method(tmp_path):
    """And the numbers beside "validation NLL" are said to be of the test inputs."""
    for seed in range(2):
        made = sets(seed, num_samples=1)
        write_run(tmp_path, "digits", "softmax", seed, sets=made)
        write_run(tmp_path, "digits", "cgp", seed, sets=made)
    found = methods(score(run, "pooled") for run in find_runs([tmp_path]))
    best = {"validation_nll": 0.0, "validation_nll_cooled": 9.0}
    found["digits/cgp"] = [run._replace(numbers=run.numbers | best) for run in found["digits/cgp"]]
    words = next(line for line in answer(found) if "suffices" in line)
    reference = words.partition(" suffices: cgp has the smallest validation NLL (on the test inputs: accuracy ")[0]
    assert reference.startswith("softmax")
    assert f"but there its NLL is worse than that of {reference} by 0." in words


def test_a_loss_is_worse_by_an_amount_without_a_sign():
    assert _than("Softmax", Statistic(-0.05, 0.033)) == "worse than that of Softmax by 0.050 ± 0.033 nats"
    assert _than("Softmax", Statistic(0.05, 0.033)) == "better than that of Softmax by 0.050 ± 0.033 nats"


def test_the_points_are_the_difference_of_the_figures_shown(results):
    run = results["digits/softmax"][0]
    shown = [run._replace(numbers=run.numbers | {"accuracy": 0.97222, "confidence": 0.95561})]
    words = answer({"a/softmax": shown})[0]
    assert "97.2 % of the test inputs and claims 95.6 %: under-confident by 1.6 points" in words


def test_one_run_and_runs_with_little(tmp_path):
    write_run(tmp_path, "digits", "softmax", sets={"test": sets(0)["test"]})
    words = answer(methods(score(run, "pooled") for run in find_runs([tmp_path])))
    assert words[1].startswith("Take softmax as it is")
    write_run(tmp_path / "b", "digits", "softmax", sets={"ood-letters": sets(0)["ood-letters"]})
    with pytest.raises(FileNotFoundError, match="test.npz is not there"):
        score(find_runs([tmp_path / "b"])[0], "pooled")


def test_few_test_inputs_have_no_verdict(tmp_path):
    """A smoke run's eight said that softmax suffices, and is over-confident by 15 points."""
    for method in ("softmax", "cgp"):
        write_run(tmp_path, "digits", method, sets={"test": random_logits(samples=8), "validation": sets(0)["test"]})
    compared = methods(score(run, "pooled") for run in find_runs([tmp_path]))
    said = ["8 test inputs say nothing of a method: at least 20 are needed."]
    assert answer(compared) == findings(compared) == said


def test_files_and_page(root, tmp_path):
    out = tmp_path / "out"
    console = Console(width=100, color_system=None, record=True)
    with console.capture() as captured:
        console.print(report(find_runs([root]), out))
    assert "\u202e" not in captured.get()
    names = {path.name for path in out.iterdir()}
    assert names == {"report.html", "results.csv", "results.md", "sets.csv", "detection.csv", "pictures"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;|CGP\\u202e" in page
    assert "<b>" not in page
    assert "\u202e" not in page
    drawn = {path.stem.rpartition("-digits-")[0] for path in (out / "pictures").iterdir()}
    assert drawn == {"reliability", "corrupted", "uncertainty", "risk-coverage", "variance", "training"}
    assert page.count("<img") == len(list((out / "pictures").iterdir()))
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["method"], row["seed"]) for row in rows} == {
        (f"digits/{m}", s) for m in ("softmax", "cgp") for s in "01"
    }
    assert "\\|CGP" in (out / "results.md").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "")  # needs nothing but itself


def test_pictures_say_what_is_grey_and_begin_where_scores_do(results):
    """Seen as files, without the page; the legend is whole, beneath the curves, and the axis one for all methods."""
    panels = [_uncertainty(name, results).axes[0] for name in results]
    for name in results:
        risk = _withhold(name, results)
        (legend,) = risk.legends
        assert legend.get_texts()[0].get_text().startswith("AURC")
        assert {text.get_text() for text in legend.get_texts()[1:]} == {"other methods", "95 % interval"}
        risk.draw_without_rendering()
        box, curves = legend.get_window_extent(), risk.axes[0].get_tightbbox()
        assert box.y1 <= curves.y0
        assert box.x0 >= 0
        assert box.x1 <= risk.bbox.x1
    (limits,) = {ax.get_xlim() for ax in panels}
    totals = [group for runs in results.values() for group in _totals(runs).values()]
    assert limits == score_limits(np.concatenate(totals), panels[0].get_xscale())


def test_maps_name_their_layers_their_classes_and_their_unit(results, tmp_path):
    *maps, bar = _variance("digits/cgp", results).axes
    assert [ax.get_title() for ax in maps[:3]] == ["input", "layer 1", "layer 2"]
    assert [ax.get_ylabel() for ax in maps[::3]] == ["true: cat", "true: owl", "true: ant"]
    assert bar.get_ylabel() == "Variance of a patch / median of its layer (log scale)"
    assert _corrupted("digits/cgp", results).axes[0].get_ylabel() == "Accuracy, confidence"
    # Only the last layer is a Gaussian process, and the file has no labels, as an earlier run's.
    last = {"attention_similarity": [0.1, 0.2], "token_variance": np.ones((1, 3, 16))}
    last["variance_images"] = np.zeros((3, 1, 8, 8))
    write_run(tmp_path, "digits", "kep", sets=sets(0), diagnostics=last)
    axes = _variance("digits/kep", methods(score(run, "pooled") for run in find_runs([tmp_path]))).axes
    assert [axes[1].get_title(), axes[0].get_ylabel()] == ["layer 2", ""]


def test_lines_lead_over_severities_that_were_not_measured(tmp_path):
    """As loose points they looked like lost data; the ticks are of what was measured."""
    made = {name: part for name, part in sets(0).items() if name in ("test", "validation", "corrupted-blur-1")}
    write_run(tmp_path, "digits", "softmax", sets=made | {"corrupted-blur-3": made["test"]})
    (ax,) = _corrupted("digits/softmax", methods(score(run, "pooled") for run in find_runs([tmp_path]))).axes
    assert ax.get_xticks().tolist() == [0, 1, 3]
    for line in ax.lines:
        assert line.get_xdata().tolist() == [0, 1, 3]
        assert np.isfinite(line.get_ydata()).all()


def test_the_name_of_a_method_is_flush_with_the_axis_if_it_fits(results):
    for label, is_flush in (("Softmax", True), ("a" * 60, False)):
        figure = _corrupted("digits/softmax", results)
        figures._entitle(figure, label)
        figure.draw_without_rendering()
        left = figure.axes[0].get_position().x0
        assert figure.axes[0].get_position().x1 < 0.98  # no line touches the edge
        assert (figure._suptitle.get_position()[0] == pytest.approx(left, abs=0.02)) == is_flush


def test_variances_of_layers_have_colours_by_their_logarithm(tmp_path):
    """By values the most uneven layer would leave the others of one colour, and so would a variance of rounding."""
    inside = {"attention_similarity": [0.1, 0.2], "token_variance": np.linspace(1, 9, 96).reshape(2, 3, 16)}
    inside["token_variance"][1, 0, 0] = 1e-12
    inside["variance_images"] = np.zeros((3, 1, 8, 8))
    write_run(tmp_path, "digits", "kep", sets=sets(0), diagnostics=inside)
    bar = _variance("digits/kep", methods(score(run, "pooled") for run in find_runs([tmp_path]))).axes[-1]
    assert bar.get_yscale() == "log"
    assert bar.get_ylim()[0] == pytest.approx(1e-3)


def test_each_picture_names_its_method(results, monkeypatch):
    titles = []
    monkeypatch.setattr(figures, "as_png", lambda figure: titles.append(figure.get_suptitle()) or b"")
    panels = [panel for section in sections(results) for panel in section.panels]
    assert panels
    assert titles == [panel.caption for panel in panels]


def test_losses_by_crossed_temperatures_are_in_the_order_of_the_inputs():
    """Each half with the temperature of the other, so that pairs with losses of another method are of one input."""
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(2, 41, 3)), generator.integers(3, size=41)
    expected = np.empty(41)
    for half in (0, 1):
        temperature = fit_temperature(logits[:, 1 - half :: 2], labels[1 - half :: 2])
        shares = softmax(logits[:, half::2] / temperature, -1).mean(0)
        expected[half::2] = -np.log(shares[np.arange(len(shares)), labels[half::2]])
    losses = crossed_losses(Predictions(logits, np.arange(41), labels))
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
