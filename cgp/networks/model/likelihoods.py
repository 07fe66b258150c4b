"""Likelihoods given samples of the function, which a transformer with stochastic layers returns.

GPyTorch's likelihoods integrate over a distribution of the function; here the integral is an average over S draws.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import Likelihood
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

__all__ = ["CategoricalLikelihood", "HomoscedasticLikelihood"]


class CategoricalLikelihood(Likelihood):
    r"""Classes from logits, :math:`p(y = c \mid f) = \operatorname{softmax}(f)_c`.

    Args:
        num_classes: C, at least 2.

    Raises:
        ValueError: if there are fewer than two classes.

    Example:
        >>> CategoricalLikelihood(2).expected_log_prob(torch.tensor([0]), torch.zeros(4, 1, 2))
        tensor([-0.6931])
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"num_classes: expected at least 2, got {num_classes}")
        self.num_classes = num_classes

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Categorical:
        """The distribution of labels given logits ``(*sample, *batch, C)``; further arguments are GPyTorch's."""
        return Categorical(logits=function_samples)

    def expected_log_prob(self, observations: Tensor, function_samples: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        r"""Monte Carlo average for labels ``(*batch,)``, :math:`\tfrac1S\sum_s \log p(y \mid f_s)`, in nats."""
        if function_samples.shape[-1] != self.num_classes:
            expected, got = self.num_classes, tuple(function_samples.shape)
            raise ValueError(f"function_samples: expected (..., {expected}), got {got}")
        _check_batch(observations, function_samples.shape[:-1])
        labels = observations.expand(function_samples.shape[:-1])
        log_prob = function_samples.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
        return _average_draws(log_prob, observations.dim())


class HomoscedasticLikelihood(Likelihood):
    r"""Real outputs with Gaussian noise, :math:`y \sim N(f, \sigma^2)`, one learned variance per output.

    Args:
        num_outputs: number of outputs E.
        initial_noise: initial noise variance, in units of y squared.

    Raises:
        ValueError: if there is no output or the noise is not positive.

    Example:
        >>> HomoscedasticLikelihood(1, initial_noise=1.0).expected_log_prob(torch.zeros(3, 1), torch.zeros(5, 3, 1))
        tensor([-0.9189, -0.9189, -0.9189], grad_fn=<...>)
    """

    def __init__(self, num_outputs: int = 1, *, initial_noise: float = 0.1) -> None:
        super().__init__()
        if num_outputs < 1 or not initial_noise > 1e-4:
            raise ValueError(
                f"num_outputs, initial_noise: expected at least 1 and above 1e-4, got {num_outputs} and {initial_noise}"
            )
        self.num_outputs = num_outputs
        self.register_parameter("raw_noise", nn.Parameter(torch.zeros(num_outputs)))
        self.register_constraint("raw_noise", GreaterThan(1e-4))
        self.noise = torch.full((num_outputs,), float(initial_noise))

    @property
    def noise(self) -> Tensor:
        """Noise variance of each output, ``(E,)``."""
        return self.raw_noise_constraint.transform(self.raw_noise)

    @noise.setter
    def noise(self, value: Tensor) -> None:
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(value.to(self.raw_noise)))

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Normal:
        """The distribution of outputs given the function ``(*sample, *batch, E)``; further arguments are GPyTorch's."""
        return Normal(function_samples, self.noise.sqrt())

    def expected_log_prob(self, observations: Tensor, function_samples: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        r"""Monte Carlo average, :math:`-\tfrac1{2S}\sum_{se}[(y_e - f_{se})^2/\sigma_e^2 + \log 2\pi\sigma_e^2]`."""
        if function_samples.shape[-1] != self.num_outputs or observations.shape[-1:] != function_samples.shape[-1:]:
            raise ValueError(
                f"observations, function_samples: expected (..., {self.num_outputs}) both, "
                f"got {tuple(observations.shape)} and {tuple(function_samples.shape)}"
            )
        _check_batch(observations[..., 0], function_samples.shape[:-1])
        squared = (observations - function_samples).square() / self.noise
        log_prob = -0.5 * (squared + self.noise.log() + math.log(2.0 * math.pi)).sum(-1)
        return _average_draws(log_prob, observations.dim() - 1)


def _check_batch(observations: Tensor, sample_shape: torch.Size) -> None:
    batch = observations.shape
    if len(batch) > len(sample_shape) or sample_shape[len(sample_shape) - len(batch) :] != batch:
        raise ValueError(
            f"observations: expected the batch shape of the samples, (*sample, *batch) = {tuple(sample_shape)}, "
            f"got {tuple(batch)}"
        )


def _average_draws(log_prob: Tensor, batch_dims: int) -> Tensor:
    draws = log_prob.dim() - batch_dims
    return log_prob.mean(tuple(range(draws))) if draws else log_prob
