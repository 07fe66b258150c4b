"""Solvers: models that condition on observations, each in a way of its own."""

from . import exact, compressed, series, sparse, stochastic, summed, uncertain_loadings  # noqa: F401, I001 - by cost: see SOLVERS
