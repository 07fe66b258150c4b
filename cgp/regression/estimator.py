"""Correlated-GP regression in scikit-learn's convention."""

from __future__ import annotations

import copy
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from cgp.functional.threads import one_thread, threads_for

from .conventions import Accepted, Framing, checked_inputs, checked_outputs, unchanged_on_error, with_nan
from .covariances.structure import Structure
from .inference.censored import LEARNED_ANEW, censored_fits, censored_posterior
from .inference.fitting import progress_line, seeded
from .inference.setting import Fits, Inference, Setting, chosen
from .inference.windows import Windows
from .observations import Observations, Parts
from .parameters import Parameters
from .posterior import Posterior
from .solvers.choice import Cost, check_memory
from .solvers.model import RegressionModel
from .storage import read_regressor, regressor_content, restored_regressor, write_regressor
from .sums import Sums

__all__ = ["CorrelatedGPRegressor"]

Array = NDArray[Any]

_LONG_FIT, _SAID = 10.0, 60.0  # seconds from which progress is shown on a terminal, and a line elsewhere


class CorrelatedGPRegressor(RegressorMixin, BaseEstimator):
    """Gaussian-process regression of one or several correlated outputs, with intervals.

    A column of y is an output; NaN marks unobserved entries, so that each output may have its own inputs. All outputs
    are predicted at every input, each from the observations of all. Inputs and outputs are standardised internally;
    results are in the user's units.

    Args:
        kernel: canonical covariance: "rbf", "matern12", "matern32", "matern52", "rq", or a GPyTorch kernel; None is
            "matern32" for long series and "rbf" otherwise.
        structure: how outputs are related, by a name or an object of :mod:`cgp.regression.covariances`, with options:
            "independent", "coregionalised" (one set of lengthscales), "shared" (one more component, with a common
            process and a separate one for each output), "shifted" (coregionalised, against each other), "affine"
            (lengthscales and shifts of their own), "factors" (weighted sums of few processes with different
            lengthscales, for tables of many outputs; as many as ``Factors(num_factors)`` says, or the number selected
            by the criterion from 1, 2, 4, ...), or "auto": the first four are fitted, and the predictions of the
            correlated ones within 30 nats of the best Bayesian information criterion are averaged; "independent" is
            used alone if it is the best. A series with an output of which only sums are known gets "rough"
            (coregionalised processes, smooth ones and rough ones). Tables of eight or more outputs for which a fit
            would take minutes are fitted
            by "factors". "nuts" and "stochastic" inference continues with the best structure.
            "multiscale" is for series (one input): components on many time scales, each with a few processes shared by
            all outputs and a separate one for each output, and cycles (``MultiScale(periods=[24.0])``), learned from
            windows in time linear in the rows; "auto" selects it for more than 2,000 observations of a series if the
            kernel is None or a Matérn kernel and no other argument rules it out.
        num_inducing: inducing inputs of the sparse solvers; None means exact regression, for up to 10,000 observations.
        inference: by a name or an object of :mod:`cgp.regression.inference` with its options: "map" (the most probable
            parameters), "laplace" (a Gaussian around them), "slice" or "nuts" (samples of them, the former for few
            observations), "stochastic" (the most probable ones by minibatches, needs ``num_inducing``), "windows" (of
            "multiscale"), or "auto": "slice" up to 50 observations, else "map".
        random_state: seed of all random numbers.
        verbose: whether progress is shown, with the expected time of the fit; None shows it on a terminal, for fits
            expected to take more than ten seconds, and elsewhere writes a line to the standard error stream before
            those that are expected to take more than a minute.

    Attributes:
        posterior_: the :class:`.Posterior`, which answers everything that is asked of the fit.
        model_: the fitted GPyTorch model of the best structure, in standardised units, its processes in the order of
            the data (``posterior_.units.numbers``); with samples, one batch member per sample.
        models_: models whose predictions are averaged, the first of them ``model_``.
        fit_: result of the optimizer: loss, steps, converged, message.
        inference_: name of the inference that was used (the choice, for "auto").
        samples_: samples of the parameters with their diagnostics, or None.
        structure_: name of the structure of ``model_``.
        criteria_: half the information criterion of every structure that was compared, in nats.
        periods_: periods of the cycles of "multiscale", in units of the input.
        gross_errors_: the observations that "multiscale" left out as errors of measurement, those of later calls, too,
            ``(n, P)``.
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
        structure: str | Structure = "auto",
        num_inducing: int | None = None,
        inference: str | Inference = "auto",
        random_state: Any = None,
        verbose: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.structure = structure
        self.num_inducing = num_inducing
        self.inference = inference
        self.random_state = random_state
        self.verbose = verbose

    @unchanged_on_error
    def fit(self, X: Any, y: Any, *, totals: Sums | None = None, lower: Any = None) -> Self:
        """Fit to observations.

        Args:
            X: inputs, ``(n, d)``.
            y: ``(n,)``, or ``(n, P)`` with NaN for what was not observed.
            totals: weighted sums of the outputs that are known besides, of a series.
            lower: an end of each output that its readings do not fall below, ``(P,)``, NaN for one that has none. What
                is read at the end is at most there (:func:`.censored_fit`), where parameters are no samples, there are
                no totals and at most fifty outputs; it is a value otherwise.

        Returns:
            The estimator.

        Raises:
            ValueError: if the data or an argument are not usable.
        """
        setting, inference = self._planned(X, y, totals)
        cost = inference.cost(setting)
        check_memory(cost)
        has_ends = lower is not None and totals is None and not np.isnan(lower).all()
        label, shown = self._told(setting, inference, cost.seconds * (LEARNED_ANEW if has_ends else 1.0))
        steps = inference.expected_steps(setting) if shown else None
        with (
            threads_for(len(setting.observations.targets)),
            seeded(self.random_state) as seed,
            progress_line(label, shown, steps) as line,
        ):
            fits = inference.fit(setting, seed, line)
            units = setting.observations.units
            assert units is not None
            self._lower = np.full(len(units.numbers), np.nan) if lower is None else np.asarray(lower, dtype=np.float64)
            if totals is None:
                windows = inference.name == Windows.name
                fits = censored_fits(fits, units, self._lower, windows=windows, seed=seed)
        observed = Parts.of(torch.as_tensor(setting.observations.observed[:, units.numbers]), dim=0)
        self.posterior_ = Posterior(fits.models, units, observed)
        self.inference_, self.fit_, self.samples_ = inference.name, fits.fit, fits.samples
        self.criteria_, self._structures, self._compared = dict(fits.criteria), fits.structures, fits.compared
        return self

    def estimate(self, X: Any, y: Any, *, totals: Sums | None = None, passes: float = 0.0) -> Cost:
        """Expected time and memory of a fit to these observations, without fitting.

        A part of what it evaluates is measured.

        Args:
            X: inputs, ``(n, d)``.
            y: as in :meth:`fit`.
            totals: as in :meth:`fit`.
            passes: how often predictions at all inputs are asked for besides.

        Returns:
            Seconds of one core, within a factor of about one and a half, and bytes of memory.

        Raises:
            ValueError: if the data or an argument are not usable.
        """
        start = time.process_time()
        setting, inference = clone(self)._planned(X, y, totals)
        planned, cost = time.process_time() - start, inference.cost(setting)
        seconds = cost.seconds + passes * inference.pass_seconds(setting)
        with threads_for(len(setting.observations.targets)):
            pace = inference.pace(setting)
        return Cost(planned + pace * seconds, cost.bytes)

    def _told(self, setting: Setting, inference: Inference, seconds: float) -> tuple[str, bool]:
        """What a fit with that cost is called, and whether its progress is shown; a line where there is no terminal."""
        if not (seconds > _LONG_FIT if self.verbose is None else self.verbose):
            return inference.name, False
        count, is_terminal = len(setting.observations.targets), sys.stderr.isatty()
        with threads_for(count):
            seconds *= inference.pace(setting)
        label = f"{inference.name}, about {seconds:.0f} s"
        if self.verbose is None and not is_terminal and seconds > _SAID:
            shows = "verbose=True shows its progress"
            why = f"{len(setting.solvers)} structures, each by all values at once" if setting.is_compared else ""
            sys.stderr.write(f"cgp: a fit to {count} values, {label} on one core{f' ({why})' * bool(why)}; {shows}\n")
        return label, is_terminal or bool(self.verbose)

    @one_thread()
    def _planned(self, X: Any, y: Any, totals: Sums | None) -> tuple[Setting, Inference]:
        """What a fit to these observations will do; which of them are accepted, and in which format, is kept."""
        if y is None:
            raise ValueError("This CorrelatedGPRegressor estimator requires y to be passed, but the target y is None.")
        X, self._framing = checked_inputs(self, X), Framing.of(y)
        y, self._single = checked_outputs(y, X, () if totals is None else totals.outputs)
        given = Observations(X, y, sums=totals)
        structure, inference = chosen(given, self.structure, self.inference, self.kernel, self.num_inducing)
        self._accepted = Accepted.everything(y.shape[1]) if structure.inference is None else Accepted.of(y)
        self.gross_errors_ = self._accepted.errors(y)
        if self.gross_errors_.any():
            given = replace(given, values=np.where(self.gross_errors_, np.nan, y))
        structure = structure.resolved(given)
        setting = Setting(given.standardised(), structure, self.kernel, self.num_inducing)
        inference = inference.resolved(setting)
        obstacle = inference.obstacle(setting)
        if obstacle is not None:
            raise ValueError(obstacle)
        return setting, inference

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Condition on further observations with fixed parameters and standardisation. The first call fits.

        For a series, rows that are not before the latest one are filtered from the last state: an update, and
        predictions at later inputs, take a time that does not grow with the number of observations. With a row before
        the latest one, and for other solvers, all observations are processed again.

        Args:
            X: inputs, ``(k, d)``.
            y: ``(k,)`` or ``(k, P)``, as in ``fit``; an output may be unobserved.

        Returns:
            The estimator.

        Raises:
            ValueError: if the data are not usable.
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, y)
        return self._condition_on(X, y)

    def conditioned(self, X: Any, y: Any) -> Self:
        """Another regressor, conditioned on further observations as by :meth:`partial_fit`; this one is not changed.

        Args:
            X: inputs, ``(k, d)``.
            y: ``(k,)`` or ``(k, P)``, as in ``fit``; an output may be unobserved.

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
        wrong = self._accepted.errors(y)
        self.gross_errors_ = np.concatenate([self.gross_errors_, wrong])
        self.posterior_ = censored_posterior(self.posterior_.conditioned(X, np.where(wrong, np.nan, y)), self._lower)
        self._compared = {}  # their fits lack these observations
        return self

    def with_structure(self, structure: str) -> Self:
        """The same fit with one of the structures that "auto" compared, instead of their average.

        Args:
            structure: its name, of those that ``criteria_`` has.

        Returns:
            Another fitted regressor, at the structure's most probable parameters.

        Raises:
            ValueError: if it was not compared, or there were further observations since.
        """
        check_is_fitted(self)
        if structure not in self._compared:
            raise ValueError(
                f"structure: expected one of {list(self._compared)}, which were compared, got {structure!r}"
            )
        other, (model, kind) = copy.copy(self), self._compared[structure]
        units = self.posterior_.units
        if model.further_noise is None:  # the fit has not learned it anew from what is at an end
            fits = Fits([model], [kind], self.fit_, {}, {})
            (model,) = censored_fits(fits, units, self._lower, windows=False).models
        other.posterior_, other._structures = Posterior([model], units, self.posterior_.observed), [kind]
        return other

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, include_noise: bool = True
    ) -> Array | tuple[Array, Array]:
        """Mean of every output, with its uncertainty if requested.

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
            mean, blocks = self.posterior_.covariance(X, include_noise=include_noise)
            return self._framed(mean, given), blocks[:, 0, :, 0] if self._single else blocks
        mean, sd = self.posterior_.marginals(X, include_noise=include_noise)
        return (self._framed(mean, given), self._framed(sd, given)) if return_std else self._framed(mean, given)

    def leave_one_out(self) -> tuple[Array, Array]:
        """Every observation predicted from all others, in closed form, with fixed parameters.

        Returns:
            Mean and standard deviation of an observation, each in the shape of y; NaN where it was not observed.
        """
        check_is_fitted(self)
        mean, sd = self.posterior_.leave_one_out()
        return self._shaped(mean), self._shaped(sd)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, include_noise: bool = False) -> Array:
        """Joint draws of all outputs.

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
        draws = self.posterior_.draw(self._new_inputs(X), n_samples, random_state, include_noise=include_noise)
        return self._shaped(np.moveaxis(draws, 0, -1))

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log-density of each new observation separately.

        Args:
            X: inputs, ``(t, d)``.
            y: ``(t,)`` or ``(t, P)``, as in ``fit``.

        Returns:
            In nats, in the units and shape of y; NaN where y is NaN.

        Raises:
            ValueError: if X or y do not fit.
        """
        X = self._new_inputs(X)
        return self._shaped(self.posterior_.log_density(X, self._new_outputs(y, len(X))))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the mean, averaged over outputs; NaN in y is ignored.

        Args:
            X: inputs, ``(t, d)``.
            y: ``(t,)`` or ``(t, P)``, as in ``fit``.
            sample_weight: ``(t,)``.

        Returns:
            At most 1.

        Raises:
            ValueError: if X or y do not fit.
        """
        mean = np.asarray(self.predict(X)).reshape(-1, self.posterior_.num_outputs)
        truth = self._new_outputs(y, len(mean))
        weights = np.ones(len(mean)) if sample_weight is None else np.asarray(sample_weight)
        scores = [
            r2_score(truth[column, p], mean[column, p], sample_weight=weights[column])
            for p, column in enumerate(~np.isnan(truth).T)
            if column.any()
        ]
        return float(np.mean(scores))

    def summary(self) -> str:
        """A readable summary of the learned parameters.

        Returns:
            Several lines.
        """
        parameters = self._parameters
        lines = [f"structure: {self.structure_}", self._fit_in_words()]
        lines += parameters.lines(self._framing.names(self.posterior_.num_outputs))
        return "\n".join([*lines, *self._criteria_in_words()])

    def _fit_in_words(self) -> str:
        return f"fit: {self.fit_.message}, {self.fit_.loss:.4g} nats per observation"

    def _criteria_in_words(self) -> list[str]:
        """The last line of a summary, where structures were compared."""
        criteria = ", ".join(f"{name} {value:.1f}" for name, value in self.criteria_.items())
        meant = "nats, minus the log-likelihood with a penalty for each parameter; the lowest is best"
        return [f"structures compared: {criteria} ({meant})"] if criteria else []

    def save(self, folder: str | Path) -> None:
        """Write the regressor to a folder, with its observations, as safetensors and JSON.

        Args:
            folder: is made if it is not there; a regressor that was saved in it before is replaced, never in part.

        Raises:
            ValueError: if the kernel is an object.
            OSError: if it cannot be written.
        """
        check_is_fitted(self)
        write_regressor(folder, self, *regressor_content(self))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what :meth:`save` wrote.

        Args:
            folder: that it was written to.

        Returns:
            A regressor that predicts as the one that was saved; results are arrays.

        Raises:
            ValueError: if the file is damaged, or of another version.
            OSError: if it cannot be read.
        """
        settings, *content = read_regressor(folder)
        return restored_regressor(cls(**settings), *content)

    @property
    def models_(self) -> list[RegressionModel]:
        """The models whose predictions are averaged."""
        return self.posterior_.models

    @property
    def model_(self) -> RegressionModel:
        """The model of the best structure."""
        return self.posterior_.models[0]

    @property
    def structure_(self) -> str:
        """The name of the structure of ``model_``."""
        return self._structures[0].name

    @property
    def periods_(self) -> list[float]:
        """The periods of the cycles of "multiscale", in units of the input."""
        return list(getattr(self._structures[0], "periods", ()))

    @property
    def noise_(self) -> Array:
        """The variance of each output's noise, ``(P,)``, in squared units of the output."""
        return self._parameters.noise

    @property
    def lengthscales_(self) -> Array:
        """The lengthscales of each component, output and input column, ``(Q, P, d)``, in units of the inputs.

        A kernel object has additional lengthscales: its inputs are divided by these. For the cycles of "multiscale"
        they are the lengthscales of their drift.
        """
        return self._parameters.lengthscales

    @property
    def delays_(self) -> Array:
        """Delay of each output with respect to the first, ``(Q, P, d)``, in units of the inputs; 0 without shifts."""
        return self._parameters.delays

    @property
    def correlation_(self) -> Array:
        """The correlations of the outputs' functions, ``(P, P)``, after correction for the delays."""
        return self._parameters.correlation

    @property
    def _parameters(self) -> Parameters:
        check_is_fitted(self)
        return Parameters(self.models_, self.posterior_.units, bool(self.periods_))

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: several outputs are supported."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _new_inputs(self, X: Any) -> Array:
        check_is_fitted(self)
        checked: Array = checked_inputs(self, X, reset=False)
        return checked

    def _new_outputs(self, y: Any, count: int) -> Array:
        values, outputs = np.asarray(with_nan(y), dtype=np.float64), self.posterior_.num_outputs
        allowed = {(count, outputs)} | ({(count,)} if outputs == 1 else set())
        if values.shape not in allowed:
            raise ValueError(f"y: expected shape {(count, outputs)} as in fit, got {values.shape}")
        return values.reshape(count, outputs)

    def _framed(self, values: Array, X: Any) -> Any:
        return self._framing.applied(self._shaped(values), X)

    def _shaped(self, values: Array) -> Array:
        """Values without the axis of outputs if y had none."""
        return values[:, 0] if self._single else values
