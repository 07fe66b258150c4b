import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cgp.plotting import confidence_histograms, risk_coverage, roc_curves, uncertainty_histograms
from experiments.evaluation import area_under_risk_coverage, detection_report, risk_coverage_curve


def stairs(ax, index):
    """Values and edges of the outline of a group (each has a filled twin before it)."""
    data = ax.patches[2 * index + 1].get_data()
    return data.values, data.edges


def test_uncertainty_histograms_are_fractions_on_common_edges():
    test, noise = np.array([0.0, 0.1, 0.1, 0.9]), np.array([0.95, 1.0])
    ax = uncertainty_histograms({"test": test, "noise": noise}, bins=4, xlabel="Entropy")
    for index, values in enumerate((test, noise)):
        fraction, edges = stairs(ax, index)
        assert edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
        assert fraction.tolist() == (np.histogram(values, edges)[0] / len(values)).tolist()
        assert fraction.sum() == 1
    assert (ax.get_xlabel(), ax.get_xlim()) == ("Entropy", (0, 1))
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == ["test", "noise"]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.lists(st.floats(-5, 5), min_size=1, max_size=20))
@settings(max_examples=20)
def test_no_input_falls_out_of_the_histograms(one, other):
    ax = uncertainty_histograms({"one": one, "other": other}, ax=Figure().add_subplot())
    for index in range(2):
        assert stairs(ax, index)[0].sum() == pytest.approx(1)


def test_confidence_histograms_cover_the_unit_interval():
    ax = confidence_histograms([0.9, 1.0], [0.4], [0.0], bins=2)
    assert [stairs(ax, index)[0].tolist() for index in range(3)] == [[0, 1], [1, 0], [1, 0]]
    assert ax.get_xlim() == (0, 1)
    labels = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert labels == ["correct", "misclassified", "ood"]
    assert len(confidence_histograms([0.9], [0.4]).patches) == 4


def test_roc_curve_is_that_of_the_metrics():
    generator = np.random.default_rng(0)
    familiar, ood = generator.normal(size=50), 1 + generator.normal(size=40)
    ax = roc_curves({"entropy": (familiar, ood)})
    chance, curve = ax.lines
    np.testing.assert_array_equal(chance.get_data(), [[0, 1], [0, 1]])
    false, true = curve.get_data()
    assert curve.get_label() == f"entropy (AUROC {detection_report(familiar, ood).auroc:.3f})"
    thresholds = np.sort(np.concatenate([familiar, ood]))
    brute = {((familiar >= t).mean(), (ood >= t).mean()) for t in thresholds} | {(0.0, 0.0)}
    assert set(zip(false, true, strict=True)) <= brute
    assert np.trapezoid(true, false) == pytest.approx(detection_report(familiar, ood).auroc)
    assert ax.get_aspect() == 1


def test_risk_coverage_is_that_of_the_metrics():
    generator = np.random.default_rng(0)
    confidence = generator.random(30).round(1)  # with ties
    correct = generator.random(30) < confidence
    ax = risk_coverage({"CGP": (confidence, correct), "all right": (confidence, np.ones(30))})
    curve = risk_coverage_curve(confidence, correct)
    np.testing.assert_allclose(ax.lines[0].get_data(), (curve.coverage, curve.risk))
    assert ax.lines[0].get_label() == f"CGP (AURC {area_under_risk_coverage(confidence, correct):.4f})"
    assert not ax.lines[1].get_ydata().any()
    assert (ax.get_xlim(), ax.get_ylim()[0]) == ((0, 1), 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uncertainty_histograms({}), "groups must be a non-empty mapping"),
        (lambda: uncertainty_histograms({"a": [np.inf]}), r"groups\['a'\] must be finite"),
        (lambda: confidence_histograms([0.5], [1.2]), "misclassified inputs must lie"),
        (lambda: roc_curves({"a": ([0.1],)}), r"scores\['a'\] must be a pair of arrays, got 1"),
        (lambda: roc_curves({}), "scores must be a non-empty mapping"),
        (lambda: roc_curves({"a": ([0.1], [])}), "non-empty array"),
        (lambda: risk_coverage({"a": ([0.1, 0.2], [1])}), r"predictions\['a'\]\[1\] must have shape \(2,\)"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
