"""Pictures of uncertainty: arrays or tensors go in, matplotlib axes come out; models stay outside.

All share one style (`style`). Functions of one picture take ``ax=``, those of several ``figure=`` (a figure or
subfigure); without it they open a figure of the right size. Save with ``ax.figure.savefig(...)``.
"""

from cgp.extras import needs_extra

with needs_extra("plot", "cgp.plotting"):
    from cgp.plotting.calibration import interval_coverage, method_scores, reliability_diagram, risk_coverage
    from cgp.plotting.curves import curves, posterior_bands, uncertainty_histograms
    from cgp.plotting.gaps import filled_table, pair_correlations, residual_panels
    from cgp.plotting.images import example_gallery, variance_map, variance_maps
    from cgp.plotting.places import filled_maps, residual_maps
    from cgp.plotting.style import COLUMN, PALETTE, WIDE, style
    from cgp.plotting.tokens import attention_matrix, text_uncertainties

__all__ = [
    "COLUMN",
    "PALETTE",
    "WIDE",
    "attention_matrix",
    "curves",
    "example_gallery",
    "filled_maps",
    "filled_table",
    "interval_coverage",
    "method_scores",
    "pair_correlations",
    "posterior_bands",
    "reliability_diagram",
    "residual_maps",
    "residual_panels",
    "risk_coverage",
    "style",
    "text_uncertainties",
    "uncertainty_histograms",
    "variance_map",
    "variance_maps",
]
