"""The study of learned priors: tables in which everything varies, and few observations of them."""

import numpy as np
import torch
from scipy.stats import multivariate_normal

from cgp.regression import LearnedPrior, ParameterSet, PriorComponent
from cgp.regression.prior import gram_of
from experiments.studies.regression.prior import _drawn, _drawn_row, _few_row, _known, synthetic_table


def test_synthetic_tables_are_reproducible_and_vary():
    tables = [synthetic_table(seed) for seed in range(12)]
    again = synthetic_table(3)
    np.testing.assert_array_equal(tables[3][1], again[1])
    sizes = {y.shape[1] for _, y in tables}
    assert len(sizes) > 4
    assert all(1 <= size <= 30 for size in sizes)
    assert all(len(x) == len(y) and (~np.isnan(y)).any(0).all() for x, y in tables)
    steps = [np.nanmean(np.abs(np.diff(y, axis=0))) for _, y in tables]
    assert max(steps) > 3 * min(steps)
    assert any(np.isnan(y).any() for _, y in tables)


def test_few_observations_are_scored_on_the_hidden_values():
    prior = LearnedPrior((ParameterSet((PriorComponent("matern32", 0.5, 1.0),), 1.0),), (0.01, 0.1), (0.5, 0.5))
    row = _few_row(1, 8, 0, {"inference": "pretrained", "prior": prior})
    assert np.isfinite(row["nll"])
    assert 0.0 <= row["coverage"] <= 1.0


def test_the_true_process_has_the_joint_density_of_dense_algebra():
    component, noise = PriorComponent("matern52", 0.25, 1.0), 0.04
    row = _drawn_row(component, noise, 1000, _known(component, noise))
    x, truth = _drawn(component, noise, 1000)
    generator = np.random.default_rng(1000)
    known = generator.permutation(64)[: generator.integers(3, 48)]
    hidden = np.setdiff1d(np.arange(64), known)
    K = gram_of(component, torch.as_tensor(x)).numpy() + noise * np.eye(64)
    total, given = (
        multivariate_normal.logpdf(truth[part, 0], cov=K[np.ix_(part, part)]) for part in (np.arange(64), known)
    )
    np.testing.assert_allclose(row["joint_nll"], (given - total) / len(hidden), rtol=1e-4)
    assert row["joint_nll"] < row["nll"]
