"""Figures: what is drawn are the numbers of the runs."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.evaluation import classification_report
from experiments.reports.papers import plot
from experiments.reports.papers.arrays import Material, confidences, cost_curves, severity_curves
from experiments.reports.papers.cache import Cache
from experiments.reports.papers.figures import FIGURES
from experiments.reports.papers.measure import Meter
from experiments.reports.papers.runs import find_runs
from tests.experiments.reports.papers.folders import random_logits, write_run

METER = Meter("pooled", Cache(None))
LAYERS = np.array([0.2, 0.5, 0.6])


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    plt.close("all")


@pytest.fixture
def runs(tmp_path):
    for index, method in enumerate(("softmax", "kep_svgp")):
        for seed in range(2):
            sets = {"test": random_logits(seed=10 * index + seed)}
            for severity in (1, 5):
                sets[f"corrupted-fog-{severity}"] = random_logits(seed=severity, signal=2 / severity)
            sets["ood-SVHN"] = (random_logits(seed=3, signal=0.5)[0], None)
            inside = {
                "token_similarity": LAYERS + 0.1 * seed,
                "attention_spectrum": np.exp(-np.outer([1, 2], range(6))),
            }
            write_run(tmp_path, "cifar10", method, seed, sets=sets, diagnostics=inside)
    return tmp_path


def material(root, methods=("softmax", "kep_svgp")):
    found = find_runs(root)
    return Material({m: [run for run in found if run.method == m] for m in methods}, METER)


def test_cost_by_number_of_inducing_inputs(tmp_path):
    for size, seconds in ((8, 1.0), (16, 2.0)):
        write_run(tmp_path, "cifar10", f"scgpt-inducing-{size}", 0, record={"seconds_per_epoch": seconds})
    write_run(tmp_path, "cifar10", "scgpt-inducing-32", 1, record={"seconds_per_epoch": 4.0})
    found = find_runs(tmp_path)
    curves = cost_curves(found, "scgpt", (8, 16, 32), "seconds_per_epoch", METER)
    np.testing.assert_array_equal(curves, [[1, 2, np.nan], [np.nan, np.nan, 4]])
    assert cost_curves(found, "sgpa", (8, 16, 32), "seconds_per_epoch", METER) is None
    assert cost_curves(found, "scgpt", (8, 16, 32), "peak_memory", METER) is None


def test_curves_by_severity_start_with_clean_images(runs):
    run = find_runs(runs)[0]
    curve = severity_curves(run, "fog", "nll", METER)
    assert list(curve) == [0, 1, 5]
    assert curve[5] == classification_report(*random_logits(seed=5, signal=0.4)).nll
    assert list(severity_curves(run, "snow", "nll", METER)) == [0]


def test_confidence_by_hand(runs):
    own = [run for run in find_runs(runs) if run.method == "softmax"]
    found = confidences(own, "svhn", "pooled")
    logits, labels = random_logits(seed=0)
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)).mean(0)
    np.testing.assert_allclose(found.test[:200], p.max(-1), rtol=1e-5)
    np.testing.assert_array_equal(found.correct[:200], p.argmax(-1) == labels)
    assert (len(found.test), len(found.ood)) == (400, 400)
    assert confidences(own, "lsun", "pooled").ood.size == 0
    assert confidences([], "svhn", "pooled") is None


def test_lines_of_a_figure_are_the_means_over_runs(runs):
    figure = FIGURES["cgpt-figure-III"].draw(material(runs), "accuracy")
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines["Softmax (MSP)"], LAYERS + 0.05)
    figure = FIGURES["kep-figure-2"].draw(material(runs), "accuracy")
    ax = next(ax for ax in figure.axes if ax.get_title() == "fog")
    (line,) = [line for line in ax.lines if line.get_label() == "Softmax (MSP)"]
    expected = [
        np.mean([classification_report(*random_logits(seed=seed)).accuracy for seed in (0, 1)]),
        *(classification_report(*random_logits(seed=s, signal=2 / s)).accuracy for s in (1, 5)),
    ]
    np.testing.assert_allclose(line.get_ydata(), expected)
    assert [ax.get_title() for ax in figure.axes] == ["fog"]  # the one kind that the runs were tested on


def test_a_panel_a_kind_in_the_order_of_the_papers_or_those_of_the_data_set_itself(tmp_path):
    for data, kinds in (("cifar10", ("jpeg", "snow", "saturate", "shot_noise")), ("digits", ("rotation", "contrast"))):
        sets = {"test": random_logits()} | {
            f"corrupted-{kind}-{s}": random_logits(seed=s) for kind in kinds for s in (1, 3)
        }
        write_run(tmp_path, data, "softmax", sets=sets)
    titles = []
    for data in ("cifar10", "digits"):
        found = [run for run in find_runs(tmp_path) if run.data == data]
        figure = FIGURES["kep-figure-2"].draw(Material({"softmax": found}, METER), "nll")
        titles.append([ax.get_title() for ax in figure.axes])
        assert figure.axes[0].get_ylabel() == "NLL"
        assert all(ax.get_xlabel() for ax in figure.axes)
    assert titles == [["shot noise", "snow", "jpeg compression"], ["contrast", "rotation"]]


def test_runs_that_cannot_be_drawn_together_are_refused(tmp_path):
    for seed, layers in enumerate((2, 3)):
        write_run(tmp_path, "cifar10", "softmax", seed, diagnostics={"token_similarity": np.ones(layers)})
    with pytest.raises(
        ValueError, match=r"runs: expected arrays of one shape in all runs of softmax, got \[\(2,\), \(3,\)"
    ):
        FIGURES["cgpt-figure-III"].draw(material(tmp_path, ("softmax",)), "accuracy")


def test_panels_have_one_scale_and_one_legend(runs):
    figure = FIGURES["kep-figure-3"].draw(material(runs), "accuracy")
    assert len({ax.get_ylim() for ax in figure.axes}) == 1
    assert all(ax.get_legend() is None for ax in figure.axes)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["correct", "misclassified", "ood (SVHN)"]


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_files(runs, tmp_path, capsys, ending, magic):
    plot("all", runs=runs, out=tmp_path / "figures", format=ending, methods=["softmax", "kep_svgp"], data="cifar10")
    drawn = {"cgpt-figure-III", "kep-figure-2", "kep-figure-3", "kep-figure-4", "reliability", "risk-coverage"}
    files = list((tmp_path / "figures").iterdir())
    assert {path.name for path in files} == {f"{name}.{ending}" for name in drawn}
    assert all(path.read_bytes().startswith(magic) for path in files)
    said = capsys.readouterr().out
    assert "cgpt-figure-II: expected runs sgpa-inducing-8" in said
    assert said.count("(waiting)") == 2
    assert not plt.get_fignums()


def test_bad_input_is_refused(runs, tmp_path):
    with pytest.raises(ValueError, match="name: expected all or one of cgpt-figure-II, .*, got 'figure'"):
        plot("figure", runs=runs)
    with pytest.raises(ValueError, match="format: expected one of png, pdf, got 'svg'"):
        plot("kep-figure-2", runs=runs, format="svg")
    with pytest.raises(ValueError, match="metric: expected one of accuracy, .*, got 'f1'"):
        plot("kep-figure-2", runs=runs, metric="f1")
    with pytest.raises(
        ValueError, match=r"cgpt-figure-IV: expected runs with diagnostics\.npz .* in cifar100, got none"
    ):
        plot("cgpt-figure-IV", runs=runs, out=tmp_path)
