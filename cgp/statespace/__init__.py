"""Gaussian processes along one ordered input as linear stochastic differential equations, in linear time."""
