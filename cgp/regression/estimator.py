"""Correlated-GP regression in scikit-learn's convention."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .checks import checked_outputs
from .inference import INFERENCES, OPTIMIZERS, Fitted, build_model, condition_model, fit_model
from .persistence import load_estimator, save_estimator
from .prediction import PredictionMixin
from .scaling import Scaling, process_signs, stacked_rows

__all__ = ["CorrelatedGPRegressor"]

Array = NDArray[Any]

_EXACT_LIMIT = 10_000


class CorrelatedGPRegressor(PredictionMixin, RegressorMixin, BaseEstimator):
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
        optimizer: of "map": "lbfgs", "adam", or "auto" (Adam above 100,000 observations).
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
