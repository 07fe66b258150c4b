"""Variances of sums of functions of outputs, against the series over the dense covariance."""

import numpy as np
import pytest
import torch

from cgp.statespace.expansions import Expansion, dense_expansion_variance
from cgp.statespace.posterior import StateSpacePosterior
from cgp.statespace.processes import matern_process
from cgp.statespace.space import state_space
from cgp.statespace.totals import Terms


def posterior_of(count, share):
    """Two outputs of two processes over a line, a share of them observed."""
    rng = np.random.default_rng(0)
    lags = torch.tensor([0.05, 0.3], dtype=torch.float64)
    processes = [matern_process(lags, 3), matern_process(0.1 * lags, 5)]
    loadings = [torch.tensor([[1.0, 0.0], [0.5, 0.7]]).double(), torch.tensor([[0.6], [0.4]]).double()]
    space = state_space(processes, loadings, torch.as_tensor(rng.integers(0, 2, count)))
    observed = torch.as_tensor(rng.random((count, 2)) < share)
    values = torch.as_tensor(rng.normal(size=(count, 2)))
    return StateSpacePosterior(space, values, torch.full_like(values, 0.02), observed)


def problem_of(posterior, chosen, orders):
    rng = np.random.default_rng(1)
    rows, outputs = np.nonzero(chosen)
    sums = rows // (len(chosen) // 2) if len(chosen) > 100 else rng.integers(0, 3, len(rows))
    order, shape = rng.permutation(len(rows)), (orders, len(rows))
    terms = Terms(rows[order], outputs[order], np.ones(len(rows)), sums[order])
    variances = posterior.variance.numpy()[terms.rows, terms.outputs]
    further = 0.1 * rng.normal(size=(len(rows), 2))
    noise = rng.random(len(rows)) * 0.1
    deviations = np.sqrt(variances + noise + np.square(further).sum(1))
    return terms, Expansion(rng.normal(size=shape) / np.arange(1, orders + 1)[:, None], deviations, noise, further)


def expected_of(posterior, terms, expansion):
    cells = terms.rows * 2 + terms.outputs
    covariance = (
        posterior.covariance.numpy()[cells][:, cells] + expansion.sign * expansion.further @ expansion.further.T
    )
    covariance = covariance + np.diag(expansion.noise)
    parts = [np.flatnonzero(terms.sums == number) for number in range(terms.sums.max() + 1)]
    s = expansion.deviations
    R = covariance / np.outer(s, s)
    variances = []
    for part in parts:
        powers = [R[np.ix_(part, part)] ** (k + 1) for k in range(len(expansion.coefficients))]
        variances.append(sum(c @ power @ c for c, power in zip(expansion.coefficients[:, part], powers, strict=True)))
        dense = dense_expansion_variance(covariance[np.ix_(part, part)], expansion.coefficients[:, part], s[part])
        assert dense == pytest.approx(variances[-1], rel=1e-12)
    return np.array(variances)


@pytest.mark.parametrize("orders", [1, 4])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_variances_are_those_of_the_series_over_the_covariance(orders, sign):
    """Of sums that overlap in time, over gaps and observed values, in any order."""
    posterior = posterior_of(40, 0.5)
    terms, expansion = problem_of(posterior, np.ones((40, 2), dtype=bool), orders)
    expansion = expansion._replace(sign=sign)
    found = posterior.expansion_variances(terms, expansion).numpy()
    np.testing.assert_allclose(found, expected_of(posterior, terms, expansion), rtol=1e-9)


def test_terms_that_nothing_is_correlated_with_any_more_are_left_out():
    posterior = posterior_of(600, 0.6)
    terms, expansion = problem_of(posterior, np.ones((600, 2), dtype=bool), 4)
    expansion = expansion._replace(further=np.zeros((1200, 0)))
    columns = []
    from cgp.statespace import expansions

    with pytest.MonkeyPatch.context() as patch:
        step = expansions._step
        patch.setattr(
            expansions, "_step", lambda *args: (columns.extend(each.shape[1] for each in args[-1]), step(*args))
        )
        found = posterior.expansion_variances(terms, expansion).numpy()
    assert 64 < max(columns) < 300 < 600  # of 600 terms in a sum
    np.testing.assert_allclose(found, expected_of(posterior, terms, expansion), rtol=1e-4)
    linear = expansion._replace(coefficients=expansion.coefficients[:1])
    np.testing.assert_allclose(
        posterior.expansion_variances(terms, linear), expected_of(posterior, terms, linear), rtol=1e-9
    )
    assert torch.is_tensor(posterior.expansion_variances(terms, linear))
