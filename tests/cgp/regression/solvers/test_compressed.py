"""Compressed rows against the dense density and conditional of all outputs, with gaps."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.regression import MAP, CorrelatedGPRegressor
from cgp.regression.solvers.compressed import CompressedPosterior, compress_rows, compressed_log_evidence

ROWS, OUTPUTS, RANK, ASKED = 5, 6, 2, 3
GAPS = {"none": [], "some": [0, 1, 2, 3, 4, 7, 9, 23], "a row of its own": [*range(6, 12), 13, 14]}


def problem(gaps, *batch):
    """Row and output of each observation, root of the grams, loadings, log noises of the outputs, residuals."""
    generator = torch.Generator().manual_seed(0)
    kept = torch.tensor([cell for cell in range(ROWS * OUTPUTS) if cell not in GAPS[gaps]])
    kept = torch.cat([kept, kept[:1]])  # observed twice
    shapes = (RANK, ROWS + ASKED, ROWS + ASKED), (OUTPUTS, RANK), (OUTPUTS,), (len(kept),)
    values = [torch.randn(*batch, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return kept // OUTPUTS, kept % OUTPUTS, values


def compressed(gaps, roots, loadings, log_noise, residual):
    rows, outputs, _ = problem(gaps)
    return compress_rows(loadings[..., outputs, :], log_noise.exp()[..., outputs], residual, rows, ROWS)


def evidence(gaps, *values):
    grams = (values[0] @ values[0].mT)[..., :ROWS, :ROWS]
    return compressed_log_evidence(grams, compressed(gaps, *values))


def dense(gaps):
    """The covariance of the processes at all inputs, the map to the observations, and their covariance, in numpy."""
    rows, outputs, (roots, loadings, log_noise, residual) = problem(gaps)
    grams = (roots @ roots.mT).numpy()
    prior = np.zeros((RANK, ROWS + ASKED, RANK, ROWS + ASKED))
    for r in range(RANK):
        prior[r, :, r, :] = grams[r]
    prior = prior.reshape(RANK * (ROWS + ASKED), -1)
    reader = np.zeros((len(rows), RANK, ROWS + ASKED))
    for i, (row, output) in enumerate(zip(rows, outputs, strict=True)):
        reader[i, :, row] = loadings[output]
    reader = reader.reshape(len(rows), -1)
    return prior, reader, reader @ prior @ reader.T + np.diag(log_noise.exp()[outputs]), residual.numpy()


@pytest.mark.parametrize("gaps", GAPS)
def test_evidence_is_the_density_of_all_observations(gaps):
    *_, covariance, residual = dense(gaps)
    expected = multivariate_normal(cov=covariance).logpdf(residual)
    assert float(evidence(gaps, *problem(gaps)[2])) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("gaps", GAPS)
def test_gradients_are_those_of_finite_differences(gaps):
    values = [value.requires_grad_() for value in problem(gaps)[2]]
    assert torch.autograd.gradcheck(lambda *given: evidence(gaps, *given), values)


def test_an_overflow_is_refused_as_other_objectives_that_have_no_value():
    """A search that has stepped too far then takes a shorter step."""
    roots, loadings, log_noise, residual = problem("some")[2]
    with pytest.raises(NotPositiveDefiniteError, match="information of the rows: expected finite numbers"):
        evidence("some", roots, 1e200 * loadings, log_noise, residual)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_constant_output_beside_repeated_rows_is_fitted():
    """Its noise falls to its floor, and a step from there may overflow the other outputs'."""
    rng, x = np.random.default_rng(5), np.repeat(np.arange(20.0), 5)[:, None]
    y = np.column_stack([np.sin(x[:, 0] / 3), np.ones(100), rng.normal(size=100)])
    y[rng.random(y.shape) < 0.1] = np.nan
    fitted = CorrelatedGPRegressor(structure="coregionalised", inference=MAP(max_steps=10), random_state=0).fit(x, y)
    np.testing.assert_allclose(fitted.predict(x)[:, 1], 1.0, atol=1e-3)


def test_batches_are_their_members():
    values = problem("some", 2)[2]
    together = evidence("some", *values)
    apart = torch.stack([evidence("some", *(value[member] for value in values)) for member in range(2)])
    torch.testing.assert_close(together, apart)


@pytest.mark.parametrize("gaps", GAPS)
def test_posterior_is_the_dense_conditional(gaps):
    prior, reader, covariance, residual = dense(gaps)
    gain = prior @ reader.T @ np.linalg.inv(covariance)
    shape = (RANK, ROWS + ASKED)
    mean = (gain @ residual).reshape(shape)[:, ROWS:]
    joint = (prior - gain @ reader @ prior).reshape(*shape, *shape)[:, ROWS:, :, ROWS:]
    roots, *rest = problem(gaps)[2]
    grams = roots @ roots.mT
    posterior = CompressedPosterior(grams[:, :ROWS, :ROWS], compressed(gaps, roots, *rest))
    cross = grams[:, ROWS:, :ROWS]
    np.testing.assert_allclose(posterior.means(cross), mean.T, atol=1e-9)
    found = posterior.covariances(cross, grams.diagonal(dim1=-2, dim2=-1)[:, ROWS:])
    np.testing.assert_allclose(found, np.einsum("rtst->trs", joint), atol=1e-9)
    loadings = torch.randn(ASKED, RANK, dtype=torch.float64)
    whitened = posterior.whitened(cross, loadings)
    before = torch.einsum("tr,rtk,kr->tk", loadings, grams[:, ROWS:, ROWS:], loadings)
    expected = np.einsum("tr,rtsk,ks->tk", loadings, joint, loadings)
    np.testing.assert_allclose(before - whitened.mT @ whitened, expected, atol=1e-9)


def test_batches_of_loadings_share_the_noise():
    *_, (_, loadings, _, _) = problem("none", 3)
    ones, rows = torch.ones(OUTPUTS, dtype=torch.float64), torch.zeros(OUTPUTS, dtype=torch.int64)
    torch.testing.assert_close(compress_rows(loadings, ones, ones, rows, 1).precision[:, 0], loadings.mT @ loadings)
