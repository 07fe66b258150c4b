"""Simulated predictions with known properties."""

import numpy as np


def draws(*, samples=200, classes=4, num_samples=5, seed=0, scale=2.0):
    """Logits (S, N, C) that know something of their labels, and the labels."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=samples)
    signal = scale * np.eye(classes)[labels]
    return signal + generator.normal(size=(num_samples, samples, classes)) * scale, labels
