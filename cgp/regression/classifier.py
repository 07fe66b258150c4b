"""Classification by correlated Gaussian processes in scikit-learn's convention."""

from __future__ import annotations

import warnings
from typing import Any, Self, TypeVar

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import BernoulliLikelihood, SoftmaxLikelihood
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.quasirandom import SobolEngine

from cgp.spelling import meant

from .conventions import checked_inputs, unchanged_on_error
from .covariances.correlated import STRUCTURES, Correlated
from .covariances.rows import dense_covariance
from .covariances.structure import check_count
from .inference.fitting import fit_model, progress_line, seeded
from .inference.minibatches import fit_minibatches, start_from
from .likelihood import every_process
from .observations import Scaling
from .solvers.sparse import SparseCorrelatedGPRegression
from .solvers.stochastic import StochasticCorrelatedGPRegression

__all__ = ["CorrelatedGPClassifier", "class_posterior", "softmax_bound"]

Model = TypeVar("Model", bound=SparseCorrelatedGPRegression)

_CHUNK = 4096  # rows at a time
_WARM_ROWS = 512
_WARM_STEPS = 20
_DRAWS = 16
_DRAWS_OF_PREDICTIONS = 256
_TOLERANCE = 1e-2
_COUNTS = ("num_inducing", "num_epochs", "batch_size")


class CorrelatedGPClassifier(ClassifierMixin, BaseEstimator):
    r"""Gaussian-process classification through inducing inputs, by minibatches.

    .. math:: p(y = 1 \mid x) = \Phi(z(x)), \qquad p(y = c \mid x) \propto \exp z_c(x)

    Two classes have one process and GPyTorch's Bernoulli likelihood, more have a process per class and its softmax
    likelihood; ``structure`` sets how the processes are correlated. Inputs are standardised internally.

    Args:
        kernel: canonical covariance: "rbf", "matern12", "matern32", "matern52", "rq", or a GPyTorch kernel.
        structure: of the classes' processes: "independent", "coregionalised", "shared", "shifted" or "affine", or an
            object of :mod:`cgp.regression.covariances` with its options.
        num_inducing: inducing inputs, at most as many as there are distinct rows.
        num_epochs: passes through the data.
        batch_size: inputs of a minibatch.
        random_state: seed of all random numbers.
        verbose: whether progress is shown.

    Attributes:
        classes_: the labels.
        model_: the fitted GPyTorch model, of standardised inputs.
        fit_: result of the optimizer: loss, steps, converged, message.
        n_features_in_: number d of input columns.

    Source:
        Hensman, Matthews & Ghahramani (2015), Scalable variational Gaussian process classification.

    Example:
        >>> x = np.linspace(-1, 1, 40)[:, None]
        >>> model = CorrelatedGPClassifier(num_inducing=5, random_state=0).fit(x, x[:, 0] > 0)
        >>> model.predict([[-0.5], [0.5]]).tolist()
        [False, True]
    """

    def __init__(
        self,
        kernel: str | Kernel = "rbf",
        *,
        structure: str | Correlated = "independent",
        num_inducing: int = 100,
        num_epochs: int = 100,
        batch_size: int = 256,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.structure = structure
        self.num_inducing = num_inducing
        self.num_epochs = num_epochs
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose

    @unchanged_on_error
    def fit(self, X: Any, y: Any) -> Self:
        """Fit to labelled inputs.

        Args:
            X: inputs, ``(n, d)``.
            y: labels, ``(n,)``.

        Returns:
            The estimator.

        Raises:
            ValueError: if the data or an argument is invalid.
        """
        for name in _COUNTS:
            check_count(name, getattr(self, name), 1)
        known = self.structure if isinstance(self.structure, str) else None
        if known not in STRUCTURES and not isinstance(self.structure, Correlated):
            near = meant([str(self.structure)], STRUCTURES)
            raise ValueError(f"structure: expected one of {STRUCTURES} or its object, got {self.structure!r}{near}")
        X, y = checked_inputs(self, X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: expected at least two classes, got one class, {self.classes_.tolist()}")
        self.x_scaling_ = Scaling.of(X)
        with seeded(self.random_state) as seed:
            self._fit_labels(torch.as_tensor(self.x_scaling_.apply(X)), torch.as_tensor(labels), seed)
        return self

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probability of every class.

        Args:
            X: inputs, ``(t, d)``.

        Returns:
            ``(t, C)``, in the order of ``classes_``.
        """
        latent = self._latent(X)
        if len(self.classes_) == 2:
            second = self.model_.likelihood(latent).mean.numpy()[:, 0]
            return np.column_stack([1.0 - second, second])
        uniform = SobolEngine(len(self.classes_), scramble=True, seed=0).draw(
            _DRAWS_OF_PREDICTIONS, dtype=torch.float64
        )
        normal = torch.special.ndtri(uniform).unsqueeze(1).expand(-1, *latent.mean.shape)  # the same for every input
        draws = latent.rsample(normal.shape[:1], base_samples=normal)
        return draws.softmax(-1).mean(0).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of inputs ``(t, d)``, ``(t,)``."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(-1)]

    def latent_variance(self, X: Any) -> NDArray[Any]:
        """Variance of each class's process, far from the training set that of the prior.

        Args:
            X: inputs, ``(t, d)``.

        Returns:
            ``(t, C)``, or ``(t, 1)`` for two classes.
        """
        return self._latent(X).variance.numpy()

    def _latent(self, X: Any) -> MultivariateNormal:
        check_is_fitted(self)
        X = checked_inputs(self, X, reset=False)
        inputs, outputs = torch.as_tensor(self.x_scaling_.apply(X)), self.model_.num_processes
        with torch.no_grad():
            parts = [
                class_posterior(self.model_, every_process(some, outputs))
                for some in inputs.split(max(_CHUNK // outputs, 1))
            ]
        mean, covariance = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "covariance_matrix")
        )
        return MultivariateNormal(mean, covariance)

    def _fit_labels(self, inputs: Tensor, labels: Tensor, seed: int) -> None:
        """Fit, initialised by a closed-form regression of the class indicators on some of the inputs."""
        outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        some = torch.randperm(len(inputs))[: max(_WARM_ROWS // outputs, self.num_inducing)]
        signs = 2.0 * nn.functional.one_hot(labels[some], len(self.classes_))[:, -outputs:].to(inputs) - 1.0
        warm = every_process(inputs[some], outputs).flatten(0, 1), signs.flatten()
        closed = self._model(SparseCorrelatedGPRegression, *warm, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the initial fit is stopped early on purpose
            fit_model(closed, max_steps=_WARM_STEPS, seed=seed)
        likelihood = BernoulliLikelihood() if outputs == 1 else SoftmaxLikelihood(None, outputs, mixing_weights=False)
        model = self._model(StochasticCorrelatedGPRegression, *warm, seed, likelihood=likelihood)
        start_from(model, closed, outputs * len(inputs))
        with progress_line("classes", self.verbose) as line:
            self.fit_ = fit_minibatches(
                model,
                every_process(inputs, 1)[:, 0] if outputs == 1 else inputs,
                labels.to(inputs) if outputs == 1 else labels,
                objective=None
                if outputs == 1
                else lambda x, y: softmax_bound(model, every_process(x, outputs), y, len(inputs)),
                batch_size=self.batch_size,
                num_epochs=self.num_epochs,
                tolerance=_TOLERANCE,
                seed=seed,
                progress=line,
            )
        self.model_ = model.requires_grad_(False)

    def _model(self, kind: type[Model], rows: Tensor, targets: Tensor, seed: int, **options: Any) -> Model:
        """A model before its fit."""
        processes = len(self.classes_) if len(self.classes_) > 2 else 1
        covariance = Correlated.of(self.structure).between(processes, rows.shape[-1] - 1, self.kernel)
        number = min(self.num_inducing, len(rows.unique(dim=0)))
        given = {"num_inducing": number, "seed": seed % 2**32, "covar_module": covariance.double()}
        return kind(rows, targets, processes, **given, **options)


def class_posterior(model: StochasticCorrelatedGPRegression, rows: Tensor) -> MultivariateNormal:
    """The joint posterior of the classes' processes at each input ``(n, C, d + 1)``: batch ``(n,)``, event ``(C,)``."""
    features = model.features(model.covar_module, rows.flatten(0, 1)).unflatten(-1, rows.shape[:2]).movedim(0, -1)
    strategy = model.variational_strategy
    carried = features @ strategy.root  # (n, C, m)
    prior = dense_covariance(model.covar_module, rows)
    covariance = prior - features @ features.mT + carried @ carried.mT
    return MultivariateNormal(model.mean_module(rows) + features @ strategy.variational_mean, covariance)


def softmax_bound(
    model: StochasticCorrelatedGPRegression, rows: Tensor, labels: Tensor, num_data: int, num_draws: int = _DRAWS
) -> Tensor:
    """The variational bound of labels in nats per row, priors included, by joint draws of the classes' processes."""
    # GPyTorch's own draws are of marginals, which is right for independent processes only.
    draws = class_posterior(model, rows).rsample(torch.Size([num_draws]))
    # GPyTorch would read C rows of C classes as its old layout: one more axis avoids this.
    fit = model.likelihood(draws.unsqueeze(-2)).log_prob(labels.unsqueeze(-1)).mean()
    return model.bound(fit, num_data)
