"""Correlated-GP regression in scikit-learn's convention."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .checks import checked_outputs
from .inference import INFERENCES, OPTIMIZERS, Fitted, build_model, condition_model, fit_model
from .mixture import joint_draw, log_density, mixture_covariance, mixture_moments
from .persistence import load_estimator, save_estimator
from .scaling import Scaling, process_signs, stacked_rows

__all__ = ["CorrelatedGPRegressor"]

Array = NDArray[Any]

_EXACT_LIMIT = 10_000


class CorrelatedGPRegressor(RegressorMixin, BaseEstimator):
    """Gaussian-process regression of one or several correlated outputs, with intervals.

    A column of y is a process; NaN marks what was not observed, so that each process may have inputs of its own. All
    processes are predicted at every input, each from the observations of all. Inputs and outputs are standardised
    inside; answers are in the user's units.

    Args:
        kernel: canonical covariance: "rbf", "matern12", "matern32", "matern52", "rq", or a GPyTorch kernel.
        maps: "diagonal" (a lengthscale an input dimension and process), "free", or "orthogonal".
        canonical_dim: dimensions that "free" and "orthogonal" maps lead to; None means all.
        embedding_dim: coordinates that tell processes apart; None means one less than processes.
        num_components: independent canonical processes that are summed.
        shift: whether a process may be shifted against another.
        num_inducing: inducing inputs of the sparse forms; None means exact regression, for up to 10,000 observations.
        objective: of the closed sparse form, "vfe" or "dtc".
        inference: "map" (the most probable parameters), "nuts" (samples of them), "svi" (an approximation of those),
            or "stochastic" (minibatches, needs ``num_inducing``).
        optimizer: of "map": "lbfgs", "adam", or "auto" (Adam above 20,000 observations).
        num_starts: starts of L-BFGS that are followed to their end.
        max_steps: of the optimiser, or epochs of minibatches.
        batch_size: rows of a minibatch.
        num_chains: of "nuts".
        num_warmup: steps of each chain before its samples.
        num_samples: of each chain, or of "svi".
        num_mixture: samples that predictions are averaged over, at most.
        random_state: seed of everything random.
        verbose: whether progress is shown.

    Attributes:
        model_: the fitted GPyTorch model, in standardised units; with samples, one batch member a sample.
        fit_: how the optimiser did: loss, steps, converged, message.
        samples_: samples of the parameters with their diagnostics, or None.
        signs_: +1 or -1 for each process.
        n_features_in_: d.

    Example:
        >>> x = np.linspace(0, 6, 30)[:, None]
        >>> y = np.column_stack([np.sin(x[:, 0]), np.cos(x[:, 0])])
        >>> y[10:, 1] = np.nan
        >>> mean, sd = CorrelatedGPRegressor().fit(x, y).predict(x, return_std=True)
        >>> mean.shape, sd.shape
        ((30, 2), (30, 2))
    """

    def __init__(
        self,
        kernel: str | Kernel = "rbf",
        *,
        maps: str = "diagonal",
        canonical_dim: int | None = None,
        embedding_dim: int | None = None,
        num_components: int = 1,
        shift: bool = True,
        num_inducing: int | None = None,
        objective: str = "vfe",
        inference: str = "map",
        optimizer: str = "auto",
        num_starts: int = 1,
        max_steps: int = 200,
        batch_size: int = 1024,
        num_chains: int = 2,
        num_warmup: int = 300,
        num_samples: int = 200,
        num_mixture: int = 50,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.maps = maps
        self.canonical_dim = canonical_dim
        self.embedding_dim = embedding_dim
        self.num_components = num_components
        self.shift = shift
        self.num_inducing = num_inducing
        self.objective = objective
        self.inference = inference
        self.optimizer = optimizer
        self.num_starts = num_starts
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.num_mixture = num_mixture
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to observations.

        Args:
            X: inputs, ``(n, d)``.
            y: ``(n,)``, or ``(n, P)`` with NaN for what was not observed.

        Returns:
            The estimator.

        Raises:
            ValueError: if the data or an argument are not usable.
        """
        self._check_arguments()
        X, y = self._checked(X, y)
        self.x_scaling_, self.y_scaling_ = Scaling.of(X), Scaling.of(y)
        inputs, targets = self.x_scaling_.apply(X), self.y_scaling_.apply(y)
        self.signs_ = process_signs(inputs, targets)
        self.n_outputs_ = y.shape[1]
        observed = ~np.isnan(targets)
        rows = torch.as_tensor(stacked_rows(inputs, observed))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        base = build_model(self.get_params(deep=False), rows, torch.as_tensor(targets.T[observed.T]), self.signs_, seed)
        self._accept(fit_model(base, self.get_params(deep=False), seed))
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> Array | tuple[Array, Array]:
        """Mean of every process, with its uncertainty if asked for.

        Args:
            X: inputs, ``(t, d)``.
            return_std: whether to return standard deviations, too.
            return_cov: whether to return covariances, too.
            include_noise: whether they are those of a new observation or of the function beneath.

        Returns:
            The mean, ``(t,)`` or ``(t, P)`` as y was; with it the standard deviation in the same shape, or the
            covariance, ``(t, t)`` or ``(t, P, t, P)``.

        Raises:
            ValueError: if both uncertainties are asked for, or X does not fit.
        """
        if return_std and return_cov:
            raise ValueError("return_std, return_cov: expected at most one of them")
        X = self._new_inputs(X)
        if return_cov:
            return self._mean_and_covariance(X, include_noise)
        mean, variance = mixture_moments(*self._marginals(X, include_noise))
        mean = self._shaped(self.y_scaling_.undo(mean))
        return (mean, self._shaped(np.sqrt(variance) * self.y_scaling_.unit)) if return_std else mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, include_noise: bool = False) -> Array:
        """Joint draws of all processes.

        Args:
            X: inputs, ``(t, d)``.
            n_samples: S.
            random_state: seed.
            include_noise: whether to draw observations instead of the functions beneath.

        Returns:
            ``(t, S)``, or ``(t, P, S)`` if y had columns.

        Raises:
            ValueError: if ``n_samples`` is below one.
        """
        if n_samples < 1:
            raise ValueError(f"n_samples: expected at least 1, got {n_samples}")
        X = self._new_inputs(X)
        generator = check_random_state(random_state)
        mean, covariance = self._joint(X, include_noise)
        members = generator.randint(len(mean), size=n_samples)
        draws = [joint_draw(mean[member], covariance[member], generator) for member in members]
        stacked = self.y_scaling_.undo(np.stack(draws).reshape(n_samples, len(X), -1))
        return self._shaped(np.moveaxis(stacked, 0, -1))

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log-density of new observations, each by itself; that of the mixture where parameters were sampled.

        Args:
            X: inputs, ``(t, d)``.
            y: ``(t,)`` or ``(t, P)``.

        Returns:
            In nats, in the units of y, in its shape; NaN where y is.
        """
        values = np.asarray(y, dtype=np.float64).reshape(-1, self.n_outputs_)
        mean, variance = self._marginals(self._new_inputs(X), True)
        density = log_density(self.y_scaling_.apply(values), mean, variance)
        return self._shaped(density - np.log(self.y_scaling_.unit))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the mean, averaged over processes; NaN in y is left out.

        Args:
            X: inputs, ``(t, d)``.
            y: ``(t,)`` or ``(t, P)``.
            sample_weight: ``(t,)``.

        Returns:
            At most 1.
        """
        mean = np.asarray(self.predict(X)).reshape(-1, self.n_outputs_)
        truth = np.asarray(y, dtype=np.float64).reshape(-1, self.n_outputs_)
        weights = np.ones(len(mean)) if sample_weight is None else np.asarray(sample_weight)
        seen = ~np.isnan(truth)
        scores = [
            r2_score(truth[one, p], mean[one, p], sample_weight=weights[one])
            for p, one in enumerate(seen.T)
            if one.any()
        ]
        return float(np.mean(scores))

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator: arrays to ``path`` (safetensors), its description beside it (JSON).

        Args:
            path: the file; its suffix becomes ``.safetensors`` and ``.json``.

        Raises:
            ValueError: if the kernel is an object, which JSON cannot hold.
        """
        check_is_fitted(self)
        save_estimator(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> CorrelatedGPRegressor:
        """Read an estimator that was saved; its predictions are equal to the bit.

        Args:
            path: as given to :meth:`save`.

        Returns:
            The fitted estimator.
        """
        return load_estimator(cls, Path(path))

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: several outputs are welcome."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: GPyTorch's closures cannot be pickled, what they were made of can."""
        state = dict(super().__getstate__())
        fitted: Fitted | None = state.pop("fitted_", None)
        for name in ("model_", "samples_"):
            state.pop(name, None)
        return state | ({} if fitted is None else {"_packed": fitted.packed()})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Build the model anew from what it was made of."""
        packed = state.pop("_packed", None)
        super().__setstate__(state)
        if packed is not None:
            self._accept(Fitted.unpacked(packed, self.get_params(deep=False), self.signs_))

    def _accept(self, fitted: Fitted) -> None:
        self.fitted_ = fitted
        self.fit_, self.samples_ = fitted.fit, fitted.samples
        self.model_, self._condition = condition_model(fitted, self.num_mixture)

    def _check_arguments(self) -> None:
        for name, allowed in (("inference", INFERENCES), ("optimizer", OPTIMIZERS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: expected one of {allowed}, got {getattr(self, name)!r}")
        if self.inference == "stochastic" and self.num_inducing is None:
            raise ValueError("num_inducing: expected a number for inference='stochastic', got None")

    def _checked(self, X: Any, y: Any) -> tuple[Array, Array]:
        if y is None:
            raise ValueError("This CorrelatedGPRegressor estimator requires y to be passed, but the target y is None.")
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=1)
        y, self._single = checked_outputs(y, X)
        total = int((~np.isnan(y)).sum())
        if self.num_inducing is None and total > _EXACT_LIMIT:
            raise ValueError(
                f"num_inducing: expected a number for {total} observations, got None: exact regression is for at most "
                f"{_EXACT_LIMIT}"
            )
        return X, y

    def _new_inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)

    def _rows(self, X: Array) -> torch.Tensor:
        """Every process at every input, process fastest."""
        inputs = np.repeat(self.x_scaling_.apply(X), self.n_outputs_, axis=0)
        return torch.as_tensor(np.column_stack([inputs, np.tile(np.arange(float(self.n_outputs_)), len(X))]))

    def _marginals(self, X: Array, noisy: bool) -> tuple[Array, Array]:
        """Means and variances in standardised units, ``(S, t, P)``."""
        with torch.no_grad():
            moments = self.model_.moments(self._rows(X), self._condition, noisy=noisy)
        shape = (-1, len(X), self.n_outputs_)
        return moments.mean.numpy().reshape(shape), moments.variance.numpy().reshape(shape)

    def _joint(self, X: Array, noisy: bool) -> tuple[Array, Array]:
        """Means ``(S, t·P)`` and covariances ``(S, t·P, t·P)`` in standardised units."""
        rows = self._rows(X)
        with torch.no_grad():
            posterior = self.model_.posterior(rows, self._condition)
            mean, covariance = posterior.mean, posterior.covariance_matrix
            if noisy:
                covariance = covariance + torch.diag_embed(self.model_.likelihood.noise_of_rows(rows))
        size = len(rows)
        return mean.numpy().reshape(-1, size), covariance.numpy().reshape(-1, size, size)

    def _mean_and_covariance(self, X: Array, noisy: bool) -> tuple[Array, Array]:
        mean, covariance = mixture_covariance(*self._joint(X, noisy))
        outputs = self.n_outputs_
        mean = self.y_scaling_.undo(mean.reshape(-1, outputs))
        unit = self.y_scaling_.unit
        blocks = covariance.reshape(len(X), outputs, len(X), outputs) * unit[:, None, None] * unit
        return self._shaped(mean), blocks[:, 0, :, 0] if self._single else blocks

    def _shaped(self, values: Array) -> Array:
        """Without the axis of processes if y had none."""
        return values[:, 0] if self._single else values
