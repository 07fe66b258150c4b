"""Evidences with gradients in closed form against scipy's density and finite differences."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.regression.solvers.exact import dense_log_evidence, mixed_log_evidence, mixed_places

OUTPUTS, LENGTH, COMPONENTS = 3, 4, 2


def cells(seed=0):
    """Inputs and outputs of the cells of a table with gaps that are observed, in any order."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.randperm(OUTPUTS * LENGTH, generator=generator)[:8]
    return kept % LENGTH, kept // LENGTH


def roots(*batch, seed=0):
    """Roots of the matrices between inputs and between outputs, log noises and residuals."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (COMPONENTS, LENGTH, LENGTH), (COMPONENTS, OUTPUTS, OUTPUTS), (8,), (8,)
    return [torch.randn(*batch, *shape, generator=generator, dtype=torch.float64) for shape in shapes]


def evidence(of_inputs, of_outputs, log_noise, residual):
    places = mixed_places(*cells(), (OUTPUTS, LENGTH))
    grams, mixing = of_inputs @ of_inputs.mT, of_outputs @ of_outputs.mT
    return mixed_log_evidence(grams, mixing, log_noise.exp(), residual, places)


def test_mixed_evidence_is_the_density_of_the_observed_cells():
    of_inputs, of_outputs, log_noise, residual = roots()
    inputs, outputs = (index.numpy() for index in cells())
    covariance = np.diag(log_noise.exp().numpy())
    for a, b in zip(of_inputs.numpy(), of_outputs.numpy(), strict=True):
        covariance += (a @ a.T)[np.ix_(inputs, inputs)] * (b @ b.T)[np.ix_(outputs, outputs)]
    expected = multivariate_normal(cov=covariance).logpdf(residual.numpy())
    assert float(evidence(of_inputs, of_outputs, log_noise, residual)) == pytest.approx(expected, rel=1e-11)
    dense = dense_log_evidence(torch.as_tensor(covariance), residual)
    assert float(dense) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradients_are_those_of_finite_differences(batch):
    assert torch.autograd.gradcheck(evidence, [value.requires_grad_() for value in roots(*batch)])


def test_batches_are_broadcast():
    of_inputs, _, log_noise, residual = roots()
    several = roots(3, seed=1)[1].requires_grad_()
    log_noise.requires_grad_()
    together = evidence(of_inputs, several, log_noise, residual)
    apart = torch.stack([evidence(of_inputs, each, log_noise, residual) for each in several])
    torch.testing.assert_close(together, apart)
    for one, other in zip(
        *(torch.autograd.grad(v.sum(), (several, log_noise)) for v in (together, apart)), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_what_cannot_be_factored_is_refused():
    with pytest.raises(NotPositiveDefiniteError):
        dense_log_evidence(-torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
