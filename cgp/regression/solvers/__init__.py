"""Solvers: models that condition on observations, and the choice of the cheapest one that can."""
