"""Models that condition exactly: under fixed kernels, kernels written by a transformer, or of learned features."""

import math

import torch
from torch import Tensor, nn

from cgp.functional.kernels import canonical
from experiments.studies.in_context.neural_processes import Encoder, mean_of_contexts
from experiments.studies.in_context.predictive import Predictive, condition
from experiments.studies.in_context.tasks import Tasks, on_circle

__all__ = ["DeepKernel", "FeatureKernels", "FixedKernels", "WrittenKernels"]

_LINE, _CIRCLE = ("rbf", "matern52", "matern12"), ("rbf", "matern12")
_PARTS = len(_LINE) + len(_CIRCLE)
_CENTRE = (-1.0,) * _PARTS + (-0.7,) * _PARTS + (0.3, -5.0)  # log variances, log lengthscales, log period, log noise
_SPREAD = (1.0,) * _PARTS + (0.7,) * _PARTS + (0.4, 1.0)
_SMALLEST_NOISE = 1e-5


def covariance_of(parameters: Tensor, x: Tensor) -> Tensor:
    r"""Sum of three kernels on the line and two on a circle, :math:`\sum_j v_j\,\kappa_j(\tau / \ell_j)`.

    Args:
        parameters: logarithms of variances, lengthscales, period and noise, ``(B or 1, K, 12)``.
        x: ``(B, N)``.

    Returns:
        ``(B, K, N, N)``, without the noise.
    """
    variances, lengths = parameters[..., :_PARTS].exp(), parameters[..., _PARTS : 2 * _PARTS].exp()
    places = x.to(parameters)[:, None]
    circle = on_circle(places, parameters[..., 2 * _PARTS, None].exp())
    points = [places[..., None]] * len(_LINE) + [circle] * len(_CIRCLE)
    names = (*_LINE, *_CIRCLE)
    grams = [
        variances[..., j, None, None] * canonical(names[j]).gram(points[j] / lengths[..., j, None, None])
        for j in range(_PARTS)
    ]
    return torch.stack(grams).sum(0)


class FixedKernels(nn.Module):
    """K learned parameter sets, weighted by their evidence: no network.

    Args:
        count: K.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        normal = torch.randn(count, len(_CENTRE), dtype=torch.float64)
        self.parameter_sets = nn.Parameter(torch.tensor(_CENTRE) + torch.tensor(_SPREAD) * normal)
        self.log_prior = nn.Parameter(torch.zeros(count, dtype=torch.float64))

    def parameters_of(self, tasks: Tasks) -> Tensor:
        """Parameters for these functions, ``(B or 1, K, 12)``."""
        return self.parameter_sets[None]

    def covariance(self, parameters: Tensor, tasks: Tasks) -> Tensor:
        """Covariance at contexts and targets, ``(B, K, n + m, n + m)``."""
        return covariance_of(parameters, tasks.inputs)

    def forward(self, tasks: Tasks) -> Predictive:
        """The evidence-weighted mixture of exact posteriors."""
        parameters = self.parameters_of(tasks)
        noise = parameters[..., -1].exp() + _SMALLEST_NOISE
        return condition(self.covariance(parameters, tasks), noise, tasks, self.log_prior)


class WrittenKernels(FixedKernels):
    """A transformer reads the contexts and moves each of K parameter sets; at the start it moves none.

    Args:
        count: K.
        width: of the tokens.
        depth: number of layers.
    """

    def __init__(self, count: int, *, width: int, depth: int) -> None:
        super().__init__(count)
        self.encoder = Encoder(width, depth, equivariant=True)
        self.head = nn.Linear(width, count * len(_CENTRE))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def parameters_of(self, tasks: Tasks) -> Tensor:
        """The sets moved by what the contexts say, ``(B, K, 12)``."""
        alone = tasks._replace(x_targets=tasks.x_targets[:, :0], y_targets=tasks.y_targets[:, :0])
        moved = self.head(mean_of_contexts(self.encoder(alone), tasks)).unflatten(-1, self.parameter_sets.shape)
        return self.parameter_sets + 2.0 * torch.tanh(moved).double()


class FeatureKernels(WrittenKernels):
    r"""Kernels written by a transformer, times one of its tokens' features: Gaussian-process attention over the data.

    .. math:: \kappa_k(x, x')\,\exp(-\tfrac12\|\phi(x) - \phi(x')\|^2)

    Features of a target depend on the contexts, never on other targets; at the start they hardly differ.
    """

    _FEATURES = 8

    def __init__(self, count: int, *, width: int, depth: int) -> None:
        super().__init__(count, width=width, depth=depth)
        self.features = nn.Linear(width, self._FEATURES)
        nn.init.normal_(self.features.weight, std=0.1 / math.sqrt(width))
        nn.init.zeros_(self.features.bias)

    def covariance(self, parameters: Tensor, tasks: Tasks) -> Tensor:
        """Covariance at contexts and targets, ``(B, K, n + m, n + m)``."""
        features = self.features(self.encoder(tasks)).double()
        return super().covariance(parameters, tasks) * canonical("rbf").gram(features)[:, None]


class DeepKernel(nn.Module):
    r"""Deep kernel transfer: one kernel :math:`v\,\kappa(g(x), g(x'))` with a network g, trained by evidence.

    Source:
        Patacchiola et al. (2020), Bayesian meta-learning for the few-shot setting via deep kernels.
    """

    def __init__(self, *, width: int = 40, features: int = 8) -> None:
        super().__init__()
        layers = [nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, features)]
        self.network = nn.Sequential(*layers).double()
        self.log_variance = nn.Parameter(torch.zeros(1, 1, dtype=torch.float64))
        self.log_noise = nn.Parameter(torch.full((1, 1), -4.0, dtype=torch.float64))

    def forward(self, tasks: Tasks) -> Predictive:
        """The exact posterior."""
        gram = canonical("rbf").gram(self.network(tasks.inputs[..., None].double()))[:, None]
        return condition(self.log_variance.exp()[..., None, None] * gram, self.noise, tasks)

    @property
    def noise(self) -> Tensor:
        """Variance of the noise, ``(1, 1)``."""
        return self.log_noise.exp() + _SMALLEST_NOISE

    def loss(self, tasks: Tasks) -> Tensor:
        """Negative log-evidence of contexts and targets together, in nats a value."""
        x, y = tasks.inputs, torch.cat([tasks.y, tasks.y_targets], -1)
        nothing = torch.ones(len(x), 1, dtype=torch.bool)
        whole = Tasks(x[:, :1], y[:, :1], x, y, nothing)  # nothing observed: the prior's joint density is the evidence
        return -self(whole).joint(y.double()).mean() / y.shape[-1]
