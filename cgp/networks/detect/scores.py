"""Scores of inputs that are large for those of another kind, each an object that is known by its name."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from torch import Tensor, nn

from cgp.networks.methods.amplitudes import AmplitudeSearch
from cgp.networks.methods.known import Posterior
from cgp.networks.model.inputs import Batch
from cgp.networks.model.labels import check_finite
from cgp.networks.model.named import Named, State
from cgp.networks.model.tempering import probabilities
from cgp.networks.predict.method import Training
from cgp.networks.predict.readout import GPReadout
from cgp.networks.tasks import Task
from cgp.networks.tasks.metrics import uncertainties

__all__ = ["DrawnScore", "InputScore", "Mahalanobis", "Seen", "Widest", "numbers"]

Array = NDArray[Any]


class Widest(NamedTuple):
    """The posterior whose draws are scored.

    Attributes:
        layers: layers to convert if the model has no stochastic layer: "last", "first", "all" or indices.
        factor: factor of the amplitudes.
        temperature: temperature of the draws.
        num_samples: number S of draws.
        sampling: "marginal" or "joint".
        seed: seed of the draws.
    """

    layers: Any = "last"
    factor: float = 1.0
    temperature: float = 1.0
    num_samples: int = 2
    sampling: str = "marginal"
    seed: int = 0


@dataclass(eq=False)
class Seen:
    """A batch of inputs as scores see it; what they ask for is computed then, and once.

    Args:
        model: the network.
        task: takes logits and representation.
        inputs: arguments of the network.
        number: of the batch, each of which has its own noise.
        first: number of inputs before this batch, for error messages.
        name: of the inputs, likewise.
        drawing: the network with the posterior that draws; None is the network, converted where it needs that.
    """

    model: nn.Module
    task: Task
    inputs: Any
    number: int = 0
    first: int = 0
    name: str = "inputs"
    drawing: nn.Module | None = None

    def __post_init__(self) -> None:
        self._drawn: dict[Widest, Tensor] = {}

    @cached_property
    def logits(self) -> Tensor:
        """Logits ``(N, C)`` without draws."""
        logits = self._search(self.model, Widest())[0]
        if logits.dim() != 2:
            raise ValueError(f"model: expected logits (N, C), one row for every input, got {tuple(logits.shape)}")
        check_finite(logits, first=self.first, name=f"{self.name}: model")
        return logits

    @cached_property
    def features(self) -> Array:
        """The representation ``(N, d)``, float64."""
        return numbers(self.task.features(self.model, self.inputs).double())

    def draws(self, posterior: Widest) -> Tensor:
        """Probabilities ``(S, N, C)`` of the draws of a posterior."""
        if posterior not in self._drawn:
            drawing = self.drawing or Posterior(layers=posterior.layers).drawing(self.model)
            logits = self._search(drawing, posterior, posterior.factor)
            self._drawn[posterior] = probabilities(logits, posterior.temperature)
        return self._drawn[posterior]

    def with_logits(self, logits: Tensor) -> Seen:
        """These inputs, with logits that were computed already."""
        vars(self)["logits"] = logits
        return self

    def _search(self, model: nn.Module, posterior: Widest, factor: float = 0.0) -> Tensor:
        search = AmplitudeSearch(model, posterior.num_samples, posterior.sampling, posterior.seed, self.task)
        return next(search.draws([Batch(self.inputs, None)], (factor,), first=self.number))[2]


class InputScore(Named, argument="name"):
    """A score that is large for inputs of another kind; a subclass with a name is known by it.

    A score of your own says what it computes (:meth:`of`), after :meth:`fit` if it has to know the training data.
    ``cgp.Detector(score)`` then has a threshold for it, :func:`cgp.assess` compares it, and :func:`cgp.save_pretrained`
    keeps what :meth:`state` returns.

    Attributes:
        needs_train: whether :meth:`fit` needs labelled training data.
        words: what it is, in a sentence.
        formula: what computes ``score`` from ``logits``, ``features`` and the constants of its state, in Python with
            the names of NumPy and SciPy, for those who have no model but what it returned.
    """

    needs_train: ClassVar[bool] = False
    words: ClassVar[str] = ""
    formula: ClassVar[str] = ""

    def fit(self, training: Training) -> Self:
        """The score fitted to what the network was trained on, if it needs that."""
        return self

    @abstractmethod
    def of(self, seen: Seen) -> Array | Tensor:
        """The score of each input, ``(N,)``."""


class Doubt(InputScore):
    """One minus the largest probability."""

    name, formula = "1 - confidence", "score = 1 - softmax(logits, 1).max(1)"

    def of(self, seen: Seen) -> Tensor:
        """Compute it from the logits."""
        return 1 - seen.logits.softmax(-1).amax(-1)


class Entropy(InputScore):
    """The entropy of the probabilities, in nats."""

    name, formula = "entropy", "score = entr(softmax(logits, 1)).sum(1)"

    def of(self, seen: Seen) -> Tensor:
        """Compute it from the logits."""
        return uncertainties(seen.logits[None].softmax(-1))[0]


class Energy(InputScore):
    r"""The energy, :math:`-\log\sum_c e^{f_c}`.

    Note:
        Liu et al., Energy-based Out-of-distribution Detection (NeurIPS 2020).
    """

    name, formula = "energy", "score = -logsumexp(logits, 1)"

    def of(self, seen: Seen) -> Tensor:
        """Compute it from the logits."""
        return -seen.logits.logsumexp(-1)


@dataclass
class DrawnScore(InputScore):
    """A score of a posterior's draws, which :func:`cgp.assess` fits.

    Args:
        posterior: the posterior; None until it is fitted.
    """

    posterior: Widest | None = None

    def of(self, seen: Seen) -> Tensor:
        """Compute it from the draws."""
        if self.posterior is None:
            raise ValueError(f"score: expected one that needs no posterior, got {self.name!r} (cgp.assess fits it)")
        return self.of_draws(seen.draws(self.posterior))

    @abstractmethod
    def of_draws(self, draws: Tensor) -> Tensor:
        """The score of each input from probabilities ``(S, N, C)``."""

    def state(self) -> State:
        """The posterior."""
        return {"posterior": list(self.posterior or ())}, {}

    @classmethod
    def of_state(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Self:  # noqa: ARG003
        """The score of what :meth:`state` returned."""
        return cls(Widest(*config["posterior"]))


class DrawnEntropy(DrawnScore):
    """The entropy of the averaged draws of the widest posterior, in nats."""

    name = "widest posterior's entropy"

    def of_draws(self, draws: Tensor) -> Tensor:
        """Compute it from the average of the draws."""
        return uncertainties(draws)[0]


class Disagreement(DrawnScore):
    """The epistemic part of that entropy, in nats."""

    name = "epistemic"

    def of_draws(self, draws: Tensor) -> Tensor:
        """The mutual information of class and draw."""
        return uncertainties(draws)[2]


@dataclass
class Mahalanobis(InputScore):
    r"""Distance to the nearest class mean, :math:`\min_c (z - \mu_c)^\top\Sigma^{-1}(z - \mu_c)`.

    The covariance is that of all classes around their means, shrunk as Ledoit and Wolf do.

    Args:
        means: of the classes, ``(C, d)``; None until :meth:`fit`.
        factor: Cholesky factor of the covariance, ``(d, d)``.

    Note:
        Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks
        (NeurIPS 2018), equation (2).

    Example:
        >>> known = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
        >>> near, far = Mahalanobis.of_classes(known, np.arange(4) // 2).distances(np.array([[0.0, 0.5], [4.0, 0.5]]))
        >>> bool(near < far)
        True
    """

    means: Array | None = None
    factor: Array | None = None

    name, needs_train, words = "Mahalanobis", True, "Mahalanobis distance"
    formula = "score = min([(solve(factor, (features - mean).T) ** 2).sum(0) for mean in array(means)], 0)"

    @classmethod
    def of_classes(cls, features: Array, labels: Array) -> Self:
        """The distance to the classes ``(N,)`` of features ``(N, d)``."""
        from sklearn.covariance import LedoitWolf

        classes, index = np.unique(labels, return_inverse=True)
        means = np.stack([features[index == c].mean(0) for c in range(len(classes))])
        covariance = LedoitWolf(assume_centered=True).fit(features - means[index]).covariance_
        return cls(means, np.linalg.cholesky(covariance + 1e-9 * np.trace(covariance) * np.eye(len(covariance))))

    def fit(self, training: Training) -> Self:
        """The distance to the classes of the training data."""
        return self.of_classes(training.features.numpy(), training.labels.numpy())

    def distances(self, features: Array) -> Array:
        """Squared distances ``(N,)`` of features ``(N, d)``, in units of the classes' spread."""
        if self.means is None or self.factor is None:
            raise ValueError("Mahalanobis: expected fit(training) before it is used, got none")
        white, means = (solve_triangular(self.factor, z.T, lower=True).T for z in (features, self.means))
        squares = np.square(white).sum(1)[:, None] - 2 * white @ means.T + np.square(means).sum(1)
        return squares.min(1)

    def of(self, seen: Seen) -> Array:
        """Compute it from the representation."""
        return self.distances(seen.features)


@dataclass
class ProcessVariance(InputScore):
    """The variance of the Gaussian process that reads the representation out.

    Args:
        process: :meth:`fit` sets it.
    """

    process: GPReadout | None = None

    name, needs_train = "GP variance", True
    formula = (
        "z, Z = (features - centre) / scale / lengthscale, array(points) / lengthscale; "
        "A = solve(cholesky(exp(-cdist(Z, Z) ** 2 / 2)), exp(-cdist(Z, z) ** 2 / 2)); "
        "score = variance * (1 - (A * (A - solve(eye(len(A)) + gram, A))).sum(0))"
    )

    def fit(self, training: Training) -> Self:
        """Take the process of the training data."""
        return type(self)(training.process)

    def of(self, seen: Seen) -> Tensor:
        """Compute it from the representation."""
        assert self.process is not None
        return self.process(seen.features).variance

    def state(self) -> State:
        """The process."""
        assert self.process is not None
        return self.process.state()

    @classmethod
    def of_state(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """The score of what :meth:`state` returned."""
        return cls(GPReadout.of_state(config, tensors))


def numbers(values: Array | Tensor) -> Array:
    """Scores as an array."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
