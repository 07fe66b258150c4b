"""Pictures of uncertainty: arrays or tensors go in, matplotlib axes come out; models stay outside.

All share one style (`style`). Functions of one picture take ``ax=``, those of several ``figure=`` (a figure or
subfigure); without it they open a figure of the right size. Save with ``ax.figure.savefig(...)``.
"""

from cgp.plotting.attention import attention_matrix, spectrum
from cgp.plotting.calibration import reliability_diagram
from cgp.plotting.chains import rank_plot, trace_plot
from cgp.plotting.curves import shift_curves, similarity_by_layer, training_curves
from cgp.plotting.detection import confidence_histograms, risk_coverage, roc_curves, uncertainty_histograms
from cgp.plotting.images import example_gallery, variance_map, variance_maps
from cgp.plotting.intervals import interval_coverage, pit_histogram
from cgp.plotting.regression import covariance_map, inducing_inputs, posterior_bands
from cgp.plotting.style import COLUMN, PALETTE, RC, WIDE, style
from cgp.plotting.text import text_uncertainties, text_uncertainty

__all__ = [
    "COLUMN",
    "PALETTE",
    "RC",
    "WIDE",
    "attention_matrix",
    "confidence_histograms",
    "covariance_map",
    "example_gallery",
    "inducing_inputs",
    "interval_coverage",
    "pit_histogram",
    "posterior_bands",
    "rank_plot",
    "reliability_diagram",
    "risk_coverage",
    "roc_curves",
    "shift_curves",
    "similarity_by_layer",
    "spectrum",
    "style",
    "text_uncertainties",
    "text_uncertainty",
    "trace_plot",
    "training_curves",
    "uncertainty_histograms",
    "variance_map",
    "variance_maps",
]
