"""Laplace's approximation of the last layer, Kronecker-factored (KFLLLA)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.evaluation import mean_log_probabilities, negative_log_likelihood
from experiments.methods.batches import check_labels
from experiments.methods.features import last_features, last_linear

if TYPE_CHECKING:
    from laplace import KronLaplace

__all__ = ["LastLayerPosterior", "last_layer_laplace"]

_GRID = np.linspace(np.log(1e-5), np.log(1e6), 45)  # of log prior precisions
_SELECTION_DRAWS = 32


@dataclass(frozen=True)
class LastLayerPosterior:
    """A Gaussian over weights and biases of a model's last layer; everything below it stays as it is.

    Attributes:
        model: the model.
        layer: name of its last layer.
        laplace: the library's posterior over that layer, float64 on the CPU, its inputs being the layer's.
        prior_precision: of every weight and bias.
    """

    model: nn.Module
    layer: str
    laplace: KronLaplace
    prior_precision: float

    def draw_logits(
        self,
        inputs: Any,
        num_samples: int = 10,
        generator: torch.Generator | None = None,
        *,
        batch_size: int = 256,
    ) -> Tensor:  # shape: (S, N, C)
        """Draw S last layers, the same for all inputs, and evaluate them.

        Args:
            inputs: a tensor, a tuple or dict of arguments, or an iterable of batches.
            num_samples: number S of draws.
            generator: of the CPU.
            batch_size: examples at a time.

        Returns:
            Logits `(S, N, C)` float32, on the CPU.

        Raises:
            ValueError: if the number of draws is not positive.
        """
        if num_samples < 1:
            raise ValueError(f"num_samples: expected at least 1, got {num_samples}")
        features = last_features(self.model, self.layer, inputs, batch_size)
        return _draw(self.laplace, features, num_samples, generator).float()


def last_layer_laplace(
    model: nn.Module,
    inputs: Any,
    labels: Tensor,  # shape: (N,)
    *,
    prior_precision: float | Literal["marginal_likelihood", "validation"] = "marginal_likelihood",
    validation: tuple[Any, Tensor] | None = None,
    batch_size: int = 256,
) -> LastLayerPosterior:
    r"""Gaussian posterior of the last layer around its trained weights, by laplace-torch.

    .. math::
        q(\mathrm{vec}\,W) = N\Big(\hat W,\ \Big[\textstyle\sum_n \Lambda_n \otimes \frac1N \sum_n \phi_n \phi_n^\top
        + \tau I\Big]^{-1}\Big), \qquad \Lambda_n = \mathrm{diag}(p_n) - p_n p_n^\top

    with φ what enters the layer; the bias likewise, with φ = 1. The forward pass must be deterministic: stochastic
    attention returns its mean, dropout is off.

    Args:
        model: from inputs to logits; the last thing it does is a linear layer.
        inputs: training inputs: a tensor, a tuple or dict of arguments, or an iterable of batches.
        labels: training classes `(N,)`.
        prior_precision: τ; or "marginal_likelihood": the largest under Laplace; or "validation": of the smallest
            negative log-likelihood of the mean probability of 32 draws.
        validation: inputs and classes, for "validation".
        batch_size: examples at a time.

    Returns:
        The posterior.

    Raises:
        ValueError: if an argument is off, the model does not end with a linear layer, or two passes differ.

    Source:
        Kristiadi et al. (2020), Being Bayesian, Even Just a Bit, section 4; Ritter et al. (2018), equation (4).

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
        >>> posterior = last_layer_laplace(model, torch.randn(20, 4), torch.arange(20) % 3)
        >>> posterior.draw_logits(torch.zeros(5, 4), 6).shape
        torch.Size([6, 5, 3])
    """
    from laplace import KronLaplace  # takes seconds to import
    from laplace.curvature import CurvlinopsGGN

    _check_prior(prior_precision, validation)
    layer, head = last_linear(model, inputs, batch_size)
    features = last_features(model, layer, inputs, batch_size)  # (N, D)
    laplace = KronLaplace(deepcopy(head).cpu().double(), "classification", backend=CurvlinopsGGN)
    laplace.fit(
        DataLoader(TensorDataset(features, check_labels(labels, len(features), head.out_features)), batch_size=4096)
    )
    if prior_precision == "marginal_likelihood":
        precision = _minimum(lambda tau: -float(laplace.log_marginal_likelihood(torch.tensor(tau))))
    elif prior_precision == "validation" and validation is not None:
        precision = _minimum(_validation_loss(laplace, model, layer, validation, batch_size))
    else:
        precision = float(prior_precision)
    laplace.prior_precision = precision
    return LastLayerPosterior(model, layer, laplace, precision)


def _check_prior(prior_precision: float | str, validation: tuple[Any, Tensor] | None) -> None:
    if isinstance(prior_precision, str):
        if prior_precision not in ("marginal_likelihood", "validation"):
            raise ValueError(
                f"prior_precision: expected a number, 'marginal_likelihood' or 'validation', got {prior_precision!r}"
            )
        if (prior_precision == "validation") != (validation is not None):
            raise ValueError(
                f"validation: expected with prior_precision='validation' and only then, got {prior_precision!r} "
                f"{'without' if validation is None else 'with'} it"
            )
    elif not prior_precision > 0:
        raise ValueError(f"prior_precision: expected above 0, got {prior_precision}")


@torch.no_grad()
def _draw(
    laplace: KronLaplace,
    features: Tensor,  # shape: (N, D)
    num_samples: int,
    generator: torch.Generator | None,
) -> Tensor:  # shape: (S, N, C)
    classes, width = laplace.model.weight.shape
    draws = laplace.sample(num_samples, generator)  # (S, C D + C), or (S, C D) without bias
    weight = draws[:, : classes * width].reshape(num_samples, classes, width)
    return features @ weight.mT + (draws[:, None, classes * width :] if laplace.model.bias is not None else 0.0)


def _validation_loss(
    laplace: KronLaplace, model: nn.Module, layer: str, validation: tuple[Any, Tensor], batch_size: int
) -> Callable[[float], float]:
    """Return the validation NLL as a function of the prior precision, with the same random numbers for each."""
    inputs, labels = validation
    features = last_features(model, layer, inputs, batch_size)
    labels = check_labels(labels, len(features), laplace.model.out_features)

    def loss(precision: float) -> float:
        laplace.prior_precision = precision
        logits = _draw(laplace, features, _SELECTION_DRAWS, torch.Generator().manual_seed(0))
        return float(negative_log_likelihood(mean_log_probabilities(logits), labels))

    return loss


def _minimum(loss: Callable[[float], float]) -> float:
    """Search a grid of prior precisions, then between the neighbours of its best."""
    values = [loss(float(np.exp(point))) for point in _GRID]
    best = int(np.argmin(values))
    bounds = _GRID[max(best - 1, 0)], _GRID[min(best + 1, len(_GRID) - 1)]
    found = minimize_scalar(
        lambda point: loss(float(np.exp(point))), bounds=bounds, method="bounded", options={"xatol": 1e-6}
    )
    return float(np.exp(found.x if found.fun <= values[best] else _GRID[best]))
