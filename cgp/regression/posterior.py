"""Predictions of a fitted regressor: means, intervals, draws and densities in the user's units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cgp.kernels.process_rows import noise_of_rows

from .appendable import Parts
from .checks import checked_inputs, with_nan
from .frames import Framing
from .likelihood import every_process
from .scaling import Scaling
from .solvers.model import RegressionModel, flat_members

__all__ = ["PredictionMixin"]

Array = NDArray[Any]


class PredictionMixin:
    """Predictions of an estimator: mixtures of Gaussians if there are several models, or samples.

    Attributes:
        models_: models in standardised units; with samples, one batch member per sample.
        x_scaling_: map from the user's inputs to standardised ones.
        y_scaling_: the same for outputs.
        n_outputs_: number P of outputs.
    """

    models_: list[RegressionModel]
    x_scaling_: Scaling
    y_scaling_: Scaling
    n_outputs_: int
    _conditions: list[Any]
    _framing: Framing
    _single: bool
    _observed: Parts

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> Array | tuple[Array, Array]:
        r"""Mean of every process, with its uncertainty if requested.

        .. math:: \bar\mu = \tfrac1S\sum_s\mu_s, \qquad \tfrac1S\sum_s C_s + (\mu_s-\bar\mu)(\mu_s-\bar\mu)^\top

        Args:
            X: inputs, ``(t, d)``.
            return_std: whether to return standard deviations, too.
            return_cov: whether to return covariances, too.
            include_noise: whether the uncertainty is that of a new observation or of the latent function.

        Returns:
            The mean, ``(t,)`` or ``(t, P)`` as in the fit; with it the standard deviation in the same shape, or the
            covariance, ``(t, t)`` or ``(t, P, t, P)``. Mean and standard deviation are frames (series) of pandas with
            the index of X, if both X and the outputs of the fit are.

        Raises:
            ValueError: if both uncertainties are requested, or X does not match the fit.
        """
        if return_std and return_cov:
            raise ValueError("return_std, return_cov: expected at most one of them")
        given, X = X, self._new_inputs(X)
        if return_cov:
            mean, covariance = self._mean_and_covariance(X, include_noise)
            return self._framing.applied(mean, given), covariance
        means, variances = self._marginals(X, include_noise)
        centre, variance = _mixed(means, variances)
        mean = self._framing.applied(self._shaped(self.y_scaling_.undo(centre)), given)
        if not return_std:
            return mean
        sd = np.sqrt(variance) * self.y_scaling_.unit
        return mean, self._framing.applied(self._shaped(sd), given)

    def leave_one_out(self) -> tuple[Array, Array]:
        """Every observation predicted from all others, in closed form, with fixed parameters.

        Returns:
            Mean and standard deviation of an observation, each in the shape of y; NaN where it was not observed.
        """
        check_is_fitted(self)
        means, variances = self._members(lambda model, _: model.leave_one_out())
        centre, variance = _mixed(means, variances)
        numbers = self.models_[0].train_inputs[0][..., -1].reshape(-1, means.shape[-1])[0].numpy()
        observed = self._observed.whole.numpy()
        mean, sd = np.full((2, *observed.shape), np.nan)
        for p, column in enumerate(observed.T):  # rows of a process are in the order of its observations
            mean[column, p] = centre[numbers == p]
            sd[column, p] = np.sqrt(variance)[numbers == p]
        return self._shaped(self.y_scaling_.undo(mean)), self._shaped(sd * self.y_scaling_.unit)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, include_noise: bool = False) -> Array:
        """Joint draws of all processes.

        Args:
            X: inputs, ``(t, d)``.
            n_samples: number S of draws.
            random_state: seed of the draws.
            include_noise: whether to draw observations instead of latent functions.

        Returns:
            ``(t, S)``, or ``(t, P, S)`` if y had columns.

        Raises:
            ValueError: if ``n_samples`` is below one.
        """
        X = self._new_inputs(X)
        draws = self._sampled(self._rows(X), n_samples, random_state, include_noise)
        stacked = self.y_scaling_.undo(draws.reshape(n_samples, len(X), -1))
        return self._shaped(np.moveaxis(stacked, 0, -1))

    def sample_at(
        self, X: Any, outputs: Any, n_samples: int = 1, random_state: Any = 0, include_noise: bool = False
    ) -> Array:
        """Joint draws at inputs, each of one process.

        Args:
            X: inputs, ``(t, d)``.
            outputs: index of the process at each input, ``(t,)``.
            n_samples: number S of draws.
            random_state: seed of the draws.
            include_noise: whether to draw observations instead of latent functions.

        Returns:
            ``(t, S)``.

        Raises:
            ValueError: if X or outputs have invalid shapes or values.
        """
        rows, outputs = self._places(X, outputs)
        draws = self._sampled(rows, n_samples, random_state, include_noise)
        return self.y_scaling_.chosen(outputs).undo(draws).T

    def totals_at(
        self, X: Any, outputs: Any, weights: Any, sums: Any, include_noise: bool = True
    ) -> tuple[Array, Array]:
        r"""Weighted sums over inputs, each of one process, with their variances.

        .. math:: w_a^\top\mu, \qquad w_a^\top C w_a \; (+ \sum_i w_{ai}^2\sigma_{p_i}^2)

        With noise, an input that occurs several times counts as several observations.

        Args:
            X: inputs, ``(t, d)``.
            outputs: index of the process at each input, ``(t,)``.
            weights: ``(t,)``.
            sums: index of the sum that each belongs to, ``(t,)``; each of 0 … A-1 occurs.
            include_noise: whether observations are summed, or latent functions.

        Returns:
            Means and variances, ``(A,)`` each, in the units of the outputs. For a series, in time linear in its rows.

        Raises:
            ValueError: if the arguments have invalid shapes or values.
        """
        rows, outputs = self._places(X, outputs)
        scaling = self.y_scaling_.chosen(outputs)
        weights, sums = np.asarray(weights, dtype=np.float64), np.asarray(sums, dtype=np.int64)
        inner = torch.as_tensor(weights * scaling.unit)
        count = int(sums.max()) + 1

        def totals(model: RegressionModel, known: Any) -> tuple[torch.Tensor, torch.Tensor]:
            means = model.moments(rows, known).mean.double()
            variances = model.total_variances(rows, inner, torch.as_tensor(sums), known).double()
            if include_noise:
                noise = (inner**2 * noise_of_rows(model.likelihood, rows)).expand(means.shape)
                variances = variances + _summed(noise, sums, count)
            return _summed(inner * means, sums, count), variances

        means, variances = self._members(totals)
        origin = np.bincount(sums, weights * scaling.undo(np.zeros(len(sums))), minlength=count)
        mean, variance = _mixed(means, variances)
        return origin + mean, variance

    def _places(self, X: Any, outputs: Any) -> tuple[torch.Tensor, Array]:
        """Standardised rows of inputs, and the indices of their processes."""
        X, outputs = self._new_inputs(X), np.asarray(outputs)
        if outputs.shape != (len(X),) or outputs.dtype.kind not in "iu":
            raise ValueError(f"outputs: expected {len(X)} integers, got {outputs.dtype} of shape {outputs.shape}")
        if len(X) and not 0 <= outputs.min() <= outputs.max() < self.n_outputs_:
            raise ValueError(f"outputs: expected 0 to {self.n_outputs_ - 1}, got {outputs.min()} to {outputs.max()}")
        rows = np.column_stack([self.x_scaling_.apply(X), outputs.astype(np.float64)])
        return torch.as_tensor(rows), outputs

    def _sampled(self, rows: torch.Tensor, n_samples: int, random_state: Any, noisy: bool) -> Array:
        """Draws at standardised rows in standardised units, ``(S, t)``."""
        if n_samples < 1:
            raise ValueError(f"n_samples: expected at least 1, got {n_samples}")
        generator = check_random_state(random_state)
        sizes = [model.batch().numel() for model in self.models_]
        total = sum(sizes)
        members = generator.randint(total, size=n_samples)
        source = torch.Generator().manual_seed(int(generator.randint(2**31 - 1)))
        counts = np.split(np.bincount(members, minlength=sum(sizes)), np.cumsum(sizes)[:-1])
        draws = np.empty((n_samples, len(rows)))
        draws[np.argsort(members)] = np.concatenate(
            [
                _drawn(model, rows, each.tolist(), known, source, noisy=noisy)
                for model, each, known in zip(self.models_, counts, self._conditions, strict=True)
                if each.any()
            ]
        )
        return draws

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        r"""Log-density of each new observation separately, :math:`\log\tfrac1S\sum_s N(y; \mu_s, v_s)`.

        Args:
            X: inputs, ``(t, d)``.
            y: ``(t,)`` or ``(t, P)``, as in ``fit``.

        Returns:
            In nats, in the units and shape of y; NaN where y is NaN.

        Raises:
            ValueError: if X or y do not fit.
        """
        X = self._new_inputs(X)
        values = self.y_scaling_.apply(self._new_outputs(y, len(X)))
        mean, variance = self._marginals(X, True)
        each = -0.5 * ((values - mean) ** 2 / variance + np.log(2.0 * np.pi * variance))
        density = logsumexp(each - np.log(len(each)), axis=0)
        return self._shaped(density - np.log(self.y_scaling_.unit))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the mean, averaged over processes; NaN in y is ignored.

        Args:
            X: inputs, ``(t, d)``.
            y: ``(t,)`` or ``(t, P)``, as in ``fit``.
            sample_weight: ``(t,)``.

        Returns:
            At most 1.

        Raises:
            ValueError: if X or y do not fit.
        """
        mean = np.asarray(self.predict(X)).reshape(-1, self.n_outputs_)
        truth = self._new_outputs(y, len(mean))
        weights = np.ones(len(mean)) if sample_weight is None else np.asarray(sample_weight)
        seen = ~np.isnan(truth)
        scores = [
            r2_score(truth[column, p], mean[column, p], sample_weight=weights[column])
            for p, column in enumerate(seen.T)
            if column.any()
        ]
        return float(np.mean(scores))

    def _new_inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        return checked_inputs(self, X, reset=False)

    def _new_outputs(self, y: Any, count: int) -> Array:
        values = np.asarray(with_nan(y), dtype=np.float64)
        allowed = {(count, self.n_outputs_)} | ({(count,)} if self.n_outputs_ == 1 else set())
        if values.shape not in allowed:
            raise ValueError(f"y: expected shape {(count, self.n_outputs_)} as in fit, got {values.shape}")
        return values.reshape(count, self.n_outputs_)

    def _rows(self, X: Array) -> torch.Tensor:
        """Every process at every input, process fastest."""
        return every_process(torch.as_tensor(self.x_scaling_.apply(X)), self.n_outputs_).flatten(0, 1)

    def _marginals(self, X: Array, noisy: bool) -> tuple[Array, Array]:
        """Means and variances in standardised units, ``(S, t, P)``."""
        rows, shape = self._rows(X), (-1, len(X), self.n_outputs_)
        means, variances = self._members(lambda model, known: model.moments(rows, known, noisy=noisy))
        return means.reshape(shape), variances.reshape(shape)

    def _joint(self, X: Array, noisy: bool) -> tuple[Array, Array]:
        """Means ``(S, t·P)`` and covariances ``(S, t·P, t·P)`` in standardised units."""
        rows = self._rows(X)

        def joint(model: RegressionModel, known: Any) -> tuple[torch.Tensor, torch.Tensor]:
            posterior = model.posterior(rows, known)
            covariance = posterior.covariance_matrix
            if noisy:
                covariance = covariance + torch.diag_embed(noise_of_rows(model.likelihood, rows))
            return posterior.mean, covariance.flatten(-2)

        means, covariances = self._members(joint)
        return means, covariances.reshape(-1, len(rows), len(rows))

    def _members(self, ask: Callable[[Any, Any], tuple[torch.Tensor, torch.Tensor]]) -> tuple[Array, Array]:
        """Two results ``(..., n)`` of every model, one row for each member of the mixture, ``(S, n)``."""
        with torch.no_grad():
            parts = [ask(model, known) for model, known in zip(self.models_, self._conditions, strict=True)]
        first, second = (
            np.concatenate([value.numpy().reshape(-1, value.shape[-1]) for value in values])
            for values in zip(*parts, strict=True)
        )
        return first, second

    def _mean_and_covariance(self, X: Array, noisy: bool) -> tuple[Array, Array]:
        means, covariances = self._joint(X, noisy)
        centre = means.mean(0)
        covariance = covariances.mean(0) + (means - centre).T @ (means - centre) / len(means)
        outputs = self.n_outputs_
        mean = self.y_scaling_.undo(centre.reshape(-1, outputs))
        unit = self.y_scaling_.unit
        blocks = covariance.reshape(len(X), outputs, len(X), outputs) * unit[:, None, None] * unit
        return self._shaped(mean), blocks[:, 0, :, 0] if self._single else blocks

    def _shaped(self, values: Array) -> Array:
        """Values without the axis of processes if y had none."""
        return values[:, 0] if self._single else values


def _mixed(means: Array, variances: Array) -> tuple[Array, Array]:
    """Mean and variance of the mixture of members ``(S, ...)``."""
    mean = means.mean(0)
    return mean, variances.mean(0) + ((means - mean) ** 2).mean(0)


def _summed(values: torch.Tensor, sums: Array, count: int) -> torch.Tensor:
    """Values ``(..., t)`` added up by the index of their sum, ``(..., A)``."""
    zero = torch.zeros(*values.shape[:-1], count, dtype=values.dtype)
    return zero.index_add(-1, torch.as_tensor(sums), values)


def _drawn(
    model: RegressionModel, rows: torch.Tensor, counts: list[int], known: Any, source: torch.Generator, *, noisy: bool
) -> Array:
    """Draws of some members of a model, concatenated, with the requested number of each."""
    draws = model.draw(rows, counts, known, generator=source)
    if noisy:
        noise = flat_members(noise_of_rows(model.likelihood, rows), model.batch())
        sd = noise.sqrt().repeat_interleave(torch.tensor(counts), dim=0)
        draws = draws + sd * torch.randn(draws.shape, generator=source, dtype=torch.float64).to(draws)
    return draws.numpy()
