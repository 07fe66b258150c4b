"""What sums say of outputs without readings: evidence of means over bins against dense sums, and a fit."""

import numpy as np
import torch

from cgp.regression.covariances.multiscale import MultiScale
from cgp.regression.covariances.rows import dense_covariance
from cgp.regression.inference.silent import bin_evidence, fit_silent
from cgp.regression.solvers.series import SeriesCorrelatedGPRegression
from cgp.regression.sums import Bins

STEP = 0.05


def model_of(outputs=2):
    covariance = MultiScale(2, 1, periods=[3.0]).between(outputs, 1.0, 20.0)
    rows = torch.cartesian_prod(torch.arange(0.0, 12.0, STEP, dtype=torch.float64), torch.arange(outputs).double())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for component in covariance.kernels:
            component.loadings.factors += 0.5 * torch.randn(outputs, 1, generator=generator, dtype=torch.float64)
    targets = torch.randn(len(rows), generator=generator, dtype=torch.float64)
    return SeriesCorrelatedGPRegression(rows, targets, outputs, covar_module=covariance).eval()


def bins_of(model):
    """Three bins of 60 rows that meet, and one of 40 after a break; of output 1 the last mean is not known."""
    first = np.array([0, 60, 120, 200])
    counts = np.array([60, 60, 60, 40])
    means = np.random.default_rng(0).normal(size=(4, model.num_processes))
    means[-1, 0] = np.nan
    return Bins(1, first * STEP, (first + counts - 1) * STEP, counts, means)


def test_evidence_of_means_is_that_of_dense_means():
    model = model_of()
    bins, rows = bins_of(model), model.train_inputs[0]
    K = dense_covariance(model.covar_module, rows) + model.likelihood.noise[rows[:, 1].long()].diag()
    inside = [
        (rows[:, 1] == p) & (rows[:, 0] > low - 1e-6) & (rows[:, 0] < high + 1e-6)
        for low, high in zip(bins.low, bins.high, strict=True)
        for p in range(2)
    ]
    weights = torch.stack([each.double() / each.sum() for each in inside])
    means = torch.as_tensor(bins.means).flatten()
    known = means.isfinite()
    lengths = torch.as_tensor(bins.counts / bins.counts[0]).repeat_interleave(2)[known]
    W = weights[known]
    zero = torch.zeros(int(known.sum()), dtype=torch.float64)
    law = torch.distributions.MultivariateNormal(zero, W @ K @ W.mT)
    expected = law.log_prob(means[known]) - lengths.log().sum()  # of sums in units of the first bin
    torch.testing.assert_close(bin_evidence(model, bins, STEP), expected, rtol=2e-3, atol=2e-3)


def test_only_the_parameters_of_an_output_without_readings_are_learned():
    model = model_of(3)
    bins = bins_of(model)
    bins.means[:, 1] = 2.0 + bins.means[:, 0]

    def density():
        with torch.no_grad():
            return float(bin_evidence(model, bins, STEP) + model.log_prior())

    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    value = density()
    fit_silent(model, [bins], STEP)
    assert density() > value + 1.0
    for name, each in model.named_parameters():
        others = [0, 2] if each.shape[:1] == (3,) else slice(None)
        torch.testing.assert_close(each[others], before[name][others], rtol=0.0, atol=0.0)
