import numpy as np
import pytest

from cgp.plotting import (
    attention_matrix,
    curves,
    example_gallery,
    interval_coverage,
    posterior_bands,
    reliability_diagram,
    risk_coverage,
    text_uncertainties,
    uncertainty_histograms,
    variance_map,
    variance_maps,
)

GREY, COLOUR = np.eye(8), np.random.default_rng(0).random((8, 6, 3))


def text_uncertainty(characters, values):
    return text_uncertainties({"": (characters, values)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention_matrix(np.ones((2, 3))), r"matrix must be square, got shape \(2, 3\)"),
        (lambda: attention_matrix(np.eye(5), np.ones(4)), r"sd must have shape \(5,\), got \(4,\)"),
        (lambda: attention_matrix(np.eye(5), -np.ones(5)), "sd must not be negative"),
        (lambda: reliability_diagram([0.5, 0.6], [1]), r"correct must have shape \(2,\), got \(1,\)"),
        (lambda: reliability_diagram([], []), "non-empty"),
        (lambda: reliability_diagram([1.5], [1]), r"confidence must lie in \[0, 1\], got \[1.5, 1.5\]"),
        (lambda: reliability_diagram([float("nan")], [1]), "confidence must be finite"),
        (lambda: reliability_diagram([0.5], [2]), "correct must hold booleans"),
        (lambda: reliability_diagram([0.5], [1], bins=0), "bins must be at least 1"),
        (lambda: risk_coverage({"a": ([0.1],)}), r"predictions\['a'\] must be a pair of arrays, got 1"),
        (lambda: risk_coverage({}), "predictions must be a non-empty mapping"),
        (lambda: risk_coverage({"a": ([0.1, 0.2], [1])}), r"predictions\['a'\]\[1\] must have shape \(2,\)"),
        (lambda: interval_coverage({}), "cumulative must be a non-empty mapping"),
        (lambda: interval_coverage({"a": [1.2]}), r"must lie in \[0, 1\], got \[1.2, 1.2\]"),
        (lambda: curves([0, 1], {"a": [1, 2, 3]}), r"values\['a'\] must have 2 values along its last axis"),
        (lambda: curves([0, 1], {}), "values must be a non-empty mapping"),
        (lambda: curves([1, 2], {"a": np.ones((1, 1, 2))}), r"values\['a'\] must be a non-empty array"),
        (lambda: uncertainty_histograms({}), "groups must be a non-empty mapping"),
        (lambda: uncertainty_histograms({"a": [np.inf]}), r"groups\['a'\] must be finite"),
        (lambda: uncertainty_histograms({"a": [1.2]}, limits=(0, 1)), r"groups must lie in \[0, 1\], got \[1.2, 1.2\]"),
        (lambda: variance_map(np.zeros((2, 2, 2, 2)), [[1.0]]), "image must be a non-empty array with 2 or 3 axes"),
        (lambda: variance_map(np.zeros((5, 5, 2)), [[1.0]]), "1 or 3 channels"),
        (lambda: variance_map(2 * COLOUR, [[1.0]]), r"colours in \[0, 1\]"),
        (lambda: variance_map(GREY, [1.0, 2.0]), "variance must be a non-empty array with 2 axes"),
        (lambda: variance_map(GREY, [[-1.0]]), "variance must not be negative"),
        (lambda: variance_maps(GREY, np.ones((2, 2))), "variance must be a non-empty array with 3 or 4 axes"),
        (lambda: variance_maps(np.zeros((2, 8, 8)), np.ones((4, 1, 2, 2))), "images must be one image or 4 of them"),
        (lambda: variance_maps(GREY, np.ones((2, 2, 2)), columns=["a"]), "columns must hold 2 names, got 1"),
        (lambda: variance_maps(GREY, np.ones((2, 2, 2)), rows=["a", "b"]), "rows must hold 1 names, got 2"),
        (lambda: example_gallery(np.zeros((2, 4, 4)), [0.1], [0]), "images must hold 1 entries"),
        (lambda: example_gallery(np.zeros((1, 4, 4)), [0.1], [0, 1]), "predictions must hold 1 entries"),
        (lambda: variance_maps(GREY, np.ones((1, 2, 2)), scale="sqrt"), "scale must be one of"),
        (lambda: posterior_bands([0, 1], [0, 1], [1]), "sd must have 2 rows, one per input, got 1"),
        (lambda: posterior_bands([[0, 1]], [0], [1]), r"x must be one input, got shape \(1, 2\)"),
        (lambda: posterior_bands([0], [0], [1], observed_x=[0], observed_y=[0, 1]), "observed_y must have 1 rows"),
        (lambda: posterior_bands([0, 1], [0, 1], [1, 1], names=["a", "b"]), "names must have 1 entries"),
        (lambda: posterior_bands([0, 1], [0, 1], [1, 1], observed_x=[0]), "must be given together"),
        (lambda: posterior_bands([0], [0], [1], observed_x=[0], observed_y=[[0, 1]]), "must have 1 columns, got 2"),
        (lambda: text_uncertainty("", []), "characters must be a non-empty text"),
        (lambda: text_uncertainty(["ab"], [1]), "single characters"),
        (lambda: text_uncertainty("ab", [1]), r"values must have shape \(2,\), one a character, got \(1,\)"),
        (lambda: text_uncertainty("ab", [1, -1]), "not negative, or NaN"),
        (lambda: text_uncertainty("ab", [1, np.inf]), "not negative, or NaN"),
        (lambda: text_uncertainties({}), "at least one text, got none"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
