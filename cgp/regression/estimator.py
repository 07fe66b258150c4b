"""Correlated-GP regression in scikit-learn's convention."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from inspect import signature
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .appendable import Parts
from .checks import check_arguments, checked_inputs, checked_outputs
from .covariances.correlation import start_at_correlation
from .covariances.factors import FACTORS, fit_factors, output_correlation, start_at_components
from .frames import Framing
from .inference.adequacy import warn_of_unexplained
from .inference.bayesian import MOST_ENTRIES, batch_models, held_entries, sample_laplace, sample_nuts
from .inference.comparison import COMPARED, Fitted, fit_structures
from .inference.costs import check_memory
from .inference.fitting import Fit, Progress, fit_model, progress_line, seeded
from .inference.long_series import (
    fit_long_series,
    gross_errors,
    is_long_series,
    periods_of,
)
from .inference.minibatches import fit_minibatches, start_from
from .inference.slices import sample_slices
from .parameters import LearnedMixin
from .plan import WARM_ROWS, WARM_STEPS, PlanMixin
from .posterior import PredictionMixin
from .rollback import unchanged_on_error
from .scaling import Scaling, stacked_rows
from .solvers.choice import Form, Task, choose_form
from .solvers.model import RegressionModel
from .solvers.sparse import SparseCorrelatedGPRegression
from .solvers.stochastic import StochasticCorrelatedGPRegression

__all__ = ["CorrelatedGPRegressor"]

_SAMPLERS = {"laplace": sample_laplace, "slice": sample_slices}
_LONG_FIT = 10.0  # seconds


class CorrelatedGPRegressor(PlanMixin, LearnedMixin, PredictionMixin, RegressorMixin, BaseEstimator):
    """Gaussian-process regression of one or several correlated outputs, with intervals.

    A column of y is a process; NaN marks unobserved entries, so that each process may have its own inputs. All
    processes are predicted at every input, each from the observations of all. Inputs and outputs are standardised
    internally; results are in the user's units.

    Args:
        kernel: canonical covariance: "rbf", "matern12", "matern32", "matern52", "rq", or a GPyTorch kernel; None is
            "matern32" for long series and "rbf" otherwise.
        num_components: independent sets of canonical processes that are summed; None is 5 for "multiscale", else 1.
        structure: how processes are related: "independent", "coregionalised" (one set of lengthscales), "shared" (one
            more component, with a common process and a separate one for each output), "shifted" (coregionalised,
            against each other), "affine" (lengthscales and shifts of their own), "factors" (weighted sums of few
            processes with different lengthscales, for tables of many outputs; ``num_components`` of them, or the
            number selected by the criterion from 1, 2, 4, ...), or "auto": the first four are fitted, and the
            predictions of the correlated ones within 30 nats of the best Bayesian information criterion are averaged;
            "independent" is used alone if it is the best. Tables of eight or more outputs for which a fit would take
            minutes are fitted by "factors". "nuts" and "stochastic" inference continues with the best structure.
            "multiscale" is for series (one input): components on many time scales, each with a few processes shared by
            all outputs and a separate one for each output, and cycles, learned from windows in time linear in the
            rows; "auto" selects it for more than 2,000 observations of a series if the kernel is None or a Matérn
            kernel and no other argument rules it out.
        num_inducing: inducing inputs of the sparse forms; None means exact regression, for up to 10,000 observations.
        inference: "map" (the most probable parameters), "laplace" (a Gaussian around them), "slice" or "nuts" (samples
            of them, the former for few observations), "stochastic" (the most probable ones by minibatches, needs
            ``num_inducing``), or "auto": "slice" up to 50 observations, else "map".
        periods: periods of the cycles of "multiscale", in units of the input, which "auto" then selects; "auto" detects
            up to three.
        num_starts: number of starts of L-BFGS that are optimised to the end ("multiscale" has none: it learns from
            windows).
        max_steps: largest number of steps of L-BFGS (of "multiscale", none).
        num_epochs: number of passes through the rows in minibatches.
        batch_size: rows of a minibatch.
        num_chains: number of chains of "nuts".
        num_warmup: number of steps of each chain before its samples.
        num_samples: number of samples of each chain.
        num_mixture: largest number of samples over which predictions are averaged.
        random_state: seed of all random numbers.
        verbose: whether progress is shown, with the expected time of the fit; None shows it on a terminal, for fits
            expected to take more than ten seconds.

    Attributes:
        model_: the fitted GPyTorch model of the best structure, in standardised units; with samples, one batch member
            per sample.
        models_: models whose predictions are averaged, the first of them ``model_``.
        fit_: result of the optimizer: loss, steps, converged, message.
        inference_: the inference that was used (the choice, for "auto").
        samples_: samples of the parameters with their diagnostics, or None.
        structure_: the structure of ``model_``.
        criteria_: half the information criterion of every structure that was compared, in nats.
        periods_: periods of the cycles of "multiscale", in units of the input.
        gross_errors_: the observations of the fit that "multiscale" left out as errors of measurement, ``(n, P)``.
        correlation_, lengthscales_, delays_, noise_: learned parameters, in the user's units (``summary()`` lists
        them).
        n_features_in_: number d of input columns.

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
        kernel: str | Kernel | None = None,
        *,
        num_components: int | None = None,
        structure: str = "auto",
        num_inducing: int | None = None,
        inference: str = "auto",
        periods: str | Sequence[float] = "auto",
        num_starts: int = 1,
        max_steps: int = 1000,
        num_epochs: int = 40,
        batch_size: int = 1024,
        num_chains: int = 2,
        num_warmup: int = 150,
        num_samples: int = 200,
        num_mixture: int = 50,
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.num_components = num_components
        self.structure = structure
        self.num_inducing = num_inducing
        self.inference = inference
        self.periods = periods
        self.num_starts = num_starts
        self.max_steps = max_steps
        self.num_epochs = num_epochs
        self.batch_size = batch_size
        self.num_chains = num_chains
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.num_mixture = num_mixture
        self.random_state = random_state
        self.verbose = verbose

    @unchanged_on_error
    def fit(self, X: Any, y: Any) -> Self:
        """Fit to observations.

        Args:
            X: inputs, ``(n, d)``.
            y: ``(n,)``, or ``(n, P)`` with NaN for what was not observed.

        Returns:
            The estimator.

        Raises:
            ValueError: if the data or an argument are not usable.
            TypeError: if an option is set that this inference does not use.
        """
        rows, targets = self._prepared(X, y)
        cost = self._cost(rows)
        check_memory(cost)
        shown = cost.seconds > _LONG_FIT and sys.stderr.isatty() if self.verbose is None else self.verbose
        with seeded(self.random_state) as seed:
            self._fit_rows(rows, targets, seed, cost.seconds if shown else None)
        return self

    def _prepared(self, X: Any, y: Any) -> tuple[Tensor, Tensor]:
        """Standardised rows and targets; their scalings are stored."""
        defaults = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
        arguments = self.get_params(deep=False)
        check_arguments(arguments, defaults)
        self._framing = Framing.of(y)
        X, y = self._checked(X, y)
        self._base = self.kernel
        self.criteria_: dict[str, float] = {}
        self._compared: dict[str, RegressionModel] = {}
        self._long = is_long_series(X, y, arguments)
        self.gross_errors_ = gross_errors(y) if self._long else np.zeros(y.shape, dtype=bool)
        if self._long:
            y = np.where(self.gross_errors_, np.nan, y)
            self.periods_ = periods_of(X, y, self.periods)
        self.x_scaling_, self.y_scaling_ = Scaling.of(X), Scaling.of_outputs(y)
        self.n_outputs_ = y.shape[1]
        self._observed = Parts.of(torch.as_tensor(~np.isnan(y)), dim=0)
        return self._standardised(X, y)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Condition on further observations with fixed parameters and standardisation. The first call fits.

        For a series, rows that are not before the latest one are filtered from the last state: an update, and
        predictions at later inputs, take a time that does not grow with the number of observations. With a row before
        the latest one, and for other forms of regression, all observations are processed again.

        Args:
            X: inputs, ``(k, d)``.
            y: ``(k,)`` or ``(k, P)``, as in ``fit``; a process may be unobserved.

        Returns:
            The estimator.

        Raises:
            ValueError: if the data are not usable.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        return self._condition_on(X, y)

    def conditioned(self, X: Any, y: Any) -> Self:
        """Another regressor, conditioned on further observations as by :meth:`partial_fit`; this one is not changed.

        Args:
            X: inputs, ``(k, d)``.
            y: ``(k,)`` or ``(k, P)``, as in ``fit``; a process may be unobserved.

        Returns:
            A fitted estimator.

        Raises:
            ValueError: if the data are not usable.
        """
        check_is_fitted(self)
        return copy.copy(self)._condition_on(X, y)

    @unchanged_on_error
    def _condition_on(self, X: Any, y: Any) -> Self:
        X = self._new_inputs(X)
        y = self._new_outputs(y, len(X))
        if np.isinf(y).any():
            raise ValueError("y: expected finite values, or NaN for what was not observed")
        if np.isnan(y).all():
            raise ValueError("y: expected at least one observation, got none")
        self._observed = self._observed.appended(torch.as_tensor(~np.isnan(y)))
        further = self._standardised(X, y)
        self._compared = {}  # their fits lack these observations
        pairs = [fitted.extended(*further, known) for fitted, known in zip(self.models_, self._conditions, strict=True)]
        self.models_, self._conditions = [model for model, _ in pairs], [known for _, known in pairs]
        self.model_ = self.models_[0]
        return self

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: several outputs are supported."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _standardised(self, X: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Rows and targets of the observations, at unit variance, process by process."""
        inputs, targets, observed = self.x_scaling_.apply(X), self.y_scaling_.apply(y), ~np.isnan(y)
        return torch.as_tensor(stacked_rows(inputs, observed)), torch.as_tensor(targets.T[observed.T])

    def _fit_rows(self, rows: Tensor, targets: Tensor, seed: int, duration: float | None) -> None:
        self.inference_ = self._inference_for(rows)
        shown = duration is not None
        label, total = (f"{self.inference_}, about {duration:.0f} s", self._num_steps(rows)) if shown else ("", None)
        with progress_line(label, shown, total) as line:
            models, self.fit_ = self._fitted(rows, targets, seed, line)
        self.samples_ = None
        warn_of_unexplained(models)
        if self.inference_ == "nuts":
            counts = {name: getattr(self, name) for name in ("num_samples", "num_warmup", "num_chains")}
            self.samples_ = sample_nuts(models[0], seed=seed, progress=shown, **counts)
            models = batch_models(models[0], self.samples_.thinned(self.num_mixture))
        if self.inference_ in _SAMPLERS:
            count = -(-self.num_mixture // len(models))
            samples = [_SAMPLERS[self.inference_](model, num_samples=count, seed=seed) for model in models]
            models = [part for pair in zip(models, samples, strict=True) for part in batch_models(*pair)]
        self._keep(models)

    def _keep(self, models: list[RegressionModel]) -> None:
        self.models_ = [model.requires_grad_(False) for model in models]
        self.model_ = self.models_[0]
        # With many samples it is computed on demand, batch by batch: all together may not fit into memory.
        kept = not any(map(RegressionModel.batch, models)) or sum(map(held_entries, models)) <= MOST_ENTRIES
        self._conditions = [model.condition() if kept else None for model in models]

    def _fitted(
        self, rows: Tensor, targets: Tensor, seed: int, line: Progress | None
    ) -> tuple[list[RegressionModel], Fit]:
        """Fitted models of standardised rows, the best first."""
        if self._long:
            model, fit = fit_long_series(rows, targets, self.n_outputs_, self._scales(), seed=seed, progress=line)
            self.structure_ = "multiscale"
            return [model], fit
        options = {"num_starts": self.num_starts, "max_steps": self.max_steps, "seed": seed, "progress": line}
        if self.inference != "stochastic":
            return self._closed_form(rows, targets, **options)
        order = torch.randperm(len(rows))[:WARM_ROWS]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the initial fit is stopped early on purpose
            closed = self._closed_form(rows[order], targets[order], **(options | {"max_steps": WARM_STEPS}))[0][0]
        model = self._model(rows, targets, seed, self.structure_, is_stochastic=True)
        assert isinstance(model, StochasticCorrelatedGPRegression)
        assert isinstance(closed, SparseCorrelatedGPRegression)
        start_from(model, closed, len(rows))
        epochs: dict[str, Any] = {"batch_size": self.batch_size, "num_epochs": self.num_epochs}
        return [model], fit_minibatches(model, rows, targets, seed=seed, progress=line, **epochs)

    def _closed_form(self, rows: Tensor, targets: Tensor, **options: Any) -> tuple[list[RegressionModel], Fit]:
        """Models at their most probable parameters, the best structure first where there is a choice."""
        if self.structure == "factors" or (self.structure == "auto" and self.n_outputs_ > 1):
            possible = self._forms(rows)
            factors = {name: forms for name, forms in possible.items() if name.startswith(FACTORS)}
            further = {FACTORS: self._factors(rows, targets, factors, **options)} if factors else {}
            absent = [name for name in COMPARED if name not in possible]
            if absent and not factors:
                warnings.warn(
                    f"structure: {absent} are not compared with {list(possible)}: no form of regression can compute "
                    f"them for {len(rows)} observations and these options",
                    UserWarning,
                    stacklevel=2,
                )
            build = partial(self._model, rows, targets, options["seed"])
            self.structure_, models, fit, self.criteria_, self._compared = fit_structures(
                lambda name: build(name) if name in possible else None, further, **options
            )
            return models, fit
        self.structure_ = "independent" if self.structure == "auto" else self.structure
        model = self._model(rows, targets, options["seed"], self.structure_)
        return [model], fit_model(model, **options)

    def _factors(self, rows: Tensor, targets: Tensor, forms: dict[str, tuple[Form, Task]], **options: Any) -> Fitted:
        """The best of the models of few processes."""
        correlation = output_correlation(rows, targets, self.n_outputs_)

        def build(count: int) -> RegressionModel:
            form, task = forms[f"{FACTORS} {count}"]
            start_at_components(task.covariance, correlation)
            return form.model(rows, targets, self.n_outputs_, covar_module=task.covariance)

        return fit_factors(build, [int(name.split()[1]) for name in forms], **options)

    def _model(
        self, rows: Tensor, targets: Tensor, seed: int, structure: str, *, is_stochastic: bool = False
    ) -> RegressionModel:
        """A model before its fit, in the form chosen for the task."""
        task = self._task(rows, structure)._replace(is_stochastic=is_stochastic)
        form = choose_form(task)
        start_at_correlation(task.covariance, rows, targets)
        inducing = {} if self.num_inducing is None else {"num_inducing": self.num_inducing, "seed": seed % 2**32}
        return form.model(rows, targets, self.n_outputs_, covar_module=task.covariance, **inducing)

    def _checked(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        if y is None:
            raise ValueError("This CorrelatedGPRegressor estimator requires y to be passed, but the target y is None.")
        X = checked_inputs(self, X)
        y, self._single = checked_outputs(y, X)
        return X, y
