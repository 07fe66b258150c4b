"""Classification and regression of fixed features by Gaussian processes, in closed form."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp.functional.clusters import cluster_centres
from cgp.functional.kernels import squared_exponential
from cgp.functional.linalg import quadratic_forms, whiten
from cgp.functional.sparse_correlated import InducingPosterior, SparsePosterior

__all__ = ["GPReadout", "ReadoutPrediction"]

_LENGTHSCALES = tuple(2.0**k for k in range(-3, 2))  # in units of the median distance of inducing inputs
_NOISES = tuple(10.0 ** (k / 2) for k in range(-6, 3))  # in units of the prior variance
_SLOPES = tuple(2.0 ** (k / 4) for k in range(33))  # from 1 to 256

_TENSORS = ("classes", "frequencies", "offset", "spread", "centre", "scale", "points")
_NUMBERS = ("lengthscale", "noise", "variance", "slope")
TASKS = ("classification", "regression")


class ReadoutPrediction(NamedTuple):
    """The prediction of a read-out: mean, variance and noise.

    Attributes:
        mean: probabilities of each class, or the mean of each output, ``(N, C)``.
        variance: of the function, which all classes share, ``(N,)``, or of each output ``(N, C)``; far from the
            training set that of the prior.
        noise: variance of the values around the function, ``(C,)``; 0 of classes.
    """

    mean: Tensor
    variance: Tensor
    noise: Tensor

    @property
    def probabilities(self) -> Tensor:
        """Probabilities of each class, ``(N, C)``: what ``mean`` is for classes."""
        return self.mean


class GPReadout:
    r"""A Gaussian process per class on features that are given, such as those that a network's last layer reads.

    One process regresses each class on the others, through inducing inputs that all classes share:

    .. math:: [y = c] - \pi_c = f_c(z) + \varepsilon, \qquad f_c \sim \mathrm{GP}(0, a^2k), \qquad
        p(y = c \mid z) \propto \pi_c\exp\big(s\mu_c / \sqrt{1 + \pi s^2 v / 8}\big)

    with the classes' frequencies :math:`\pi_c`, k the squared exponential of standardised features, and the posterior's
    mean :math:`\mu_c` and variance v. Lengthscale, noise and amplitude maximise the variational bound of the evidence
    (the amplitude in closed form, the others on a grid), the slope s the likelihood of the labels, each under the
    posterior of all others. Far from the training set v is the prior's and p the frequencies.

    For a regression the outputs, in units of their standard deviations, are processes of that kind with one noise
    variance; with m = N it is the exact posterior.

    Args:
        features: of the training set, ``(N, d)``, a tensor or an array.
        labels: ``(N,)`` int; for a regression values ``(N,)`` or ``(N, C)``.
        task: "classification" or "regression".
        num_inducing: m at most, centres of clusters of the features; costs O(N m² + m³).
        seed: seed of the clustering.

    Raises:
        ValueError: if the shapes do not fit, there is only one class, labels are no class indices, or features or
            values are not finite.

    Note:
        One against the rest: Rasmussen & Williams (2006), section 6.5; the bound: Titsias (2009), equation (9).

    Example:
        >>> features = torch.tensor([[0.0], [0.2], [9.0], [9.2]])
        >>> found = GPReadout(features, torch.tensor([0, 0, 1, 1]))(torch.tensor([[0.1], [900.0]]))
        >>> found.probabilities.argmax(-1)[0], found.probabilities[1]
        (tensor(0), tensor([0.5000, 0.5000], dtype=torch.float64))
    """

    def __init__(
        self, features: Any, labels: Any, *, task: str = "classification", num_inducing: int = 512, seed: int = 0
    ) -> None:
        if task not in TASKS:
            raise ValueError(f"task: expected one of {TASKS}, got {task!r}")
        z, labels = _finite("features", torch.as_tensor(features).detach().double()), torch.as_tensor(labels).cpu()
        self.task = task
        if task == "regression":
            targets = self._standardised_values(z, labels.detach().double())
            self._fit(z, targets, num_inducing, seed)
            self.slope = 0.0
        else:
            targets, index = self._centred_classes(z, labels)
            self.slope = self._best_slope(self._fit(z, targets, num_inducing, seed), targets, index)

    def _standardised_values(self, z: Tensor, values: Tensor) -> Tensor:
        values = _finite("labels", values[:, None] if values.dim() == 1 else values)
        if z.dim() != 2 or values.dim() != 2 or len(values) != len(z) or len(z) < 2:
            raise ValueError(
                f"features, labels: expected (N, d) and (N,) or (N, C) of two rows at least, "
                f"got {tuple(z.shape)} and {tuple(values.shape)}"
            )
        deviation = values.std(0)
        self.offset, self.spread = values.mean(0), torch.where(deviation > 0, deviation, 1.0)
        self.classes, self.frequencies = torch.zeros(0, dtype=torch.int64), z.new_zeros(0)
        return (values - self.offset) / self.spread

    def _centred_classes(self, z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if labels.is_floating_point() or labels.is_complex():
            raise ValueError(f"labels: expected class indices, which are whole numbers, got {labels.dtype}")
        self.classes, index = labels.unique(return_inverse=True)
        if z.dim() != 2 or labels.shape != z.shape[:1] or len(self.classes) < 2:
            raise ValueError(
                f"features, labels: expected (N, d) and (N,) of two classes at least, "
                f"got {tuple(z.shape)} and {tuple(labels.shape)} of {len(self.classes)}"
            )
        one_hot = nn.functional.one_hot(index).to(z)
        self.frequencies = one_hot.mean(0)
        self.offset, self.spread = z.new_zeros(0), z.new_zeros(0)
        return one_hot - self.frequencies, index

    def _fit(self, z: Tensor, targets: Tensor, num_inducing: int, seed: int) -> Tensor:
        """Condition on targets ``(N, C)``; the whitened features ``(m, N)``."""
        deviation = z.std(0)
        self.centre, self.scale = z.mean(0), torch.where(deviation > 0, deviation, 1.0)
        z = self._standardised(z)
        self.points = cluster_centres(z, min(num_inducing, len(z.unique(dim=0))), seed=seed)
        median = torch.pdist(self.points).median() if len(self.points) > 1 else 1.0
        bounds: dict[float, tuple[float, float, float]] = {}
        for factor in _LENGTHSCALES:
            self._set_lengthscale(float(factor * median))
            bounds[self.lengthscale] = _best_noise(self._features(z), targets)
        self._set_lengthscale(max(bounds, key=lambda lengthscale: bounds[lengthscale]))
        _, self.noise, self.variance = bounds[self.lengthscale]
        A = self._features(z)
        self.inducing = InducingPosterior.of_targets(A, targets, self.noise)
        return A

    def __call__(self, features: Any) -> ReadoutPrediction:
        """Class probabilities, in the order of ``classes``, or values, and the variance of features ``(N, d)``."""
        A = self._features(self._standardised(torch.as_tensor(features).detach().to(self.centre)))
        posterior = SparsePosterior(A, self.inducing, A.new_ones(A.shape[-1]))
        variance = self.variance * posterior.variance
        if self.task == "regression":
            squares = self.spread.square()
            mean = self.offset + self.spread * posterior.mean
            return ReadoutPrediction(mean, variance[:, None] * squares, self.noise * self.variance * squares)
        probabilities = self._log_odds(posterior.mean, variance, self.slope).softmax(-1)
        return ReadoutPrediction(probabilities, variance, variance.new_zeros(()))

    def log_probabilities(self, features: Any, num_classes: int) -> Tensor:
        """Logarithms ``(N, C)`` of the probabilities of classes 0 … C-1, −∞ of those that the training set lacks."""
        known = self(features).probabilities.log()
        every = known.new_full((len(known), num_classes), -math.inf)
        every[:, self.classes] = known
        return every

    def state(self) -> tuple[dict[str, float], dict[str, Tensor]]:
        """The numbers and tensors that :meth:`of_state` makes the same read-out of."""
        tensors = {name: getattr(self, name) for name in _TENSORS}
        assert self.inducing.projection is not None
        tensors |= {"gram": self.inducing.gram, "projection": self.inducing.projection}
        return {name: float(getattr(self, name)) for name in _NUMBERS}, tensors

    @classmethod
    def of_state(cls, numbers: dict[str, float], tensors: dict[str, Tensor]) -> GPReadout:
        """The read-out of what :meth:`state` returned."""
        readout = cls.__new__(cls)
        for name, value in {**{n: tensors[n] for n in _TENSORS}, **{n: numbers[n] for n in _NUMBERS}}.items():
            setattr(readout, name, value)
        readout.task = "regression" if len(tensors["offset"]) else "classification"
        readout._set_lengthscale(readout.lengthscale)
        readout.inducing = InducingPosterior(tensors["gram"], tensors["projection"])
        return readout

    def _standardised(self, features: Tensor) -> Tensor:
        return (features - self.centre) / self.scale

    def _set_lengthscale(self, lengthscale: float) -> None:
        self.lengthscale, self._points = lengthscale, self.points / lengthscale
        self._whitening = whiten(squared_exponential(self._points))

    def _features(self, z: Tensor) -> Tensor:
        """Whitened features (m, N) of standardised ones."""
        return self._whitening @ squared_exponential(self._points, z / self.lengthscale)

    def _log_odds(self, mean: Tensor, variance: Tensor, slope: float) -> Tensor:
        shrinkage = (1.0 + math.pi / 8.0 * slope**2 * variance).rsqrt()
        return self.frequencies.log() + slope * mean * shrinkage[:, None]

    def _best_slope(self, A: Tensor, targets: Tensor, index: Tensor) -> float:
        """The slope under which each label is likeliest given the others."""
        spread = quadratic_forms(A, self.inducing.covariance)
        leverage = spread / self.noise  # below one: h / (1 + h)
        mean = (A.mT @ self.inducing.location - leverage[:, None] * targets) / (1.0 - leverage)[:, None]
        unexplained = (1.0 - A.square().sum(0)).clamp(min=0.0)
        variance = self.variance * (spread / (1.0 - leverage) + unexplained)
        losses = {s: nn.functional.cross_entropy(self._log_odds(mean, variance, s), index) for s in _SLOPES}
        return min(losses, key=lambda slope: float(losses[slope]))


def _finite(name: str, values: Tensor) -> Tensor:
    if not values.isfinite().all():
        row = int((~values.isfinite()).nonzero()[0, 0])
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity in row {row}")
    return values


def _best_noise(A: Tensor, targets: Tensor) -> tuple[float, float, float]:
    """The bound of the evidence at its best noise, that noise and the prior variance that goes with it."""
    gram, projection, squares = A @ A.mT, A @ targets, targets.square().sum()
    unexplained = (1.0 - A.square().sum(0)).clamp(min=0.0).sum()
    count, columns = targets.shape
    candidates = []
    for noise in _NOISES:
        posterior = InducingPosterior(gram / noise)
        quadratic = squares / noise - (posterior.whitening @ projection / noise).square().sum()
        variance = quadratic / targets.numel()
        log_det = posterior.log_det + count * math.log(noise)
        fit = log_det + count * (1.0 + math.log(2.0 * math.pi) + variance.log())
        candidates.append((float(-0.5 * columns * (fit + unexplained / noise)), noise, float(variance)))
    return max(candidates)
