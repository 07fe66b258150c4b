"""Predictions of an ``ExactGP`` with a Markov kernel, in time linear in all rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import LinearOperator
from linear_operator.operators import AddedDiagLinearOperator
from torch import Tensor

from cgp.operators.markov import MarkovLinearOperator
from cgp.operators.markov_cross import MarkovCrossLinearOperator
from cgp.operators.markov_posterior import MarkovPosteriorLinearOperator
from cgp.operators.missing import known_rows
from cgp.statespace.moments import posterior_moments

__all__ = ["MarkovPredictionStrategy"]


class _Known(NamedTuple):
    """The observations: minus their mean, noise variances, and which there are, ``(*batch, n)`` each."""

    residual: Tensor
    noise: Tensor
    observed: Tensor


class MarkovPredictionStrategy(DefaultPredictionStrategy):
    """As GPyTorch's default strategy, by a filter and a smoother over observations and new rows together."""

    def exact_prediction(
        self, test_mean: Tensor, test_test_covar: LinearOperator, test_train_covar: LinearOperator
    ) -> tuple[Tensor, LinearOperator]:
        """Mean and covariance at new rows.

        Args:
            test_mean: their prior mean, ``(*batch, m)``.
            test_test_covar: unused.
            test_train_covar: their covariance with the observations.

        Returns:
            The mean, ``(*batch, m)``, and the covariance, whose diagonal is known and whose other entries are made
            where they are asked for.

        Raises:
            ValueError: if the covariance is not that of a Markov kernel alone.
        """
        if isinstance(test_train_covar, MarkovLinearOperator):  # of new rows that are the observed ones
            rows = torch.arange(test_train_covar.shape[-1])
            test_train_covar = MarkovCrossLinearOperator(test_train_covar.select(rows.repeat(2)), len(rows))
        if not isinstance(test_train_covar, MarkovCrossLinearOperator):
            raise ValueError(
                f"kernel: expected a Markov kernel, got {type(test_train_covar).__name__}: for a sum or product, "
                "Markov(...) around all of it"
            )
        joint, known = test_train_covar.joint, self._known()
        batch = torch.broadcast_shapes(joint.batch_shape, known.residual.shape[:-1], test_mean.shape[:-1])
        known = _Known(*(each.expand(*batch, -1) for each in known))
        mean, covariance = _predicted(joint, known, test_train_covar.rows)
        return test_mean + mean.to(test_mean), covariance

    def _known(self) -> _Known:
        residual = self.train_labels - self.train_prior_dist.loc.reshape(*self.train_prior_dist.batch_shape, -1)
        observed = known_rows(residual, "train_targets")
        return _Known(torch.where(observed, residual, 0.0), _noise_of(self.lik_train_train_covar), observed)

    def get_fantasy_strategy(
        self, inputs: Any, targets: Tensor, full_inputs: Any, full_targets: Tensor, full_output: Any, **kwargs: Any
    ) -> MarkovPredictionStrategy:
        """The strategy of all rows, as of :meth:`gpytorch.models.ExactGP.get_fantasy_model`."""
        likelihood = self.likelihood.get_fantasy_likelihood(**kwargs)
        return self.__class__(full_inputs, full_output, full_targets, likelihood)


def _noise_of(covariance: LinearOperator) -> Tensor:
    """The noise variances of observations, ``(*batch, n)``."""
    if isinstance(covariance, AddedDiagLinearOperator):
        return covariance._diag_tensor._diagonal()
    evaluated = covariance.evaluate_kernel()
    if not isinstance(evaluated, MarkovLinearOperator):
        raise ValueError("likelihood: expected independent noise, got noise that is correlated between observations")
    return evaluated.noise


def _predicted(joint: MarkovLinearOperator, known: _Known, rows: int) -> tuple[Tensor, LinearOperator]:
    moments: tuple[list[Tensor], list[Tensor]] = ([], [])
    batch = known.residual.shape[:-1]
    for index, member in joint._members(batch):
        seen = member._replace(cells=member.cells[rows:], noise=known.noise[index])
        residual, noise = (seen.table(each[index].double()[:, None])[..., 0] for each in (known.residual, known.noise))
        tables = posterior_moments(member.space, residual, noise, seen.observed(known.observed[index]))
        for values, table in zip(moments, tables, strict=True):
            values.append(table.flatten()[member.cells[:rows]])
    mean, variance = (torch.stack(each).reshape(*batch, rows) for each in moments)
    variance = variance.to(known.noise)
    return mean, MarkovPosteriorLinearOperator(joint, torch.zeros_like(variance), variance, known.noise, known.observed)
