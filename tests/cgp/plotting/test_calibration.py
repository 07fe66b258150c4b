import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cgp.plotting import reliability_diagram
from experiments.evaluation import reliability_bins


def heights(container):
    return [bar.get_height() for bar in container]


def test_draws_the_bins():
    confidence, correct = [0.55, 0.95, 0.85, 0.35], [1, 1, 0, 0]
    ax = reliability_diagram(confidence, correct, bins=4)
    accuracy, over, under = ax.containers
    assert heights(accuracy) == [0, 1, 0.5]
    assert [bar.get_x() for bar in accuracy] == [0.25, 0.5, 0.75]
    assert heights(over) == pytest.approx([0.35, 0.4])
    assert [bar.get_y() for bar in over] == [0, 0.5]
    assert heights(under) == pytest.approx([-0.45])
    assert [bar.get_y() for bar in under] == [1]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "accuracy",
        "over-confident",
        "under-confident",
    ]
    assert ax.texts[0].get_text() == "ECE 0.400"  # (0.35 + 0.45 + 2 * 0.4) / 4
    (strip,) = ax.child_axes
    assert heights(strip.containers[0]) == [1, 1, 2]
    assert strip.get_xlabel() == "Confidence"
    assert ax.get_xlim() == ax.get_ylim() == (0, 1)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_bins_are_those_of_the_metrics(pairs):
    confidence, correct = map(np.array, zip(*pairs, strict=True))
    ax = reliability_diagram(confidence, correct, ax=Figure().add_subplot())
    bins = reliability_bins(confidence, correct)
    filled = bins.counts > 0
    np.testing.assert_allclose(heights(ax.containers[0]), bins.accuracy[filled])
    assert heights(ax.child_axes[0].containers[0]) == bins.counts[filled].tolist()
    assert ax.texts[0].get_text() == f"ECE {bins.expected_error:.3f}"


def test_takes_tensors_that_need_gradients():
    confidence = torch.tensor([0.5, 0.9], requires_grad=True)
    ax = reliability_diagram(confidence, torch.tensor([True, False]), bins=2)
    assert heights(ax.containers[0]) == [1, 0]


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 0.6], [1], r"correct must have shape \(2,\), got \(1,\)"),
        ([[0.5]], [1], "confidence must be a non-empty array with 1 axes"),
        ([], [], "non-empty"),
        ([1.5], [1], r"confidence must lie in \[0, 1\], got \[1.5, 1.5\]"),
        ([float("nan")], [1], "confidence must be finite"),
        ([0.5], [2], "correct must hold booleans"),
    ],
)
def test_refuses(confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        reliability_diagram(confidence, correct)


def test_refuses_no_bins():
    with pytest.raises(ValueError, match="bins must be at least 1"):
        reliability_diagram([0.5], [1], bins=0)
